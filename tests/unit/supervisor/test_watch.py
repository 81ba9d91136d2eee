from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from roost.supervisor.liveness import Liveness
from roost.supervisor.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path


class Fake:
    """A process as the watch sees it; its memory is that of this process."""

    def __init__(
        self, *, hang_timeout: float | None = 30.0, memory_limit: int | None = None
    ) -> None:
        self.liveness = Liveness(hang_timeout)
        self.memory_limit = memory_limit
        self.pid = os.getpid()
        self.log_path: Path | None = None
        self.answers = True
        self.pings: list[float] = []
        self.aborted: list[tuple[float, str]] = []

    def ping(self) -> None:
        self.pings.append(trio.current_time())
        if self.answers:
            self.liveness.pong()

    def abort(self, reason: str) -> None:
        self.aborted.append((trio.current_time(), reason.partition(":")[0]))


def work(watch: Watch, process: Fake, working: bool = True) -> None:
    process.liveness.set_working(working, trio.current_time())
    watch.touch(process)


async def test_only_a_working_process_is_asked(autojump_clock: MockClock) -> None:
    watch, idle, busy = Watch(), Fake(), Fake()
    watch.add(idle)
    watch.add(busy)
    with trio.move_on_after(35):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            work(watch, busy)
    assert busy.pings == [10, 20, 30]
    assert not idle.pings


async def test_a_process_that_hangs_is_aborted_once(autojump_clock: MockClock) -> None:
    watch, process = Watch(), Fake()
    process.answers = False
    watch.add(process)
    with trio.move_on_after(500):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            work(watch, process)
    assert process.aborted == [(40, "hung")]


async def test_memory_is_read_often_with_work_and_seldom_without(
    autojump_clock: MockClock,
) -> None:
    watch, idle, busy = Watch(), Fake(memory_limit=1), Fake(memory_limit=1)
    with trio.move_on_after(61):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            watch.add(idle)
            watch.add(busy)
            work(watch, busy)
    assert idle.aborted == [(60, "memory")]
    assert busy.aborted[0] == (5, "memory")


async def test_a_process_taken_from_the_watch_is_left_alone(autojump_clock: MockClock) -> None:
    watch, process = Watch(), Fake(memory_limit=1)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            watch.add(process)
            work(watch, process)
            watch.remove(process)
            watch.touch(process)
    assert not process.pings
    assert not process.aborted


async def test_time_in_which_root_stood_still_hangs_nobody(mock_clock: MockClock) -> None:
    watch, process = Watch(), Fake()
    process.answers = False
    watch.add(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        work(watch, process)
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert process.pings == [10]
        mock_clock.jump(1000)
        await wait_all_tasks_blocked()
        assert not process.aborted
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert process.pings == [10, 1020]
        nursery.cancel_scope.cancel()
