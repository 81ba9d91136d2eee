"""Time stamps as clients see them, without formatting the same second twice."""

from __future__ import annotations

import time

from roost.schemas.base import iso_time

_second = -1
_prefix = ""


def stamp(milliseconds: int) -> str:
    """Return what `iso_time` returns; cheaper for stamps of one second in a row."""
    global _second, _prefix
    second = milliseconds // 1000
    if second != _second:
        _prefix = iso_time(milliseconds)[:-4]
        _second = second
    return f"{_prefix}{milliseconds % 1000:03d}Z"


def stamp_or_nothing(milliseconds: int) -> str:
    """Return the stamp, or an empty text for 0."""
    return iso_time(milliseconds) if milliseconds else ""


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000
