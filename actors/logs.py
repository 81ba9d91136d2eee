"""The daemon's own log: `logs/daemon.jsonl`, one JSON object a line, shared by root and the services.

Each record is one write to a file opened for appending, cut to 4 KiB, so lines of several processes never mix. Whoever
finds the file too large renames it; the others notice that its inode has changed. No prompt, argument or result is
logged at level info.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE = 4096
MAX_TEXT = 2048

_encode = msgspec.json.Encoder().encode


class JsonLines(logging.Handler):
    """A logging handler that appends to a shared file and rotates it."""

    def __init__(self, path: str | Path, process: str, *, rotate_bytes: int, keep: int) -> None:
        super().__init__()
        self._path = os.fspath(path)
        self._process = process
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._fd = -1
        self._reopen()

    def set_bounds(self, *, rotate_bytes: int, keep: int) -> None:
        """Rotate a file that is larger, and keep so many old ones, from now on."""
        self._rotate_bytes, self._keep = rotate_bytes, keep

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a disk that takes no more loses the line, not the process."""
        try:
            self._follow()
            os.write(self._fd, self._line(record))
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT],
        }
        report: object = getattr(record, "report", None)
        if report is not None:
            entry["report"] = report
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            entry["traceback"] = text[-MAX_TEXT:]
        line = _encode(entry)
        if len(line) >= MAX_LINE:
            entry.pop("report", None)
            entry["message"] = str(entry["message"])[:400]
            entry["traceback"] = str(entry.get("traceback", ""))[-800:]
            line = _encode(entry)
        return line + b"\n"

    def _reopen(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd

    def _follow(self) -> None:
        mine = os.fstat(self._fd)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            self._reopen()
            return
        if there.st_ino != mine.st_ino:
            self._reopen()
        elif mine.st_size >= self._rotate_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """Rename under a lock on the file itself; a second process that waited for it finds the work done."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if os.stat(self._path).st_ino == os.fstat(self._fd).st_ino:
                for number in range(self._keep, 0, -1):
                    older = self._numbered(number)
                    newer = self._numbered(number - 1)
                    if os.path.exists(newer):
                        os.replace(newer, older)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._reopen()

    def _numbered(self, number: int) -> str:
        return self._path if number == 0 else f"{self._path}.{number}"


def open_log(path: str | Path, process: str, *, level: str, rotate_bytes: int, keep: int) -> None:
    """Send this process's logging to the daemon's log, in place of whatever handled it before.

    A plain text as the path spares a forked process the first use of `pathlib`.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.addHandler(JsonLines(path, process, rotate_bytes=rotate_bytes, keep=keep))
    set_levels(level)


def adjust_log(*, level: str, rotate_bytes: int, keep: int) -> None:
    """Change the bounds and the level of this process's log, if it has one."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, JsonLines):
            handler.set_bounds(rotate_bytes=rotate_bytes, keep=keep)
            set_levels(level)


def set_levels(level: str) -> None:
    """Set the level of the log, and a higher one for libraries that would tell of every request."""
    for name, wanted in ((None, level.upper()), ("httpx2", "WARNING"), ("httpcore2", "WARNING")):
        logger = logging.getLogger(name)
        # Setting a level touches every logger there is, and so copies their pages in a forked process.
        if logging.getLevelName(logger.level) != wanted:
            logger.setLevel(wanted)
