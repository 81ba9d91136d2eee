from __future__ import annotations

from typing import TYPE_CHECKING

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
