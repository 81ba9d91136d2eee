from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from roost.actors.session.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable


def make_time(*times: float) -> Callable[[], float]:
    left = list(times)
    return lambda: left.pop(0)


def test_time_counts_only_while_the_clock_runs() -> None:
    clock = Clock(make_time(10, 12, 12, 20, 23))
    clock.run(True)
    assert clock.now() == 2
    clock.run(False)
    assert clock.now() == 2
    clock.run(False)
    clock.run(True)
    assert clock.now() == 5


async def test_a_wait_takes_longer_by_the_time_that_did_not_count(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = Clock(trio.current_time)
    began = trio.current_time()
    ended = trio.Event()

    async def wait() -> None:
        await clock.until(10)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(4)
        clock.run(False)
        await trio.sleep(100)
        assert not ended.is_set()
        clock.run(True)
    assert trio.current_time() - began == 110


async def test_a_wait_for_what_has_passed_is_over_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = Clock(trio.current_time)
    clock.run(False)
    began = trio.current_time()
    await clock.until(0)
    assert trio.current_time() == began
