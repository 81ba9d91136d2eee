"""Callbacks at a later time, all in one task that sleeps until the earliest; idle when there is none."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """One callback; `cancel` makes it do nothing."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback; a timer that has fired is left alone."""
        self.callback = None


class Timers:
    """The timers of one process."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._changed = trio.Event()

    @property
    def armed(self) -> int:
        """How many callbacks are still to come."""
        return sum(timer.callback is not None for _, _, timer in self._heap)

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in so many seconds."""
        timer = Timer(trio.current_time() + seconds, callback)
        heapq.heappush(self._heap, (timer.deadline, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self._changed.set()
        return timer

    def now(self) -> float:
        """Return the time that deadlines are measured by."""
        return trio.current_time()

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            self._fire()
            self._changed = trio.Event()
            deadline = self._heap[0][0] if self._heap else float("inf")
            with trio.move_on_at(deadline):
                await self._changed.wait()

    def _fire(self) -> None:
        now = trio.current_time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].callback is None):
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
