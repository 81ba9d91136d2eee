"""What may be wrong with the files of a home: who may use them, and whether the store's is a database."""

from __future__ import annotations

import os
import stat
import time
import tomllib
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from roost.actors.store.rescue import LOSS
from roost.config.files import lock_is_held
from roost.config.paths import FILE_MODE, FOLDER_MODE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roost.config.paths import Home

Level = Literal["ok", "note", "problem"]

CHECK_SECONDS = 3.0
STEPS_BETWEEN_LOOKS = 10_000
DATABASE = b"SQLite format 3\0"
MOVE = "put a backup in its place, or move it away: without it the daemon begins anew, and knows no agent"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; `advice` says what to do, if anything."""

    level: Level
    what: str
    text: str
    advice: str = ""


def look_at_modes(home: Home) -> Iterator[Finding]:
    """Look for files that others may read or write."""
    folders = [home.path, home.logs, home.agent_logs, home.workspaces]
    files = [home.cookie, home.daemon_file, home.pid_file, home.lock, home.store, home.socket]
    for path, wanted in [(p, FOLDER_MODE) for p in folders] + [(p, FILE_MODE) for p in files]:
        try:
            found = path.lstat()
        except OSError:
            continue
        # A link has no mode of its own: to change it would change what the link leads to.
        if stat.S_ISLNK(found.st_mode):
            text = f"{path} is a link"
            yield Finding("problem", "modes", text, "remove the link; what it leads to may stay")
        elif found.st_uid != os.getuid():
            text = f"{path} belongs to user {found.st_uid}"
            yield Finding("problem", "modes", text, "move it away")
        elif stat.S_IMODE(found.st_mode) & ~wanted:
            text = f"{path} has mode {stat.S_IMODE(found.st_mode):04o}; others may use it"
            yield Finding("problem", "modes", text, f"chmod {wanted:o} {path}")


def look_at_key(home: Home) -> Iterator[Finding]:
    """Look whether a configuration that holds a key is for its owner alone; it may be a link."""
    try:
        mode = stat.S_IMODE(home.config.stat().st_mode)
        tables = tomllib.loads(home.config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # One that cannot be read is a finding of its own.
        return
    if mode & ~FILE_MODE and _holds_key(tables.get("providers")):
        text = f"{home.config} holds a key and has mode {mode:04o}"
        advice = f"chmod {FILE_MODE:o} {home.config.resolve()}, or name a variable with key_env"
        yield Finding("problem", "config", text, advice)


def _holds_key(providers: object) -> bool:
    if not isinstance(providers, dict):
        return False
    return any(
        isinstance(table, dict) and bool(cast("dict[str, object]", table).get("key"))
        for table in cast("dict[str, object]", providers).values()
    )


def look_at_store(home: Home) -> Iterator[Finding]:
    """Look whether the store's file is a database, and, while no daemon uses it, whether it is a whole one."""
    try:
        mode = home.store.lstat().st_mode
        if stat.S_ISLNK(mode):
            return
        if not stat.S_ISREG(mode):
            yield Finding("problem", "store", f"{home.store} is no regular file", MOVE)
            return
        with home.store.open("rb") as file:
            head = file.read(len(DATABASE))
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding("problem", "store", f"cannot read {home.store}: {error.strerror}", MOVE)
        return
    wrong = ""
    if head and head != DATABASE:
        wrong = "it is no database"
    elif head and not lock_is_held(home) and not _has_journal(home.store):
        wrong = _damage(home.store)
    if wrong:
        yield Finding("problem", "store", f"{home.store}: {wrong}", MOVE)
    yield from _look_at_rescues(home)


def _look_at_rescues(home: Home) -> Iterator[Finding]:
    """Tell of the copies of damaged files that the store has set aside."""
    folder = home.store.parent / "damaged"
    reports = [entry / "report.txt" for entry in folder.glob("*")]
    found = sorted(
        (path for path in reports if path.is_file()), key=lambda path: path.stat().st_mtime
    )
    if found:
        advice = f"read it; when it is of no more use, delete {folder}"
        if LOSS in found[-1].read_text(errors="replace").splitlines()[:2]:
            text = f"the store was damaged, and something of it is lost: {found[-1]}"
            yield Finding("problem", "store", text, advice)
        else:
            text = f"the store was damaged once, and nothing of it is lost: {found[-1]}"
            yield Finding("note", "store", text, advice)


def _has_journal(path: Path) -> bool:
    """Return whether a part of the database is outside of its file, which then says little alone."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def _damage(path: Path) -> str:
    """Return the first thing that is wrong in a database; a look that takes too long finds nothing."""
    # Every command loads this file, and few look at a database.
    import sqlite3

    end = time.monotonic() + CHECK_SECONDS
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        return str(error)
    try:
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    finally:
        connection.close()
    return "" if found == "ok" else "it is damaged: " + found.replace("\n", "; ")
