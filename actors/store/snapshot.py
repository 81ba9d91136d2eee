"""Reading a store from another process, whether or not a daemon runs, without holding it up or changing it.

Every page is a read transaction of its own: one that lasted as long as its reader would keep the write-ahead log from being
folded into the file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import quote

import msgspec

from roost.actors.store.bounds import Counters, counted
from roost.actors.store.database import APPLICATION_ID, COUNTERS, EVENT_BYTES, MIGRATIONS
from roost.actors.store.remains import HIDDEN
from roost.actors.store.sealing import is_sealed
from roost.schemas.session import SessionSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE_EVENTS: Final = 1_000
PAGE_BYTES: Final = 2 * 1024 * 1024
PAGE_SESSIONS: Final = 500
BUSY_SECONDS: Final = 10.0

_ROW = "select key, session_id, agent_id, spec, state, first_sequence, "
_FIRST = _ROW + "last_sequence, last_sequence, 0 from sessions"
_OLDER = _ROW + "last_sequence, removed, bytes from sessions"
_NOW = (
    _ROW
    + """coalesce(last_sequence, 0), removed, coalesce(bytes, 0)
    from sessions left join counters on session = key"""
)
_SESSIONS = " where key > ? and state not in ('importing', 'purging') order by key limit ?"
_SESSION = " where session_id = ?"
_PAGE = """select sequence, body, crc from events where session = ? and sequence > ? and sequence <= ?
    order by sequence limit ?"""

_session_spec = msgspec.msgpack.Decoder(SessionSpec).decode


class NotReadable(Exception):
    """The store cannot be read; the text is for people."""


class Gone(Exception):
    """Retention has removed events before they were read; `upto` is the last of them."""

    def __init__(self, session_id: str, upto: int) -> None:
        super().__init__(f"session {session_id}: events up to {upto} have been removed meanwhile")
        self.upto = upto


class Broken(Exception):
    """An event has changed on the disk."""

    def __init__(self, session_id: str, sequence: int, why: str) -> None:
        super().__init__(f"session {session_id}: event {sequence} is damaged ({why})")
        self.session_id = session_id
        self.sequence = sequence


class LoggedSession(NamedTuple):
    """A session as its row says, with all of its events that are to be seen."""

    key: int
    session_id: str
    agent_id: str
    ephemeral: bool
    state: str
    first_sequence: int
    last_sequence: int


class Snapshot:
    """A read-only connection to a store; close it, or use it as a context."""

    def __init__(self, path: Path) -> None:
        """Open the store at `path`.

        Raises:
            NotReadable: there is none, or it is no store that this version knows.
        """
        if not path.exists():
            raise NotReadable(f"there is no store at {path}")
        uri = f"file:{quote(os.fspath(path.absolute()))}?mode=ro"
        try:
            self.db = sqlite3.connect(
                uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self.db.execute("pragma query_only = on")
            identity = int(self.db.execute("pragma application_id").fetchone()[0])
            self.version = int(self.db.execute("pragma user_version").fetchone()[0])
        except sqlite3.Error as error:
            raise NotReadable(f"{path} cannot be read: {error}") from error
        if identity != APPLICATION_ID or not self.version:
            self.db.close()
            raise NotReadable(f"{path} is no store of this daemon")
        if self.version > len(MIGRATIONS):
            self.db.close()
            raise NotReadable(f"{path} was written by a newer version of the daemon")
        # The first format removes nothing: whatever is there is to be seen.
        self._row = _NOW if self.version >= COUNTERS else _FIRST if self.version == 1 else _OLDER

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection up."""
        self.db.close()

    def sessions(self) -> Iterator[LoggedSession]:
        """Yield every session, in the order in which they were made."""
        after = 0
        sql = self._row + _SESSIONS
        while rows := self.db.execute(sql, (after, PAGE_SESSIONS)).fetchall():
            for row in rows:
                yield _session(self.db, row)
            after = rows[-1][0]

    def session(self, session_id: str) -> LoggedSession | None:
        """Return one session, or None."""
        if session_id.startswith(HIDDEN):
            return None
        row = self.db.execute(self._row + _SESSION, (session_id,)).fetchone()
        return None if row is None else _session(self.db, row)

    def page(
        self, session: LoggedSession, after: int, upto: int = 2**62
    ) -> list[tuple[int, bytes]]:
        """Return the next events as (sequence, body without it), fewer than there are if they are large.

        Raises:
            Gone: retention has removed the next ones.
            Broken: the next one has changed on the disk; those before it have been returned.
            sqlite3.Error: the file cannot be read.
        """
        found: list[tuple[int, bytes]] = []
        size, expected = 0, after + 1
        cursor = self.db.execute(_PAGE, (session.key, after, upto, PAGE_EVENTS))
        with closing(cursor):
            for sequence, body, crc in cursor:
                if sequence != expected or not is_sealed(session.key, sequence, body, crc):
                    if found:
                        return found
                    self._explain(session, expected, sequence)
                found.append((sequence, body))
                expected += 1
                size += len(body)
                if size > PAGE_BYTES:
                    break
        if not found and expected <= min(upto, session.last_sequence):
            self._explain(session, expected, 0)
        return found

    def events(self, session: LoggedSession, after: int, upto: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events with `after` < sequence ≤ `upto`; raises as `page` does."""
        while after < upto and (rows := self.page(session, after, upto)):
            yield from rows
            after = rows[-1][0]

    def size(self, session: LoggedSession) -> int:
        """Return what the events of a session take in the file."""
        if self.version == 1:
            sql = "select coalesce(sum(length(body) + ?), 0) from events where session = ?"
            row = self.db.execute(sql, (EVENT_BYTES, session.key)).fetchone()
        else:
            row = self.db.execute(self._row + " where key = ?", (session.key,)).fetchone()
        return 0 if row is None else int(row[-1])

    def _explain(self, session: LoggedSession, expected: int, got: int) -> None:
        row = self.session(session.session_id)
        if row is None or row.first_sequence > expected:
            upto = session.last_sequence if row is None else row.first_sequence - 1
            raise Gone(session.session_id, upto)
        why = "its checksum is wrong" if got == expected else "it is missing"
        raise Broken(session.session_id, expected, why)


def stored_line(sequence: int, body: bytes) -> bytes:
    """Return an event in its stored form, as one line."""
    return b'%b,"sequence":%d}\n' % (body[:-1], sequence)


def _session(
    connection: sqlite3.Connection, row: tuple[int, str, str, bytes, str, int, int, int, int]
) -> LoggedSession:
    key, session_id, agent_id, spec, state = row[:5]
    counters = counted(connection, Counters(key, session_id, state, *row[5:]))
    first, last = counters.first_sequence, counters.last_sequence
    try:
        ephemeral = _session_spec(spec).ephemeral
    except msgspec.MsgspecError:
        ephemeral = False  # what can be read of a damaged store is worth more
    return LoggedSession(key, session_id, agent_id, ephemeral, state, first, last)
