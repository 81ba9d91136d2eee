"""Pages of the log: every event is proved when it is read, and what is missing between two events is damage too."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from roost.actors.store.sealing import is_sealed

# How many sequences one by one are tried behind a place that SQLite cannot read.
MAX_TRIES: Final = 1_024

_PAGE: Final = """select sequence, turn_id, body, crc from events
    where session = ? and sequence > ? and sequence <= ? order by sequence limit ?"""
_ONE: Final = "select sequence, turn_id, body, crc from events where session = ? and sequence = ?"
_TURN: Final = """select sequence, body, crc from events where session = ? and sequence > ?
    and sequence <= ? and type <> 'agent.message.delta' order by sequence"""
_COUNT: Final = "select count(*) from events where session = ? and sequence > ? and sequence <= ?"


class Damaged(Exception):
    """A stored event is not what was written, or is gone."""

    def __init__(self, session_id: str, sequence: int, *, by_sqlite: bool = False) -> None:
        super().__init__(f"event {sequence} of session {session_id} is damaged")
        self.session_id = session_id
        self.sequence = sequence
        self.by_sqlite = by_sqlite


class PageRow(NamedTuple):
    """One event of a page."""

    sequence: int
    turn_id: str
    body: bytes


class Range(NamedTuple):
    """What is read of a session: `after` < sequence ≤ `last`; there has to be an event for each."""

    key: int
    session_id: str
    after: int
    last: int


def read_page(
    connection: sqlite3.Connection, wanted: Range, limit: int, max_bytes: int
) -> list[PageRow]:
    """Return the events of a range before the first damaged one, at most `limit` and, but for the first, `max_bytes`.

    Raises:
        Damaged: the first of them is damaged.
    """
    rows: list[PageRow] = []
    if limit < 1 or wanted.after >= wanted.last:
        return rows
    size = 0
    expected = wanted.after + 1
    by_sqlite = False
    cursor = connection.cursor()
    try:
        cursor.execute(_PAGE, (wanted.key, wanted.after, wanted.last, limit))
        for sequence, turn_id, body, crc in cursor:
            if sequence != expected or not is_sealed(wanted.key, sequence, body, crc):
                break
            size += len(body)
            if rows and size > max_bytes:
                break
            rows.append(PageRow(sequence, turn_id, body))
            expected += 1
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_of_the_row(error):
            raise
        by_sqlite = True
    finally:
        cursor.close()
    if not rows:
        raise Damaged(wanted.session_id, expected, by_sqlite=by_sqlite)
    return rows


def damaged_upto(connection: sqlite3.Connection, wanted: Range) -> int:
    """Return the last of the damaged events that a range begins with; there may be more of them behind it."""
    at = wanted.after
    try:
        rows = connection.execute(_PAGE, (wanted.key, at, wanted.last, MAX_TRIES))
        for sequence, _, body, crc in rows:
            if is_sealed(wanted.key, sequence, body, crc):
                return max(int(sequence) - 1, wanted.after)
            at = sequence
        return wanted.last if at == wanted.after else int(at)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_of_the_row(error):
            raise
    for sequence in range(at + 1, min(at + MAX_TRIES, wanted.last) + 1):
        if _is_good(connection, wanted.key, sequence):
            return max(sequence - 1, wanted.after)
    return min(at + MAX_TRIES, wanted.last)


def turn_bodies(
    connection: sqlite3.Connection, wanted: Range
) -> tuple[list[bytes], Damaged | None]:
    """Return the events of a range that can be read, without text deltas, and what is damaged first, if anything is."""
    bodies: list[bytes] = []
    damaged: Damaged | None = None
    at = wanted.after
    try:
        for sequence, body, crc in connection.execute(_TURN, (wanted.key, at, wanted.last)):
            at = sequence
            if is_sealed(wanted.key, sequence, body, crc):
                bodies.append(body)
            else:
                damaged = damaged or Damaged(wanted.session_id, sequence)
        (count,) = connection.execute(_COUNT, (wanted.key, wanted.after, wanted.last)).fetchone()
        if count != wanted.last - wanted.after:
            damaged = damaged or Damaged(wanted.session_id, wanted.after + 1)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_of_the_row(error):
            raise
        damaged = damaged or Damaged(wanted.session_id, at + 1, by_sqlite=True)
    return bodies, damaged


def _is_good(connection: sqlite3.Connection, key: int, sequence: int) -> bool:
    try:
        row = connection.execute(_ONE, (key, sequence)).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not is_of_the_row(error):
            raise
        return False
    return row is not None and is_sealed(key, sequence, row[2], row[3])


def is_of_the_row(error: BaseException) -> bool:
    """Return whether what is stored is at fault: a damaged page, or a text that is none."""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
