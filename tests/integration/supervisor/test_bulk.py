from __future__ import annotations

import random
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.schemas.base import Done, Message
from roost.schemas.commands import CommandOutput
from roost.schemas.frame import DEFAULT_LIMIT, HEADER
from roost.supervisor.bulk import BUFFER_BYTES, BulkLink
from roost.supervisor.link import Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(CommandOutput | Done)


class Recorder:
    """Keeps what comes, and answers every call."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.closed = trio.Event()
        self.wanted = 0
        self.complete = trio.Event()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        if isinstance(message, CommandOutput):
            self.lines.append(message.line)
            if len(self.lines) == self.wanted:
                self.complete.set()
        link.reply(ref, Done())

    def on_closed(self, link: Link) -> None:
        self.closed.set()


@asynccontextmanager
async def linked() -> AsyncGenerator[tuple[socket.socket, BulkLink, Poller, Recorder]]:
    left, right = socket.socketpair()
    poller, recorder = Poller(), Recorder()
    link = BulkLink(right, poller, name="bulk", decoder=decoder, handler=recorder)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            yield left, link, poller, recorder
            nursery.cancel_scope.cancel()
    link.close()
    left.close()
    poller.close()


async def test_frames_of_all_sizes_come_whole_and_in_order() -> None:
    chance = random.Random(5)
    sizes = [0, 1, BUFFER_BYTES, BUFFER_BYTES - 30, 3 * BUFFER_BYTES, 2, 5 * BUFFER_BYTES]
    sizes += [chance.randrange(200_000) for _ in range(60)]
    lines = [chance.randbytes(size) for size in sizes]
    async with linked() as (sock, _, poller, recorder):
        recorder.wanted = len(lines)
        sender = Link(sock, poller, name="sender", decoder=decoder, handler=Recorder())
        for line in lines:
            sender.cast(CommandOutput(number=1, connection=2, line=line))
        await recorder.complete.wait()
        assert recorder.lines == lines
        sender.close()


async def test_pieces_of_a_frame_may_come_one_by_one() -> None:
    body = msgspec.msgpack.encode(CommandOutput(number=1, connection=2, line=b"abc"))
    frame = HEADER.pack(len(body), 0) + body
    async with linked() as (sock, _, _, recorder):
        recorder.wanted = 3
        for at in range(3 * len(frame)):
            await trio.lowlevel.wait_writable(sock)
            sock.send(frame[at % len(frame) :][:1])
            await trio.lowlevel.checkpoint()
        await recorder.complete.wait()
        assert recorder.lines == [b"abc"] * 3


async def test_calls_are_answered_in_both_directions() -> None:
    async with linked() as (sock, link, poller, _):
        other = Link(sock, poller, name="other", decoder=decoder, handler=Recorder())
        message = CommandOutput(number=1, connection=2, line=b"")
        assert await other.call(message, timeout=5) == Done()
        assert await link.call(message, timeout=5) == Done()
        other.close()


async def test_the_link_is_closed_by_a_frame_that_is_too_large_or_not_to_be_read() -> None:
    for data in (HEADER.pack(DEFAULT_LIMIT + 1, 0), HEADER.pack(1, 0) + b"\xc1"):
        async with linked() as (sock, _, _, recorder):
            sock.send(data)
            await recorder.closed.wait()
            assert recorder.lines == []
