"""Statements of retention: what is cut off is first out of sight, then deleted in pieces.

A cut moves `first_sequence` of its session in one transaction, with the rows of its turns. From then on nothing reads
the events in front of it, and `removed` follows piece by piece. So a crash at any moment leaves a correct log, and
the rest of the work to the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roost.actors.store.database import EVENT_BYTES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from roost.actors.store.cuts import Cut

PIECE_BYTES: Final = 1024 * 1024
SCAN_ROWS: Final = 256
# Begins the name of a session that is out of sight: being removed whole, or imported.
HIDDEN: Final = "\0"

_EVENTS = """select sequence, turn_id, length(body) + ? from events
    where session = ? and sequence > ? order by sequence limit ?"""
_REMOVING = """select key, removed, first_sequence from sessions
    where removed < first_sequence - 1 limit 1"""
_SIZES = """select sequence, length(body) from events
    where session = ? and sequence > ? and sequence < ? order by sequence limit ?"""
_CLOSED = """select key, session_id, closed_at, bytes from sessions join counters on session = key
    where state = 'closed' and (closed_at, key) > (?, ?)
    order by closed_at, key limit 64"""
_LEFT = ("messages", "pending")
_EPHEMERAL = """select session_id,
    exists(select 1 from turns t where t.session = s.key and t.state = 'open')
        or exists(select 1 from messages m where m.session = s.key and m.state = 'queued')
    from sessions s where ephemeral = 1 and state = 'open'"""
# Their last session was ephemeral; one that is being ended is finished first.
_ALONE = """select agent_id from agents a where state = 'live'
    and not exists(select 1 from sessions s where s.agent_id = a.agent_id)"""
_WORK = ("messages", "pending", "turns", "tool_ledger")


class Closed(NamedTuple):
    """A closed session."""

    key: int
    session_id: str
    closed_at: int
    bytes: int


class _Stamp(msgspec.Struct):
    timestamp: float = 0.0


_decode_stamp = msgspec.json.Decoder(_Stamp).decode


class Remains:
    """Looks at and deletes rows; what writes belongs into a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def total_bytes(self) -> int:
        """Return what all events take."""
        return int(self._db.execute("select coalesce(sum(bytes), 0) from counters").fetchone()[0])

    def larger_than(self, size: int) -> list[str]:
        """Return the sessions whose events take more."""
        sql = """select session_id from counters join sessions on key = session
            where bytes > ? and state in ('open', 'closing', 'closed')"""
        return [row[0] for row in self._db.execute(sql, (size,))]

    def events(self, session: int, after: int) -> list[tuple[int, str, int]]:
        """Return (sequence, turn, size) of the next few events."""
        return self._db.execute(_EVENTS, (EVENT_BYTES, session, after, SCAN_ROWS)).fetchall()

    def stamp(self, session: int, sequence: int) -> float:
        """Return when an event was made; 0 if it cannot be told."""
        sql = "select body from events where session = ? and sequence = ?"
        row = self._db.execute(sql, (session, sequence)).fetchone()
        try:
            return _decode_stamp(row[0]).timestamp if row is not None else 0.0
        except msgspec.MsgspecError:
            return 0.0

    def oldest(self, after_key: int) -> list[tuple[int, int, int]]:
        """Return (key, session, sequence) of the next few events of the whole store, oldest first."""
        sql = "select key, session, sequence from events where key > ? order by key limit ?"
        return self._db.execute(sql, (after_key, SCAN_ROWS)).fetchall()

    def session_id(self, session: int) -> str:
        """Return the id of a session, or "" if it is gone."""
        row = self._db.execute(
            "select session_id from sessions where key = ?", (session,)
        ).fetchone()
        return "" if row is None else str(row[0])

    def closed(self, after: tuple[int, int]) -> list[Closed]:
        """Return the next few closed sessions by (time of closing, key)."""
        return [Closed(*row) for row in self._db.execute(_CLOSED, after)]

    def purging(self) -> tuple[int, str] | None:
        """Return key and id of a session that is being removed whole."""
        sql = "select key, session_id from sessions where state = 'purging' limit 1"
        row = self._db.execute(sql).fetchone()
        return None if row is None else (row[0], row[1])

    def ended_agents(self, after_key: int) -> Iterator[tuple[int, str, str, int]]:
        """Yield (key, id, state, time of its end) of the next few agents."""
        sql = "select key, agent_id, state, ended_at from agents where key > ? order by key limit ?"
        yield from self._db.execute(sql, (after_key, SCAN_ROWS)).fetchall()

    def has_session(self, agent_id: str) -> bool:
        """Return whether an agent still has a session, closed or not."""
        sql = "select 1 from sessions where agent_id = ? limit 1"
        return self._db.execute(sql, (agent_id,)).fetchone() is not None

    def is_busy(self, session: int) -> bool:
        """Return whether something of a session is still open."""
        sql = """select exists(select 1 from turns where session = ?1 and state = 'open')
            or exists(select 1 from pending where session = ?1 and state = 'open')
            or exists(select 1 from messages where session = ?1 and state = 'queued')"""
        return bool(self._db.execute(sql, (session,)).fetchone()[0])

    def move_first(self, session: int, first: int, size: int) -> None:
        """Let a log begin later."""
        self._db.execute("update sessions set first_sequence = ? where key = ?", (first, session))
        self._db.execute("update counters set bytes = ? where session = ?", (size, session))

    def forget_turns(self, session: int, cut: Cut) -> None:
        """Delete the rows of turns that go; messages stay, as their clients may send them again."""
        rows = [(turn_id, session) for turn_id in cut.turn_ids]
        self._db.executemany("delete from pending where turn_id = ? and session = ?", rows)
        sql = "delete from turns where turn_id = ? and session = ? and state <> 'open'"
        self._db.executemany(sql, rows)

    def start_purge(self, session: int, agent_id: str) -> None:
        """Take a session out of sight: its id is free at once, and nothing finds its rows."""
        sql = "update sessions set session_id = ?, agent_id = '', state = 'purging' where key = ?"
        self._db.execute(sql, (f"{HIDDEN}purge:{session}", session))
        self._db.execute(
            "delete from grants where agent_id = ? and session = ?", (agent_id, session)
        )

    def live_ephemeral(self) -> list[tuple[str, bool]]:
        """Return the ephemeral sessions that are open, and whether something is done or waits in each."""
        return [(row[0], bool(row[1])) for row in self._db.execute(_EPHEMERAL)]

    def closed_ephemeral(self) -> list[str]:
        """Return the ephemeral sessions that are closed and have not been removed."""
        sql = "select session_id from sessions where ephemeral = 1 and state = 'closed'"
        return [row[0] for row in self._db.execute(sql)]

    def wipe_ephemeral(self) -> None:
        """Take all ephemeral sessions out of sight, whatever is open in them, and delete agents that have no session.

        Nothing of them can be running any more.
        """
        sql = "select key, agent_id from sessions where ephemeral = 1 and state <> 'purging'"
        for key, agent_id in self._db.execute(sql).fetchall():
            for table in _WORK:
                self._db.execute(f"delete from {table} where session = ?", (key,))
            self.start_purge(key, agent_id)
        for (agent_id,) in self._db.execute(_ALONE).fetchall():
            self.delete_agent(agent_id)

    def forget_agent(self, agent_id: str, *, alone: bool = False) -> None:
        """Delete an agent that has ended and has no session left; `alone` says that nobody else will end it.

        Then one without a process goes too; what has one goes when that has ended, or at the next start of the daemon.
        """
        sql = "select state, started_at, asleep from agents where agent_id = ?"
        row = self._db.execute(sql, (agent_id,)).fetchone()
        if row is None or self.has_session(agent_id):
            return
        state, started_at, asleep = row
        if state == "stopped" or (alone and state == "live" and (asleep or not started_at)):
            self.delete_agent(agent_id)

    def delete_agent(self, agent_id: str) -> None:
        """Delete an agent that has no session."""
        self._db.execute("delete from grants where agent_id = ?", (agent_id,))
        self._db.execute("delete from agents where agent_id = ?", (agent_id,))

    def is_removing(self) -> bool:
        """Return whether events that are out of sight are still there."""
        return self._db.execute(_REMOVING).fetchone() is not None

    def delete_piece(self, rows: int) -> None:
        """Delete up to so many events that are out of sight."""
        session, removed, first = self._db.execute(_REMOVING).fetchone()
        upto = first - 1
        size = 0
        found = self._db.execute(_SIZES, (session, removed, first, rows)).fetchall()
        for number, (sequence, length) in enumerate(found, 1):
            size += length
            if size >= PIECE_BYTES or number == rows:
                upto = sequence
                break
        self._db.execute(
            "delete from events where session = ? and sequence > ? and sequence <= ?",
            (session, removed, upto),
        )
        self._db.execute("update sessions set removed = ? where key = ?", (upto, session))

    def delete_rest(self, session: int, rows: int) -> bool:
        """Delete other rows of a session that is removed whole, in the end its own; return whether all is gone."""
        for table in _LEFT:
            sql = f"delete from {table} where key in (select key from {table} where session = ? limit ?)"
            if self._db.execute(sql, (session, rows)).rowcount:
                return False
        ledger = "(select call_id from tool_ledger where session = ? limit ?)"
        sql = f"delete from tool_ledger where session = ? and call_id in {ledger}"
        if self._db.execute(sql, (session, session, rows)).rowcount:
            return False
        sql = """delete from tool_ledger where session = ?1 and call_id in
            (select call_id from tool_ledger where session = ?1 limit ?2)"""
        if self._db.execute(sql, (session, rows)).rowcount:
            return False
        self._db.execute("delete from sessions where key = ?", (session,))
        return True
