from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from roost.actors.front.gateway import Gateway
from roost.actors.front.timers import Timers
from roost.schemas.base import Done
from roost.schemas.session import Count

if TYPE_CHECKING:
    from trio.testing import MockClock


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
