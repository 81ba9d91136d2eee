"""Looks at the store's files before they are used, and has what is damaged replaced: no damage keeps the daemon down."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from roost.actors.store.database import APPLICATION_ID, is_corrupt, open_database, read_meta
from roost.actors.store.replacing import resume, suspect
from roost.actors.store.rescue import lacking, read_wal, rescue
from roost.actors.store.stamp import was_used
from roost.supervisor.errors import StartError, StartRefused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECK_SECONDS: Final = 1.0
STEPS: Final = 5_000
LOOK: Final = "wal-look"
MAX_FRAME: Final = slice(16, 20)
SMALL: Final = ("sessions", "counters", "agents", "turns", "pending", "messages")
MAGIC: Final = b"SQLite format 3\0"
HEADER: Final = 100
FEW_BITS: Final = 4
MAX_RESCUES: Final = 2

_log = logging.getLogger(__name__)


def make_sound(path: Path, *, wal_autocheckpoint: int, cold: bool) -> None:
    """See that the database at `path` can be opened and used; what is damaged is replaced, by an empty one at worst.

    Takes its time: call it from a thread. A cold start after a crash has SQLite check the file, for a second at most.

    Raises:
        StartRefused: the file is another program's, or a newer version's.
        StartError: the disk does not let it be opened now.
        OSError, sqlite3.Error: it does not let a damaged one be replaced.
    """
    resume(path)
    for attempt in range(MAX_RESCUES + 1):
        reason = find_damage(path)
        if not reason and cold:
            reason = _try_to_open(path, wal_autocheckpoint, check=not attempt)
        if not reason or attempt == MAX_RESCUES:
            return
        rescue(path, reason, anew=attempt > 0)


def find_damage(path: Path) -> str:
    """Return what is wrong with the files that SQLite would not say, or nothing."""
    if suspect(path).exists():
        return "a damaged page was met while it ran"
    wal = path.with_name(path.name + "-wal")
    logged = wal.exists() and wal.stat().st_size > 0
    if not path.exists() or not path.stat().st_size:
        gone = "empty" if path.exists() else "missing"
        if logged and read_wal(path).frames:
            return f"the database is {gone}, but its log is not"
        return f"the database is {gone}, but was used before" if was_used(path) else ""
    with path.open("rb") as file:
        head = file.read(HEADER)
    if head[:16] != MAGIC:
        return "the first page is not a database's"
    if wrong := _header_damage(head):
        return wrong
    if logged:
        found = read_wal(path, trusted=trusted_frames(path))
        if found.damaged:
            frames = ", ".join(map(str, found.bad[:8]))
            where = f"frames {frames}" if frames else "its header"
            return f"the write-ahead log is damaged ({where})"
    else:
        found = read_wal(path)
    missing = lacking(path, found)
    return f"the write-ahead log lacks {missing} committed frames at its end" if missing else ""


def trusted_frames(path: Path) -> int:
    """Return how many frames of the log SQLite itself takes: it is quick, and only what it leaves need be looked at."""
    folder = path.parent / LOOK
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
        name = folder / "look.db"
        name.write_bytes(bytes(4096))
        wal = path.with_name(path.name + "-wal")
        try:
            os.link(wal, folder / "look.db-wal")
        except OSError:
            shutil.copyfile(wal, folder / "look.db-wal")
        connection = sqlite3.connect(f"{name.as_uri()}?mode=ro", uri=True)
        try:
            with suppress(sqlite3.Error):
                connection.execute("select count(*) from sqlite_master").fetchone()
            index = (folder / "look.db-shm").read_bytes()[:48]
        finally:
            connection.close()
        return int.from_bytes(index[MAX_FRAME], "little" if index[0] else "big")
    except (OSError, sqlite3.Error):
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try_to_open(path: Path, wal_autocheckpoint: int, *, check: bool) -> str:
    """Return what SQLite finds wrong when the file is opened, or nothing."""
    if reason := _disagreement(path):
        return reason
    try:
        connection = open_database(path, wal_autocheckpoint=wal_autocheckpoint)
    except (StartRefused, StartError) as error:
        if _says_damage(error.__cause__):
            return str(error.__cause__)
        raise
    try:
        if check and read_meta(connection, "clean") != "1":
            return check_quickly(connection)
    except sqlite3.Error as error:
        if _says_damage(error):
            return str(error)
        raise
    finally:
        connection.close()
    return ""


def _says_damage(error: BaseException | None) -> bool:
    """Return whether an error comes from the file: its pages, or a schema that is not the one that was made."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return error is not None and (is_corrupt(error) or code == sqlite3.SQLITE_ERROR)


def _disagreement(path: Path) -> str:
    """Return which number in the header is not the one that the file's own rows tell, or nothing."""
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)
    except sqlite3.Error:
        return ""
    try:
        version = connection.execute("pragma user_version").fetchone()[0]
        identity = connection.execute("pragma application_id").fetchone()[0]
        said = read_meta(connection, "format")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error) if _is_ours(path) and _says_damage(error) else ""
    finally:
        connection.close()
    if said and str(version) != said:
        return f"its header says format {version}, its rows {said}"
    return "its header has another program's number" if said and identity != APPLICATION_ID else ""


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(HEADER)
    number = int.from_bytes(head[68:72], "big")
    return (number ^ APPLICATION_ID).bit_count() <= FEW_BITS


def _header_damage(head: bytes) -> str:
    """Return what in the header is never so in a file of ours, or nothing."""
    number = int.from_bytes(head[68:72], "big")
    if (number ^ APPLICATION_ID).bit_count() > FEW_BITS:
        return ""
    expected = {16: b"\x10\x00", 20: b"\x00\x40\x20\x20", 59: b"\x01", 68: head[68:72]}
    right = all(head[at : at + len(value)] == value for at, value in expected.items())
    if right and head[18] in {1, 2} and head[19] in {1, 2} and number == APPLICATION_ID:
        return ""
    return "the header of the first page is damaged"


def check_quickly(connection: sqlite3.Connection, seconds: float = CHECK_SECONDS) -> str:
    """Return what SQLite finds wrong with the file within a time, or nothing; the rest is checked while it is used."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        for pragma in _checks(connection):
            first = connection.execute(pragma).fetchone()
            if first is not None and first[0] != "ok":
                return str(first[0]).replace("\n", "; ")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        _log.info("the check of the store goes on while it is used")
    finally:
        connection.set_progress_handler(None, 0)
    return ""


def _checks(connection: sqlite3.Connection) -> Iterator[str]:
    names = {row[0] for row in connection.execute("select name from sqlite_master")}
    for name in SMALL:
        if name in names:
            yield f"pragma integrity_check({name})"
    yield "pragma quick_check(1)"
    yield "pragma integrity_check(1)"
