"""The delay before the next start of a child that has ended; pure: chance is an argument."""

from __future__ import annotations

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """At once after a long life; then `first` seconds, doubled with each restart up to `longest`.

    A delay is shortened by up to the share `jitter`, so that children which crashed together do not start together.
    """

    long_life: float = 10.0
    first: float = 0.1
    longest: float = 5.0
    jitter: float = 0.25

    def delay(self, restarts: int, lived: float, chance: float) -> float:
        """Return the seconds to wait.

        Args:
            restarts: how many restarts of this child lie within the window already.
            lived: the seconds between its last start and its end.
            chance: a number from 0 up to 1 that picks the point within the jitter.
        """
        if restarts == 0 and lived >= self.long_life:
            return 0.0
        doublings = min(max(restarts - 1, 0), 64)
        return min(self.first * 2.0**doublings, self.longest) * (1.0 - self.jitter * chance)
