from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from roost.supervisor.patience import wait_patiently

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_an_event_in_time_is_seen(autojump_clock: MockClock) -> None:
    event = trio.Event()
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(12)
            event.set()

        nursery.start_soon(later)
        assert await wait_patiently(event, 20.0)
    assert trio.current_time() == 12


async def test_a_time_limit_ends_the_wait(autojump_clock: MockClock) -> None:
    assert not await wait_patiently(trio.Event(), 12.5)
    assert trio.current_time() == 12.5


async def test_time_in_which_this_process_stood_still_does_not_count(mock_clock: MockClock) -> None:
    event = trio.Event()
    results: list[bool] = []

    async def wait() -> None:
        results.append(await wait_patiently(event, 20.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(300)
        await trio.testing.wait_all_tasks_blocked()
        assert not results
        mock_clock.jump(5)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
    assert results == [True]
