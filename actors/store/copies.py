"""Whole copies of a store: made of one that may be in use, checked, and made ready to be started from."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from roost.actors.store.database import APPLICATION_ID, COUNTERS, MIGRATIONS, write_meta
from roost.actors.store.snapshot import NotReadable

if TYPE_CHECKING:
    from pathlib import Path

    from roost.actors.store.snapshot import Snapshot

ALL_PAGES = -1


class Holds(NamedTuple):
    """What a copy holds."""

    sessions: int
    events: int
    bytes: int


def copy_store(snapshot: Snapshot, target: Path) -> Holds:
    """Copy a store into an existing empty file, in one step: the state of one moment, however much is written meanwhile.

    Raises:
        NotReadable: the store, or the copy, is not whole.
    """
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            snapshot.db.backup(copy, pages=ALL_PAGES)
            return prepare_copy(copy, target)
    except sqlite3.Error as error:
        raise NotReadable(f"the store cannot be copied: {error}") from error


def prepare_copy(copy: sqlite3.Connection, target: Path) -> Holds:
    """Check a copy and renew its epoch, so that cursors into what came after it are void; it is one file then.

    Raises:
        NotReadable: it is no store of this version, or not whole.
    """
    identity = copy.execute("pragma application_id").fetchone()[0]
    version = copy.execute("pragma user_version").fetchone()[0]
    if identity != APPLICATION_ID or not 0 < version <= len(MIGRATIONS):
        raise NotReadable("it is no store of this version of the daemon")
    copy.execute("pragma journal_mode = delete")
    copy.execute("pragma synchronous = full")
    found = str(copy.execute("pragma quick_check(1)").fetchone()[0])
    if found != "ok":
        raise NotReadable(f"it is damaged: {found}")
    copy.execute("begin immediate")
    write_meta(copy, "epoch", secrets.token_hex(8))
    write_meta(copy, "clean", "1")
    copy.execute("commit")
    counted = "sessions join counters on session = key" if version >= COUNTERS else "sessions"
    sessions, events = copy.execute(
        f"select count(*), coalesce(sum(last_sequence - first_sequence + 1), 0) from {counted}"
        " where state not in ('importing', 'purging')"
    ).fetchone()
    return Holds(sessions, events, os.stat(target).st_size)
