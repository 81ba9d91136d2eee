"""One structured record for each start, ready, exit, restart and give-up of a child, and a file of such records."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from roost.schemas.base import iso_time

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE = 4096
MAX_TEXT = 1024


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a child.

    `how` says how it ended: by itself without an error, because it was asked to, or in a crash. `delay` is the wait
    before a restart, `lived` how long it had lived, both in seconds.
    """

    event: Literal["start", "ready", "exit", "restart", "give_up"]
    child_id: str
    parent: str
    generation: int
    kind: str = ""
    pid: int = 0
    how: Literal["", "normal", "shutdown", "crash"] = ""
    reason: str = ""
    lived: float = 0.0
    delay: float = 0.0
    last_words: str = ""


class ReportFile:
    """Appends reports to a file, one JSON object a line, each in one write, so that writers do not mix."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __call__(self, report: Report) -> None:
        """Write one report; a disk that is full or gone loses it, and nothing else."""
        try:
            os.write(self._fd, encode_line(report, time.time_ns() // 1_000_000))
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def encode_line(report: Report, now_ms: int) -> bytes:
    """Return the report as one line of at most `MAX_LINE` bytes; long texts lose their beginning."""
    limit = MAX_TEXT
    while True:
        short = msgspec.structs.replace(
            report, reason=_end(report.reason, limit), last_words=_end(report.last_words, limit)
        )
        fields: dict[str, object] = msgspec.to_builtins(short)
        record = {"time": iso_time(now_ms), "topic": "supervisor", **fields}
        line = msgspec.json.encode(record) + b"\n"
        if len(line) <= MAX_LINE or not limit:
            return line
        limit //= 2


def _end(text: str, limit: int) -> str:
    return text[-limit:] if limit else ""
