"""Whether the disk has room for new work; what is under way goes on below the mark.

If the disk gets full all the same, by others, space that was held back in a file is given up once, so that turns can
end and be recorded. It is held back again when the disk has room.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from roost.actors.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK_SECONDS: Final = 1.0
RETRY_MS: Final = 5_000
MIB: Final = 1024 * 1024
RESERVE: Final = "store.reserve"


def disk_full(message: str = "the daemon's disk is full") -> Overloaded:
    """Return the refusal of what cannot be written now."""
    return Overloaded("DISK_FULL", message, {"retryAfterMs": RETRY_MS})


class Room:
    """The free space beside the database, looked at once a second at most."""

    def __init__(
        self, folder: Path, min_free_mib: int, clock: Callable[[], float], *, reserve_mib: int = 0
    ) -> None:
        self._folder = folder
        self._min_free = min_free_mib * MIB
        self._reserve = folder / RESERVE
        self._reserve_size = reserve_mib * MIB
        self._holds = False
        self._clock = clock
        self._looked_at = float("-inf")
        self._enough = True

    def set_mark(self, min_free_mib: int) -> None:
        """Take nothing new below this mark from now on."""
        self._min_free = min_free_mib * MIB
        self._looked_at = float("-inf")
        self._enough = True

    def check(self) -> None:
        """See that there is room for a new agent, session or message.

        Raises:
            Overloaded: there is not (`DISK_FULL`).
        """
        if not self._min_free and not self._reserve_size:
            return
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            free = shutil.disk_usage(self._folder).free
            self._enough = free >= self._min_free
            if self._reserve_size and not self._holds:
                self._hold(free)
        if not self._enough:
            raise disk_full()

    def hold(self) -> None:
        """Hold space back, if there is enough."""
        if not self._reserve_size:
            self._reserve.unlink(missing_ok=True)
        elif self._has_reserve():
            self._holds = True
        else:
            self._hold(shutil.disk_usage(self._folder).free)

    def release(self) -> bool:
        """Give up the space held back; return whether there was any."""
        self._enough = not self._min_free
        if not self._holds:
            return False
        self._holds = False
        self._reserve.unlink(missing_ok=True)
        return True

    def _has_reserve(self) -> bool:
        try:
            found = self._reserve.stat()
        except OSError:
            return False
        return found.st_blocks * 512 >= self._reserve_size

    def _hold(self, free: int) -> None:
        if free < self._min_free + 2 * self._reserve_size:
            return
        try:
            fd = os.open(
                self._reserve, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                _allocate(fd, self._reserve_size)
            finally:
                os.close(fd)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            return
        self._holds = True


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    piece = bytes(MIB)
    for at in range(0, size, MIB):
        os.pwrite(fd, piece, at)
