"""Opens directories however long their paths are: the kernel takes 4,096 bytes at once, and each part of them costs.

What is opened last and some directories above it stay open, so that a walk opens each directory by its name alone.
"""

from __future__ import annotations

import os

STEP = 1_000
"""Bytes of a path that are opened at once, and so between two directories that stay open."""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Opener:
    """Directories that are open, each one inside the one before it; the last is the one opened last."""

    def __init__(self) -> None:
        self._open: list[tuple[bytes, int]] = []

    def open(self, path: str) -> int:
        """Return a descriptor of a directory (an absolute path), which stays this object's.

        Raises:
            OSError: it cannot be opened.
        """
        wanted = os.fsencode(path).rstrip(b"/")
        self._keep_above(wanted)
        if not self._open:
            self._open.append((b"", os.open("/", _FLAGS)))
        while (at := len(self._open[-1][0])) < len(wanted):
            handle = self._open[-1][1]
            end = len(wanted)
            if end - at > STEP:
                end = wanted.rfind(b"/", at + 1, at + STEP)
                end = end if end > at else len(wanted)
            inner = os.open(wanted[at + 1 : end], _FLAGS, dir_fd=handle)
            if len(self._open) > 1 and end - len(self._open[-2][0]) <= STEP:
                os.close(handle)
                self._open.pop()
            self._open.append((wanted[:end], inner))
        return self._open[-1][1]

    def close(self) -> None:
        """Close everything."""
        while self._open:
            os.close(self._open.pop()[1])

    def _keep_above(self, wanted: bytes) -> None:
        """Close what is neither the wanted directory nor above it."""
        while self._open:
            path, handle = self._open[-1]
            if wanted == path or wanted.startswith(path + b"/"):
                return
            os.close(handle)
            self._open.pop()
