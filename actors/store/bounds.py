"""Where a session's log begins and ends: what its row says, held against its events, which carry checksums and it does not."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from typing import Final, NamedTuple

from roost.actors.store.database import EVENT_BYTES, is_corrupt, is_no_text
from roost.actors.store.sealing import is_sealed

# How far back the turn in front of a cut is looked for, and how long a log may be to be added up.
LOOK_BACK: Final = 256
MAX_DAMAGED: Final = 16
SHORT_LOG: Final = 4_096

_EDGE: Final = """select sequence, body, crc from events where session = ? order by sequence {}
    limit ?"""
_EDGES: Final = """select (select min(sequence) from events where session = ?1),
    (select max(sequence) from events where session = ?1)"""
_ROW: Final = """select key, session_id, state, first_sequence, coalesce(last_sequence, 0), removed,
    coalesce(bytes, 0) from sessions left join counters on session = key where key = ?"""
_SET_FIRST: Final = "update sessions set first_sequence = ?, removed = ? where key = ?"
_ADD: Final = "insert or ignore into counters(session) values(?)"
_SET_LAST: Final = "update counters set last_sequence = ? where session = ?"
_SUSPECTS: Final = """select key from sessions where removed < first_sequence - 1
    and state not in ('importing', 'purging')"""
_TURN_BEFORE: Final = """select turn_id from (select sequence, turn_id from events where session = ?
    and sequence > ? and sequence < ? order by sequence desc limit ?)
    where turn_id <> '' order by sequence desc limit 1"""
_TURN_GOES_ON: Final = """select exists(select 1 from turns where turn_id = ?1 and session = ?2)
    or exists(select 1 from events where session = ?2 and sequence = ?3 and turn_id = ?1)"""
_SIZE: Final = """select coalesce(sum(length(body) + ?), 0) from events
    where session = ? and sequence > ?"""

_log = logging.getLogger(__name__)


class Counters(NamedTuple):
    """The counters of a session."""

    key: int
    session_id: str
    state: str
    first_sequence: int
    last_sequence: int
    removed: int
    bytes: int


def put_right(connection: sqlite3.Connection, key: int) -> tuple[Counters | None, list[str]]:
    """Correct the row of a session that hides events; return its counters as they are now, and what was corrected.

    Outside of a transaction, a disk that does not take the row leaves it as it was.
    """
    found = connection.execute(_ROW, (key,)).fetchone()
    if found is None:
        return None, []
    row = Counters(*found)
    right = counted(connection, row)
    if right == row:
        return row, []
    if connection.in_transaction:
        _write(connection, right)
    else:
        with suppress(sqlite3.Error):
            _write(connection, right)
    return right, _notes(row, right)


def _write(connection: sqlite3.Connection, right: Counters) -> None:
    # Either may go alone: each of them hides less than before.
    connection.execute(_ADD, (right.key,))
    connection.execute(_SET_LAST, (right.last_sequence, right.key))
    connection.execute(_SET_FIRST, (right.first_sequence, right.removed, right.key))


def put_suspects_right(connection: sqlite3.Connection) -> list[str]:
    """Correct the sessions of which events would be removed though nothing has cut them off; return what was corrected."""
    notes: list[str] = []
    for (key,) in connection.execute(_SUSPECTS).fetchall():
        notes += put_right(connection, key)[1]
    return notes


def log_corrected(notes: list[str]) -> None:
    """Log what was corrected."""
    for note in notes:
        _log.error("%s", note)


def counted(connection: sqlite3.Connection, row: Counters) -> Counters:
    """Return the counters that hide no event, those of the row if nothing speaks against them.

    Where the file cannot be read they are left alone: who reads those events is told.
    """
    # An import is counted when it is complete; what is removed whole is out of sight already.
    if row.state in {"importing", "purging"}:
        return row
    try:
        lowest, highest = _edges(connection, row)
        last = max(row.last_sequence, highest)
        if row.removed == row.first_sequence - 1:
            last = max(last, row.removed)
        right = row._replace(last_sequence=last)
        if lowest >= row.first_sequence or _is_cut(connection, right, lowest):
            return right
    except sqlite3.DatabaseError as error:
        if is_corrupt(error) or is_no_text(error):
            return row
        raise
    first = max(min(lowest, row.removed + 1), 1)
    return right._replace(first_sequence=first, removed=min(row.removed, first - 1))


def _edges(connection: sqlite3.Connection, row: Counters) -> tuple[int, int]:
    """Return the lowest and the highest event, as far as they lie outside of what the row says."""
    lowest, highest = connection.execute(_EDGES, (row.key,)).fetchone()
    if lowest is None:
        return row.first_sequence, 0
    # A damaged event may say any sequence: only what is sealed counts.
    if highest > row.last_sequence:
        highest = _sealed(connection, row.key, "desc")
    if lowest < row.first_sequence:
        lowest = _sealed(connection, row.key, "asc") or row.first_sequence
    return lowest, highest


def _sealed(connection: sqlite3.Connection, key: int, order: str) -> int:
    """Return the first sound event from one end of a log; 0 if there is none near it."""
    for sequence, body, crc in connection.execute(_EDGE.format(order), (key, MAX_DAMAGED)):
        if is_sealed(key, sequence, body, crc):
            return int(sequence)
    return 0


def _is_cut(connection: sqlite3.Connection, row: Counters, lowest: int) -> bool:
    """Return whether retention has put the events before `first_sequence` out of sight.

    A cut and a damaged row both leave events between `removed` and `first_sequence`. But a cut ends where a turn does and
    takes the rows of its turns and their bytes off the counter in the same transaction; a damaged number has left
    these alone. Turns of an imported log have no rows: there the end of the turn and, in a short log, the bytes decide.
    When nothing speaks against a cut it is one, as events that were to go must not come back.
    """
    first, removed = row.first_sequence, row.removed
    if lowest <= removed or first > row.last_sequence + 1:
        return False
    turn = connection.execute(_TURN_BEFORE, (row.key, removed, first, LOOK_BACK)).fetchone()
    if turn is not None:
        (goes_on,) = connection.execute(_TURN_GOES_ON, (turn[0], row.key, first)).fetchone()
        if goes_on:
            return False
    if row.last_sequence - removed > SHORT_LOG:
        return True
    (size,) = connection.execute(_SIZE, (EVENT_BYTES, row.key, removed)).fetchone()
    return bool(row.bytes != size)


def _notes(row: Counters, right: Counters) -> list[str]:
    notes: list[str] = []
    name = row.session_id
    if right.last_sequence != row.last_sequence:
        was, now = row.last_sequence, right.last_sequence
        notes.append(f"session {name}: its last sequence was {was}, is {now}")
    if right.first_sequence != row.first_sequence:
        was, now = row.first_sequence, right.first_sequence
        notes.append(f"session {name}: its first sequence was {was}, is {now}")
    return notes
