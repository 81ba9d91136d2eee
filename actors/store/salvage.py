"""A new file out of what can be read of a damaged one: every event that is proved, and the rows around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roost.actors.store.database import MIGRATIONS, open_database, read_meta, write_meta
from roost.actors.store.harvest import Harvest
from roost.actors.store.journal import decode_head
from roost.actors.store.mend import mend
from roost.actors.store.sealing import is_sealed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from roost.actors.store.harvest import Found
    from roost.actors.store.pages import Pages, Value

BATCH: Final = 2_000
AUTOCHECKPOINT: Final = 4_000
SANE: Final = 2**40
# Where a session's last sequence is kept, and was in older formats.
LAST_SEQUENCE: Final = {
    "counters": ("session", "last_sequence"),
    "sessions": ("key", "older_last_sequence"),
}

_INSERT: Final = """insert or ignore into events(key, session, sequence, event_id, type, turn_id, body, crc)
    values(?, ?, ?, ?, ?, ?, ?, ?)"""


class Salvaged(NamedTuple):
    """What did not come through: rows by table, and the notes of what was put right."""

    dropped: dict[str, int]
    notes: list[str]


def salvage(pages: Pages, older: Iterable[bytes], target: Path) -> Salvaged:
    """Write a new database at `target` of what can be read of these pages.

    Raises:
        sqlite3.Error, OSError: the disk does not take it.
    """
    harvest = Harvest(pages, older)
    connection = open_database(target, wal_autocheckpoint=AUTOCHECKPOINT)
    try:
        connection.execute("pragma synchronous = off")
        connection.execute("begin immediate")
        epoch = read_meta(connection, "epoch")
        connection.execute("delete from meta")
        known = _take_rows(connection, harvest)
        write_meta(connection, "format", str(len(MIGRATIONS)))
        if not read_meta(connection, "epoch"):
            write_meta(connection, "epoch", epoch)
        connection.execute("commit")
        dropped = _take_events(connection, harvest)
        connection.execute("begin immediate")
        notes = [*_missing(harvest), *mend(connection, known)]
        connection.execute("commit")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    finally:
        connection.close()
    for table, count in harvest.unreadable.items():
        dropped[table] = dropped.get(table, 0) + count
    return Salvaged(dropped, notes)


def _take_rows(connection: sqlite3.Connection, harvest: Harvest) -> dict[int, int]:
    """Copy all rows but events; return the highest sequence that any version of a session's row knows of."""
    known: dict[int, int] = {}
    for table, columns in harvest.rows(events=False):
        if table in LAST_SEQUENCE:
            key, last = (columns.get(name) for name in LAST_SEQUENCE[table])
            if isinstance(key, int) and isinstance(last, int) and 0 <= last < SANE:
                known[key] = max(known.get(key, 0), last)
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        sql = f"insert or ignore into {table}({names}) values({marks})"
        connection.execute(sql, tuple(columns.values()))
    return known


def _take_events(connection: sqlite3.Connection, harvest: Harvest) -> dict[str, int]:
    ids = dict(connection.execute("select key, session_id from sessions").fetchall())
    keys = {session_id: key for key, session_id in ids.items()}
    # An event that is damaged in one place may be whole in another one.
    connection.execute("create temp table unproved(key integer primary key)")
    batch: list[tuple[Value, ...]] = []
    for found in harvest.rows(events=True):
        row = _proved(found, ids, keys)
        if row is None:
            sql = "insert or ignore into temp.unproved values(?)"
            connection.execute(sql, (found.columns["key"],))
            continue
        batch.append(row)
        if len(batch) >= BATCH:
            _write(connection, batch)
    _write(connection, batch)
    sql = "select count(*) from temp.unproved where key not in (select key from events)"
    (dropped,) = connection.execute(sql).fetchone()
    connection.execute("drop table temp.unproved")
    return {"events": dropped} if dropped else {}


def _missing(harvest: Harvest) -> list[str]:
    lacking, count = harvest.missing()
    if not lacking:
        return []
    return [f"the file lacks {lacking} of {count} pages; further sessions may be lost"]


def _write(connection: sqlite3.Connection, batch: list[tuple[Value, ...]]) -> None:
    connection.execute("begin immediate")
    connection.executemany(_INSERT, batch)
    connection.execute("commit")
    batch.clear()


def _proved(found: Found, ids: dict[int, str], keys: dict[str, int]) -> tuple[Value, ...] | None:
    """Return an event's row if its body is what was written; what the body says itself is taken from there."""
    columns = found.columns
    session, sequence = columns["session"], columns["sequence"]
    body, crc = columns["body"], columns["crc"]
    if not isinstance(session, int) or not isinstance(sequence, int) or not isinstance(body, bytes):
        return None
    try:
        head = decode_head(body)
    except msgspec.MsgspecError:
        return None
    for key in dict.fromkeys((session, keys.get(head.session_id, session))):
        ours = ids.get(key, head.session_id) == head.session_id and sequence > 0
        if ours and is_sealed(key, sequence, body, crc):
            values = (key, sequence, head.id, head.type, head.turn_id, body, crc)
            return (columns["key"], *values)
    return None


def lost_ranges(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int]]:
    """Yield (session, first, last) for each run of sequences of which there is no event."""
    sql = """select s.session_id, s.key, s.first_sequence, c.last_sequence
        from sessions s join counters c on c.session = s.key
        where (select count(*) from events e where e.session = s.key
            and e.sequence between s.first_sequence and c.last_sequence)
            <> max(0, c.last_sequence - s.first_sequence + 1)"""
    for session_id, key, first, last in connection.execute(sql).fetchall():
        expected = first
        rows = connection.execute(
            "select sequence from events where session = ? and sequence >= ? order by sequence",
            (key, first),
        )
        for (sequence,) in rows:
            if sequence > expected:
                yield session_id, expected, sequence - 1
            expected = sequence + 1
        if expected <= last:
            yield session_id, expected, last
