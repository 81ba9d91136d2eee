from __future__ import annotations

import base64
from typing import TYPE_CHECKING, cast

import trio
import trio.testing

from roost.actors.client.errors import RpcError
from roost.actors.client.exec_feed import AHEAD, PIECE, Feed

if TYPE_CHECKING:
    from roost.actors.client.connection import Connection
    from roost.actors.client.exec_files import Input

LATER = RpcError(-32000, "too fast", "RATE_LIMITED", b'{"retryAfterMs":10}')
ENDED = RpcError(-32602, "no active commandExec session", "INVALID_ARGUMENT")


class Source:
    """What somebody writes to us."""

    def __init__(self) -> None:
        self.write, self._read = trio.open_memory_channel[bytes](0)
        self.taken = 0

    async def read(self) -> bytes:
        try:
            data = await self._read.receive()
        except trio.EndOfChannel:
            return b""
        self.taken += len(data)
        return data


class Daemon:
    """Takes what is written when it is told to."""

    def __init__(self) -> None:
        self.bytes = b""
        self.closed = False
        self.requests = 0
        self.takes = trio.Event()
        self.takes.set()
        self.refusals: list[RpcError] = []

    async def call(
        self, method: str, params: dict[str, object], reply: object, *, within: float
    ) -> None:
        assert method == "commandExec.write"
        assert not self.closed
        self.requests += 1
        await self.takes.wait()
        if self.refusals:
            raise self.refusals.pop()
        self.bytes += base64.b64decode(str(params.get("deltaBase64", "")), validate=True)
        self.closed = "closeStdin" in params


def feed_of(daemon: Daemon, source: Source | None) -> Feed:
    return Feed(cast("Connection", daemon), cast("Input | None", source))


async def test_all_bytes_arrive_in_order_and_then_the_end(nursery: trio.Nursery) -> None:
    daemon, source = Daemon(), Source()
    nursery.start_soon(feed_of(daemon, source).run)
    pieces = [bytes([n]) * n for n in range(1, 200)]
    for piece in pieces:
        await source.write.send(piece)
    source.write.close()
    await trio.testing.wait_all_tasks_blocked()
    assert daemon.bytes == b"".join(pieces)
    assert daemon.closed


async def test_an_empty_input_is_only_ended(nursery: trio.Nursery) -> None:
    daemon, source = Daemon(), Source()
    source.write.close()
    await feed_of(daemon, source).run()
    assert (daemon.bytes, daemon.closed, daemon.requests) == (b"", True, 1)


async def test_who_does_not_take_stops_who_writes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    daemon, source = Daemon(), Source()
    daemon.takes = trio.Event()
    nursery.start_soon(feed_of(daemon, source).run)
    piece = bytes(64 * 1024)
    for _ in range(64):
        with trio.move_on_after(1) as scope:
            await source.write.send(piece)
        if scope.cancelled_caught:
            break
    assert AHEAD <= source.taken <= AHEAD + PIECE + len(piece)
    daemon.takes.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(daemon.bytes) == source.taken
    assert daemon.requests <= source.taken / PIECE + 3, "what waited was put together"


async def test_what_is_refused_for_now_is_sent_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    daemon, source = Daemon(), Source()
    daemon.refusals = [LATER, LATER]
    nursery.start_soon(feed_of(daemon, source).run)
    await source.write.send(b"abc")
    source.write.close()
    await trio.sleep(1)
    assert (daemon.bytes, daemon.closed) == (b"abc", True)


async def test_a_command_that_has_ended_is_fed_no_more(nursery: trio.Nursery) -> None:
    daemon, source = Daemon(), Source()
    daemon.refusals = [ENDED]
    feed = feed_of(daemon, source)
    nursery.start_soon(source.write.send, b"abc")
    await feed.run()
    assert daemon.requests == 1
    assert not feed.push(b"\x03")


async def test_a_key_is_put_between_what_is_read(nursery: trio.Nursery) -> None:
    daemon, source = Daemon(), Source()
    feed = feed_of(daemon, source)
    nursery.start_soon(feed.run)
    await source.write.send(b"a")
    await trio.testing.wait_all_tasks_blocked()
    assert feed.push(b"\x03")
    await trio.testing.wait_all_tasks_blocked()
    assert daemon.bytes == b"a\x03"


async def test_pressing_ctrl_c_again_and_again_leaves_a_daemon_that_is_stuck(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    daemon, source = Daemon(), Source()
    left: list[float] = []
    feed = feed_of(daemon, source)
    feed.on_stuck = lambda: left.append(trio.current_time())
    nursery.start_soon(feed.run)
    for _ in range(5):
        await source.write.send(b"\x03")
        await trio.testing.wait_all_tasks_blocked()
    daemon.takes = trio.Event()
    for _ in range(5):
        await source.write.send(b"\x03")
        await trio.testing.wait_all_tasks_blocked()
    assert not left, "it may only be slow"
    await trio.sleep(6)
    for _ in range(3):
        assert not left
        await source.write.send(b"\x03")
        await trio.testing.wait_all_tasks_blocked()
    assert left
