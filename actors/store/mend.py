"""Puts right what does not fit together after damage: counters, records, and rows without the row they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from roost.actors.store.bounds import put_right
from roost.actors.store.database import EVENT_BYTES
from roost.actors.store.journal import decode_head
from roost.schemas.agent import AgentSpec
from roost.schemas.approval import PendingRow
from roost.schemas.base import AgentId, SessionId
from roost.schemas.session import SessionSpec

if TYPE_CHECKING:
    import sqlite3

LOST: Final = "lost"
SANE: Final = 2**40
# Milliseconds; no clock of ours goes that far.
LATEST: Final = 2**45
_encode = msgspec.msgpack.Encoder().encode

_COUNTED: Final = "sessions join counters on counters.session = sessions.key"
_BEHIND: Final = f"""select key, session_id, last_sequence,
    (select max(sequence) from events where session = sessions.key) as seen
    from {_COUNTED} where seen > last_sequence or last_sequence >= ?"""
_HIDING: Final = """select key from sessions where state not in ('importing', 'purging')
    and (select min(sequence) from events where session = sessions.key) < first_sequence"""
_UNOWNED: Final = (
    "select distinct session from events where session not in (select key from sessions)"
)
_STRAY: Final = (
    "delete from {} where session not in (select key from sessions)",
    "delete from {} where state not in ({})",
)
_STATES: Final = {
    "messages": "'queued', 'begun', 'ended'",
    "turns": "'open', 'ended'",
    "pending": "'open', 'approved', 'denied', 'cancelled', 'answered', 'unavailable', 'timeout'",
    "tool_ledger": "'running', 'ended', 'completed', 'unknown'",
}


def mend_counters(connection: sqlite3.Connection, known: dict[int, int]) -> list[str]:
    """Have no session give a sequence again; return what was put right."""
    notes: list[str] = []
    connection.execute("insert or ignore into counters(session) select key from sessions")
    for key, session_id, last, seen in connection.execute(_BEHIND, (SANE,)).fetchall():
        right = max(seen or 0, last if last < SANE else 0)
        connection.execute("update counters set last_sequence = ? where session = ?", (right, key))
        notes.append(f"session {session_id}: its last sequence was {last}, is {right}")
    for (key,) in connection.execute(_HIDING).fetchall():
        notes += put_right(connection, key)[1]
    for key, last in known.items():
        sql = "update counters set last_sequence = ? where session = ? and last_sequence < ?"
        connection.execute(sql, (last, key, last))
    connection.execute(
        "update counters set last_sequence = delivered from sessions"
        " where key = session and delivered > last_sequence and delivered < ?",
        (SANE,),
    )
    connection.execute(
        "update sessions set first_sequence = 1 from counters"
        " where session = key and (first_sequence < 1 or first_sequence > last_sequence + 1)"
    )
    connection.execute(
        "update sessions set delivered = last_sequence from counters"
        " where session = key and (delivered > last_sequence or delivered < 0)"
    )
    return notes


def mend(connection: sqlite3.Connection, known: dict[int, int]) -> list[str]:
    """Put the rows of a salvaged file right, in the transaction that is open; return what was done."""
    notes = _agents(connection)
    notes += _sessions(connection)
    notes += mend_counters(connection, known)
    connection.execute(
        "delete from events where key in (select e.key from events e join sessions s"
        " on s.key = e.session where e.sequence < s.first_sequence)"
    )
    connection.execute("update sessions set removed = first_sequence - 1")
    connection.execute(
        f"update counters set bytes = coalesce((select sum(length(body) + {EVENT_BYTES})"
        " from events where events.session = counters.session), 0)"
    )
    connection.execute(
        "update sessions set updated_at = max(created_at, closed_at)"
        " where updated_at <= 0 or updated_at >= ?",
        (LATEST,),
    )
    _work(connection)
    return notes


def _agents(connection: sqlite3.Connection) -> list[str]:
    notes: list[str] = []
    for key, agent_id, spec in connection.execute(
        "select key, agent_id, spec from agents"
    ).fetchall():
        try:
            good = msgspec.msgpack.decode(spec, type=AgentSpec).agent_id == agent_id
        except msgspec.MsgspecError:
            good = False
        if not good:
            connection.execute("delete from agents where key = ?", (key,))
            notes.append(f"agent {agent_id}: its record is lost, it cannot be started again")
    connection.execute(
        "update agents set state = 'stopped' where state not in ('live', 'stopping', 'stopped')"
    )
    return notes


def _sessions(connection: sqlite3.Connection) -> list[str]:
    notes: list[str] = []
    sql = "select key, session_id, agent_id, created_at, spec from sessions"
    for key, session_id, agent_id, created_at, spec in connection.execute(sql).fetchall():
        try:
            if msgspec.msgpack.decode(spec, type=SessionSpec).session_id == session_id:
                continue
        except msgspec.MsgspecError:
            pass
        fresh = _spec(session_id, agent_id, created_at)
        connection.execute("update sessions set spec = ? where key = ?", (fresh, key))
        notes.append(f"session {session_id}: its record is lost, its events are not")
    for (key,) in connection.execute(_UNOWNED).fetchall():
        notes += _own(connection, key)
    # What came in so far of an import is of no use without the rest.
    connection.execute(
        "delete from events where session in (select key from sessions where state = 'importing')"
    )
    connection.execute("delete from sessions where state = 'importing'")
    closed = connection.execute(
        "update sessions set state = 'closed', close_reason = ? where state <> 'closed'"
        " and agent_id not in (select agent_id from agents) returning session_id",
        (LOST,),
    ).fetchall()
    notes += [f"session {row[0]}: closed, because its agent is lost" for row in closed]
    connection.execute(
        "update sessions set state = 'closed', close_reason = ?"
        " where state not in ('open', 'closing', 'closed')",
        (LOST,),
    )
    return notes


def _own(connection: sqlite3.Connection, key: int) -> list[str]:
    """Make a row again for a session that has none, out of its first event."""
    sql = "select body, min(sequence) from events where session = ?"
    body, first = connection.execute(sql, (key,)).fetchone()
    session_id = decode_head(body).session_id
    connection.execute(
        "insert or ignore into sessions(key, session_id, agent_id, created_at, spec, state,"
        " close_reason) values(?, ?, ?, 0, ?, 'closed', ?)",
        (key, session_id, LOST, _spec(session_id, LOST, 0), LOST),
    )
    return [f"session {session_id}: its row is lost; its events from {first} on are kept, closed"]


def _work(connection: sqlite3.Connection) -> None:
    """Drop messages, turns and pending requests of nobody, or that are none; nothing open may be left half."""
    for table, states in _STATES.items():
        connection.execute(_STRAY[0].format(table))
        connection.execute(_STRAY[1].format(table, states))
    for key, record in connection.execute("select key, record from pending").fetchall():
        try:
            msgspec.msgpack.decode(record, type=PendingRow)
        except msgspec.MsgspecError:
            connection.execute("delete from pending where key = ?", (key,))
    connection.execute(
        "update turns set state = 'ended', outcome = 'failed' where state = 'open'"
        " and session in (select key from sessions where state = 'closed')"
    )
    # A turn is gone on with, or closed, by way of its message.
    connection.execute(
        "insert or ignore into messages(session, message_id, client_message_id, sha256, stream_id,"
        " accepted_at, content, text, hidden, metadata, state, turn_id)"
        " select t.session, t.message_id, '', x'', '', 0, x'', '', 0, x'7b7d', 'begun', t.turn_id"
        " from turns t where t.state = 'open' and not exists(select 1 from messages m"
        " where m.session = t.session and m.message_id = t.message_id)"
    )


def _spec(session_id: str, agent_id: str, created_at: int) -> bytes:
    return _encode(
        SessionSpec(
            session_id=SessionId(session_id), agent_id=AgentId(agent_id), created_at=created_at
        )
    )
