"""A clock that can stand still, for time limits that do not always run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Seconds that have counted. It runs from the start."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._counted = 0.0
        self._since: float | None = time()
        self._changed = trio.Event()

    def now(self) -> float:
        """Return how many seconds have counted."""
        return self._counted + (0.0 if self._since is None else self._time() - self._since)

    def run(self, runs: bool) -> None:
        """Go on, or stand still."""
        if runs is (self._since is not None):
            return
        self._counted = self.now()
        self._since = self._time() if runs else None
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, at: float) -> None:
        """Wait until so many seconds have counted."""
        while (left := at - self.now()) > 0:
            with trio.move_on_after(math.inf if self._since is None else left):
                await self._changed.wait()
