"""When a working child is asked for a sign of life and when it counts as hung; pure: the time is an argument."""

from __future__ import annotations

import math
from typing import Literal

Action = Literal["", "ping", "hung"]


class Liveness:
    """The pings of one child. A child without work, or with `hang_timeout` None, is never asked."""

    def __init__(self, hang_timeout: float | None) -> None:
        self.working = False
        self.due = math.inf
        self._timeout = hang_timeout
        self._asked_at: float | None = None

    def set_working(self, working: bool, now: float) -> None:
        """Take what the child said about itself; it is alive at this moment."""
        self.working = working
        self._asked_at = None
        self.due = now + self._timeout / 3 if working and self._timeout is not None else math.inf

    def set_timeout(self, hang_timeout: float | None, now: float) -> None:
        """Take another limit; a wait that is under way begins anew."""
        if hang_timeout != self._timeout:
            self._timeout = hang_timeout
            self.set_working(self.working, now)

    def pong(self) -> None:
        """Take a sign of life."""
        self._asked_at = None

    def silent(self, now: float) -> float:
        """Return for how long a ping has been without an answer."""
        return 0.0 if self._asked_at is None else now - self._asked_at

    def reset(self, now: float) -> None:
        """Begin anew: the time until now does not count."""
        if self.working:
            self.set_working(True, now)

    def act(self, now: float) -> Action:
        """Return what is to be done now, and set `due` to the next moment to ask."""
        if now < self.due or self._timeout is None:
            return ""
        if self._asked_at is None:
            self._asked_at = now
        silence_ends = self._asked_at + self._timeout
        if now >= silence_ends:
            self.due = math.inf
            return "hung"
        self.due = min(now + self._timeout / 3, silence_ends)
        return "ping"
