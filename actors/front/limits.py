"""How many requests a second a connection may make; the time is an argument."""

from __future__ import annotations

import math

# So that a token is there after the time in which it comes, however that is rounded.
ROUNDING = 1e-6


class TokenBucket:
    """Starts full, is refilled continuously; a request costs one token."""

    def __init__(self, rate: int, burst: int, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token and return whether there was one."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1 - ROUNDING:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    @property
    def retry_after_ms(self) -> int:
        """The time in which one token comes."""
        return math.ceil(1000 / self.rate)


def make_bucket(rate: int, burst: int, now: float) -> TokenBucket | None:
    """Return a bucket, or None for a rate of 0, which is no limit."""
    return TokenBucket(rate, max(burst, 1), now) if rate else None
