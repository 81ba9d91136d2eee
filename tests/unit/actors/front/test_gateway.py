from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio

from roost.actors.errors import Internal
from roost.actors.front.gateway import BULKY_AT_ONCE, MAX_LINKS, Gateway
from roost.actors.front.timers import Timers
from roost.schemas.base import Done
from roost.schemas.session import Count, Counts, ListSessions
from roost.supervisor.errors import ActorGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from roost.schemas.base import Message
    from roost.supervisor.link import Answer, Link


class Unwritable:
    """A link on which no message can be written down, as one with an integer of more than 64 bits."""

    def call_nowait(self, *_: object) -> int:
        raise OverflowError("can't serialize ints >= 2**64 or < -(2**63)")


class Deadly:
    """A link whose other side dies of each `Count`, and answers all else."""

    def __init__(self) -> None:
        self.lost: list[Callable[[Answer], None]] = []

    def call_nowait(self, message: Message, on_answer: Callable[[Answer], None]) -> int:
        if isinstance(message, Count):
            self.lost.append(on_answer)
        else:
            on_answer(Done())
        return 1

    def die(self) -> None:
        for on_answer in self.lost:
            on_answer(ActorGone("store is gone"))


async def test_new_time_limits_add_no_timer(autojump_clock: MockClock) -> None:
    timers = Timers()
    gateway = Gateway("store", timers, 30.0)
    gateway.ask(Count(), Done)
    for seconds in (20.0, 25.0, 10.0):
        gateway.set_timeout(seconds)
        assert timers.armed == 1


async def test_without_a_time_limit_a_call_waits_until_there_is_one(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    gateway = Gateway("store", timers, 0)
    promise = gateway.ask(Count(), Done)
    await trio.sleep(80_000)
    assert not promise.done
    gateway.set_timeout(5.0)
    await trio.sleep(6)
    assert promise.done


async def test_a_new_time_limit_holds_though_a_timer_ran_by_the_old_one(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    gateway = Gateway("providers", timers, 0, waits=False)
    assert gateway.ask(Count(), Done).done
    assert not gateway.busy
    gateway.set_timeout(5.0)
    assert timers.armed == 0


async def test_what_cannot_be_written_down_fails_alone(autojump_clock: MockClock) -> None:
    gateway = Gateway("store", Timers(), 30.0)
    gateway.connect(cast("Link", Unwritable()))
    promises = [gateway.ask_bulky(Count(), Counts) for _ in range(2 * BULKY_AT_ONCE)]
    for promise in promises:
        with pytest.raises(Internal):
            promise.result()
    assert gateway.unanswered == 0


async def test_a_call_that_its_answerer_dies_of_is_not_asked_for_ever(
    autojump_clock: MockClock,
) -> None:
    gateway = Gateway("store", Timers(), 0)
    promise = gateway.ask(Count(), Counts)
    for number in range(MAX_LINKS):
        assert not promise.done
        link = Deadly()
        gateway.connect(cast("Link", link))
        assert len(link.lost) == 1, number
        assert gateway.ask(ListSessions(limit=1), Done).done
        gateway.disconnect(cast("Link", link))
        link.die()
    with pytest.raises(Internal, match=f"store was lost {MAX_LINKS} times"):
        promise.result()
    last = Deadly()
    gateway.connect(cast("Link", last))
    assert last.lost == []
    assert gateway.unanswered == 0
