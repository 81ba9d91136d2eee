"""How many restarts a supervisor, or one child, may have inside a sliding window; the time is an argument."""

from __future__ import annotations

from collections import deque

import msgspec

from roost.supervisor.errors import SpecError


class Intensity(msgspec.Struct, frozen=True):
    """At most `max_restarts` restarts within `period` seconds."""

    max_restarts: int = 10
    period: float = 60.0

    def __post_init__(self) -> None:
        if self.max_restarts < 0 or not self.period > 0:
            raise SpecError("an intensity needs max_restarts of at least 0 and a period above 0")


class Window:
    """The restarts of the last `period` seconds; holds at most one more than are allowed."""

    def __init__(self, intensity: Intensity) -> None:
        self._intensity = intensity
        self._times: deque[float] = deque(maxlen=intensity.max_restarts + 1)

    def count(self, now: float) -> int:
        """Return how many restarts lie within the window that ends now."""
        self._forget(now)
        return len(self._times)

    def add(self, now: float) -> bool:
        """Count a restart; return whether it is still within what is allowed."""
        self._forget(now)
        self._times.append(now)
        return len(self._times) <= self._intensity.max_restarts

    def clear(self) -> None:
        """Forget all restarts."""
        self._times.clear()

    def _forget(self, now: float) -> None:
        oldest = now - self._intensity.period
        while self._times and self._times[0] <= oldest:
            self._times.popleft()
