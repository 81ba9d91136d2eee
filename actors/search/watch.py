"""inotify: the kernel notes which directories change, and is asked when somebody searches; nothing runs meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY = 0x01000000
_MASK = ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | _ONLY_DIRECTORY
_HEADER = struct.Struct("iIII")
_READ_BYTES = 256 * 1024


class NoWatches(Exception):
    """The system or the settings allow no further watch."""


class Allowance:
    """How many watches all watchers together may have."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take one; return False if there is none left."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            return True

    def give_back(self, count: int) -> None:
        """Give some back."""
        with self._lock:
            self._left += count


class Event:
    """Something that happened in a watched directory: its watch, what, and to which entry."""

    __slots__ = ("mask", "name", "watch")

    def __init__(self, watch: int, mask: int, name: str) -> None:
        self.watch = watch
        self.mask = mask
        self.name = name


class Watcher:
    """The watches of one root."""

    def __init__(self, allowance: Allowance) -> None:
        """Open an inotify instance.

        Raises:
            NoWatches: there is none on this system, or no further one.
        """
        self._allowance = allowance
        self._watches: set[int] = set()
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            raise NoWatches from None
        if self._fd < 0:
            raise NoWatches

    def add(self, path: str) -> int:
        """Watch a directory and return the number of the watch; -1 if it cannot be read.

        Raises:
            NoWatches: there are no further watches.
        """
        if not self._allowance.take():
            raise NoWatches
        watch: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _MASK)
        if watch < 0 or watch in self._watches:
            self._allowance.give_back(1)
        else:
            self._watches.add(watch)
        if watch < 0 and ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM):
            raise NoWatches
        return watch

    def remove(self, watch: int) -> None:
        """Stop watching a directory."""
        if watch in self._watches:
            self._libc.inotify_rm_watch(self._fd, watch)
            self._forget(watch)

    def read(self) -> list[Event]:
        """Return what has happened since the last call."""
        events: list[Event] = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, _READ_BYTES):
                events += _parse(data)
        for event in events:
            if event.mask & IGNORED:
                self._forget(event.watch)
        return events

    def close(self) -> None:
        """End all watches."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._allowance.give_back(len(self._watches))
            self._watches.clear()

    def _forget(self, watch: int) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
            self._allowance.give_back(1)


def _parse(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        yield Event(watch, mask, name)
