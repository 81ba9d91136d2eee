"""The file of a child's standard output and error: opened, cut when it grows, its tail read as last words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 16 * 1024 * 1024
KEPT = 2
LAST_WORDS = 2048


def open_log(path: Path | None) -> int:
    """Return a descriptor that appends to the file, or one of this process's own standard error for None."""
    if path is None:
        return os.dup(2)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def log_size(path: Path | None) -> int:
    """Return the size of the file, 0 if there is none."""
    try:
        return path.stat().st_size if path is not None else 0
    except OSError:
        return 0


def last_words(path: Path | None, since: int) -> str:
    """Return the end of what was written to the file after its first `since` bytes."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = since if since <= size else 0
            file.seek(max(start, size - LAST_WORDS))
            return file.read(LAST_WORDS).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def rotate(path: Path | None, limit: int = MAX_BYTES) -> bool:
    """Move a file that is too large to `<name>.1`, older ones on by one; return whether it was.

    Who writes to it goes on: the file is copied and cut, not renamed, and a writer that appends starts again at 0.
    What is written between the copy and the cut is lost.
    """
    if path is None or log_size(path) <= limit:
        return False
    try:
        for number in range(KEPT, 1, -1):
            older = path.with_name(f"{path.name}.{number - 1}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number}"))
        copy = path.with_name(f"{path.name}.1")
        with path.open("rb") as source, open(os.open(copy, _COPY_FLAGS, 0o600), "wb") as target:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - limit))
            target.write(source.read(limit))
        os.truncate(path, 0)
    except OSError:
        return False
    return True


_COPY_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
