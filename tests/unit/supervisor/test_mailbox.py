from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from roost.supervisor.errors import ActorGone, CallTimeout, MailboxFull
from roost.supervisor.mailbox import Mailbox


def box(limit: int = 2) -> Mailbox[str, str]:
    return Mailbox("actor", limit)


async def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    mailbox = box()
    mailbox.cast_nowait("a")
    mailbox.cast_nowait("b")
    assert [(await mailbox.receive()).message for _ in range(2)] == ["a", "b"]


async def test_a_full_mailbox_refuses_who_does_not_wait() -> None:
    mailbox = box(1)
    mailbox.cast_nowait("a")
    with pytest.raises(MailboxFull):
        mailbox.cast_nowait("b")
    assert len(mailbox) == 1


async def test_a_full_mailbox_lets_others_wait_for_room() -> None:
    mailbox = box(1)
    mailbox.cast_nowait("a")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cast, mailbox, "b")
            await wait_all_tasks_blocked()
            assert (await mailbox.receive()).message == "a"
        assert (await mailbox.receive()).message == "b"


async def cast(mailbox: Mailbox[str, str], message: str) -> None:
    await mailbox.cast(message, timeout=60)


async def test_waiting_for_room_has_a_limit(autojump_clock: MockClock) -> None:
    mailbox = box(1)
    mailbox.cast_nowait("a")
    with pytest.raises(MailboxFull):
        await mailbox.cast("b", timeout=3)
    assert trio.current_time() == 3


async def test_a_call_returns_the_answer() -> None:
    mailbox = box()

    async def serve() -> None:
        letter = await mailbox.receive()
        letter.reply(letter.message.upper())
        letter.reply("a second answer does not count")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        assert await mailbox.call("hello", timeout=60) == "HELLO"


async def test_a_call_has_a_deadline_and_the_late_answer_is_dropped(
    autojump_clock: MockClock,
) -> None:
    mailbox = box()
    with pytest.raises(CallTimeout, match="actor"):
        await mailbox.call("hello", timeout=3)
    assert trio.current_time() == 3
    letter = await mailbox.receive()
    letter.reply("late")


async def test_a_closed_mailbox_fails_calls_senders_and_the_reader() -> None:
    mailbox = box(1)
    failures: list[str] = []

    async def call(message: str) -> None:
        try:
            await mailbox.call(message, timeout=60)
        except ActorGone:
            failures.append(message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "in the box, or waiting for room")
        nursery.start_soon(call, "the other of the two")
        await wait_all_tasks_blocked()
        mailbox.close()
    assert len(failures) == 2
    with pytest.raises(ActorGone):
        mailbox.cast_nowait("b")
    with pytest.raises(ActorGone):
        await mailbox.receive()


async def test_a_cancelled_reader_loses_no_message() -> None:
    mailbox = box()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.receive)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    mailbox.cast_nowait("a")
    assert (await mailbox.receive()).message == "a"


async def test_a_cancelled_sender_has_sent_nothing() -> None:
    mailbox = box(1)
    mailbox.cast_nowait("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cast, mailbox, "b")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await mailbox.receive()
    assert len(mailbox) == 0
