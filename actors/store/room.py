"""Whether the disk has room for new work; what is under way goes on below the mark."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from roost.actors.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK_SECONDS: Final = 1.0
RETRY_MS: Final = 5_000
MIB: Final = 1024 * 1024


def disk_full(message: str = "the daemon's disk is full") -> Overloaded:
    """Return the refusal of what cannot be written now."""
    return Overloaded("DISK_FULL", message, {"retryAfterMs": RETRY_MS})


class Room:
    """The free space beside the database, looked at once a second at most."""

    def __init__(self, folder: Path, min_free_mib: int, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._min_free = min_free_mib * MIB
        self._clock = clock
        self._looked_at = float("-inf")
        self._enough = True

    def check(self) -> None:
        """See that there is room for a new agent, session or message.

        Raises:
            Overloaded: there is not (`DISK_FULL`).
        """
        if not self._min_free:
            return
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._enough = shutil.disk_usage(self._folder).free >= self._min_free
        if not self._enough:
            raise disk_full()
