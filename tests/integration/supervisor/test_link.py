from __future__ import annotations

import contextlib
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing

from roost.schemas import control
from roost.schemas.base import Done, Message, Refused
from roost.schemas.frame import DEFAULT_LIMIT
from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(
    control.Ping | control.Pong | control.Handle | control.Failed | Done | Refused
)


class Recorder:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.closed: list[str] = []
        self.answer: Callable[[Link, int, Message], None] = lambda link, ref, _: link.reply(
            ref, control.Pong()
        )

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        self.messages.append(message)
        self.answer(link, ref, message)

    def on_closed(self, link: Link) -> None:
        self.closed.append(link.name)


@asynccontextmanager
async def linked(
    queue_bytes: int = 1 << 20,
) -> AsyncGenerator[tuple[Link, Link, Recorder, Recorder]]:
    left, right = socket.socketpair()
    poller = Poller()
    here, there = Recorder(), Recorder()
    a = ControlLink(left, poller, name="a", decoder=decoder, handler=here, queue_bytes=queue_bytes)
    b = ControlLink(right, poller, name="b", decoder=decoder, handler=there)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            yield a, b, here, there
            nursery.cancel_scope.cancel()
    a.close()
    b.close()
    poller.close()


async def test_a_call_is_answered() -> None:
    async with linked() as (a, _, _, there):
        assert await a.call(control.Ping(), timeout=5) == control.Pong()
        assert there.messages == [control.Ping()]


async def test_messages_arrive_in_order_and_in_few_sends() -> None:
    async with linked() as (a, b, _, there):
        for number in range(5_000):
            a.cast(control.Failed(error=str(number)))
        await a.call(control.Ping(), timeout=5)
        said = [m.error for m in there.messages if isinstance(m, control.Failed)]
        assert said == [str(number) for number in range(5_000)]
        assert b.queued == 0


async def test_a_call_without_an_answer_ends_at_its_deadline_and_the_late_answer_is_dropped() -> (
    None
):
    async with linked() as (a, b, here, there):
        refs: list[int] = []
        there.answer = lambda _link, ref, _message: refs.append(ref)
        with pytest.raises(CallTimeout):
            await a.call(control.Ping(), timeout=0.05)
        b.reply(refs[0], control.Pong())
        there.answer = lambda link, ref, _: link.reply(ref, Done())
        assert await a.call(control.Ping(), timeout=5) == Done()
        assert here.messages == []


async def test_a_call_fails_when_the_other_side_goes() -> None:
    async with linked() as (a, b, here, there):
        there.answer = lambda link, _ref, _message: link.close()
        with pytest.raises(ActorGone):
            await a.call(control.Ping(), timeout=5)
        assert here.closed == ["a"]
        assert there.closed == ["b"]
        assert b.closed
        with pytest.raises(ActorGone):
            await a.call(control.Ping(), timeout=5)
        a.cast(control.Ping())


async def test_a_cancelled_call_leaves_the_link_usable() -> None:
    async with linked() as (a, _, _, there):
        there.answer = lambda _link, _ref, _message: None
        with trio.move_on_after(0.05) as scope:
            await a.call(control.Ping(), timeout=60)
        assert scope.cancelled_caught
        there.answer = lambda link, ref, _: link.reply(ref, control.Pong())
        assert await a.call(control.Ping(), timeout=5) == control.Pong()


async def cast_until_full(link: Link) -> int:
    for said in range(1_000):
        try:
            link.cast(control.Failed(error=f"{said:04d}" + "x" * 10_000))
        except LinkFull:
            return said
        await trio.lowlevel.checkpoint()
    raise AssertionError("the link was never full")


def read_ready(sock: socket.socket) -> bytes:
    """Return what there is, without waiting for more."""
    got = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            got += sock.recv(65_536)
    return got


async def test_a_link_whose_other_side_does_not_read_is_full_at_its_bound() -> None:
    left, right = socket.socketpair()
    poller = Poller()
    link = Link(left, poller, name="a", decoder=decoder, handler=Recorder(), queue_bytes=300_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        said = await cast_until_full(link)
        # The next message, of some 10,020 bytes, would not have fitted.
        assert 300_000 - 10_100 < link.queued <= 300_000
        right.setblocking(False)
        got = read_ready(right)
        with trio.fail_after(10):
            while link.queued:
                await trio.lowlevel.checkpoint()
                got += read_ready(right)
            await link.drained()
        nursery.cancel_scope.cancel()
    got += read_ready(right)
    assert got.count(b"control.failed") == said
    link.close()
    right.close()
    poller.close()


async def test_who_waits_for_room_is_not_told_of_less_than_what_was_refused_needs() -> None:
    left, right = socket.socketpair()
    poller = Poller()
    link = Link(left, poller, name="a", decoder=decoder, handler=Recorder(), queue_bytes=1 << 20)
    large = control.Failed(error="")
    sent_again = False

    async def send_again() -> None:
        nonlocal sent_again
        # Full by its size alone: less than half of the queue is used.
        with pytest.raises(LinkFull):
            link.cast(large)
        await link.drained()
        link.cast(large)
        sent_again = True

    right.setblocking(False)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while not link.queued:
                link.cast(control.Failed(error="x" * 100_000))
                await trio.testing.wait_all_tasks_blocked()
            link.set_bound(2 * link.queued + 100)
            large = control.Failed(error="y" * (link.queued + 200))
            nursery.start_soon(send_again)
            await trio.testing.wait_all_tasks_blocked()
            assert not sent_again
            while not sent_again:
                read_ready(right)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    link.close()
    right.close()
    poller.close()


async def test_descriptors_travel_with_their_messages() -> None:
    async with linked() as (a, _, _, there):
        names: list[tuple[str, bytes]] = []

        def take(link: Link, ref: int, message: Message) -> None:
            if isinstance(message, control.Handle):
                fd = link.take_handle()
                names.append((message.name, os.read(fd, 10)))
                os.close(fd)
            link.reply(ref, Done())

        there.answer = take
        for name in ("first", "second", "third"):
            read, write = os.pipe()
            os.write(write, name.encode())
            os.close(write)
            a.cast(control.Failed(error="between"))
            a.pass_handle(control.Handle(name=name, generation=1), read)
        await a.call(control.Ping(), timeout=5)
        assert names == [(name, name.encode()) for name in ("first", "second", "third")]


async def test_garbage_closes_the_link_and_nothing_else() -> None:
    left, right = socket.socketpair()
    poller = Poller()
    handler = Recorder()
    link = Link(left, poller, name="a", decoder=decoder, handler=handler)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            right.send(b"\x03\x00\x00\x00\x00\x00\x00\x00\xc1\xc1\xc1")
            while not link.closed:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert handler.closed == ["a"]
    right.close()
    poller.close()


async def test_an_answer_longer_than_a_frame_fails_alone_and_the_link_goes_on() -> None:
    async with linked() as (a, b, here, there):
        long = control.Handle(name="x" * DEFAULT_LIMIT, generation=1)
        there.answer = lambda link, ref, message: link.reply(
            ref, long if isinstance(message, control.Handle) else control.Pong()
        )
        refused = await a.call(control.Handle(name="", generation=1), timeout=5)
        assert isinstance(refused, Refused)
        assert refused.code == "ANSWER_TOO_LARGE"
        size = len(msgspec.msgpack.encode(long))
        assert msgspec.json.decode(refused.data) == {"limit": DEFAULT_LIMIT, "size": size}
        assert isinstance(await a.call(control.Ping(), timeout=5), control.Pong)
        assert (a.closed, b.closed, here.closed, there.closed) == (False, False, [], [])


async def test_an_answer_that_cannot_be_written_down_fails_alone() -> None:
    async with linked() as (a, b, _here, there):
        wrong = control.Handle(name="", generation=2**70)
        there.answer = lambda link, ref, _: link.reply(ref, wrong)
        refused = await a.call(control.Ping(), timeout=5)
        assert isinstance(refused, Refused)
        assert refused.code == "INTERNAL"
        assert (a.closed, b.closed) == (False, False)


async def test_a_call_longer_than_a_frame_is_refused_before_it_is_sent() -> None:
    async with linked() as (a, b, _here, there):
        refused = await a.call(control.Handle(name="x" * DEFAULT_LIMIT, generation=1), timeout=5)
        assert isinstance(refused, Refused)
        assert refused.code == "REQUEST_TOO_LARGE"
        assert isinstance(await a.call(control.Ping(), timeout=5), control.Pong)
        assert [type(message) for message in there.messages] == [control.Ping]
        assert (a.closed, b.closed) == (False, False)
