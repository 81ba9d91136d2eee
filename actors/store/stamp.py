"""A count kept in the file and beside it: a file that is behind is an older copy that was put back.

What was acknowledged after the copy was made is gone then, and its sequences are given again, so cursors into it must
be void: the epoch is renewed. A copy that is put back after a crash of the very run in which it was made is not seen.
"""

from __future__ import annotations

import logging
import os
import secrets
from typing import TYPE_CHECKING, Final

from roost.actors.store.database import read_meta, write_meta

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

OPENED: Final = "opened"

_log = logging.getLogger(__name__)


def stamp(connection: sqlite3.Connection, path: Path) -> bool:
    """Count one more opening or closing of the database at `path`; return whether it is an older copy of itself."""
    beside = _beside(path)
    count = _number(read_meta(connection, OPENED))
    epoch = read_meta(connection, "epoch")
    known_epoch, known = _read(beside)
    older = known_epoch == epoch and known > count
    if older:
        epoch = secrets.token_hex(8)
        write_meta(connection, "epoch", epoch)
        _log.error("%s is an older copy: what was written after it was made is lost", path)
    count = max(count, known if older else 0) + 1
    write_meta(connection, OPENED, str(count))
    _write(beside, f"{epoch} {count}\n")
    return older


def was_used(path: Path) -> bool:
    """Return whether there has been a store at `path` before, going by the count beside it."""
    return _read(_beside(path))[1] > 0


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".stamp")


def _read(beside: Path) -> tuple[str, int]:
    try:
        epoch, _, count = beside.read_text().strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return "", 0
    return epoch, _number(count)


def _write(beside: Path, text: str) -> None:
    fresh = beside.with_name(beside.name + ".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
        fresh.replace(beside)
    except OSError as error:
        # Without it an older copy is not seen; nothing else depends on it.
        _log.warning("%s cannot be written: %s", beside, error)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0
