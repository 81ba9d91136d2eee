"""The event log: sequences, groups as transactions, ids, and pages.

One transaction is open at a time. Sequences are given inside of it, so a transaction that fails forgets every cached
session, whose counters are then read from the disk again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import uuid_utils

from roost.actors.store.bounds import log_corrected, put_right, put_suspects_right
from roost.actors.store.database import EVENT_BYTES
from roost.actors.store.effects import Effects
from roost.actors.store.paging import Range, damaged_upto, read_page, turn_bodies
from roost.actors.store.sealing import seal
from roost.schemas.base import EventId, SessionId
from roost.schemas.unions import event_encoder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from roost.actors.store.audit import Decided
    from roost.actors.store.paging import Damaged, PageRow
    from roost.schemas.base import AgentId
    from roost.schemas.event import AnyEvent

MAX_CACHED: Final = 16_384
IDS_AT_ONCE: Final = 512
CALL_OPENED: Final = "tool.call.started"
CALL_CLOSED: Final = frozenset({"tool.call.completed", "tool.call.failed"})

_LOAD = """select s.key, s.agent_id, s.state, s.generation, coalesce(c.bytes, 0),
    coalesce(t.turn_id, ''), coalesce(t.first_sequence, 0)
    from sessions s left join counters c on c.session = s.key
    left join turns t on t.session = s.key and t.state = 'open'
    where s.session_id = ?"""
_INSERT = """insert into events(session, sequence, event_id, type, turn_id, body, crc)
    values(?, ?, ?, ?, ?, ?, ?)"""
# Not an update: the figures of `Totals` count those, and what is appended once for each group.
_COUNTERS = "insert or replace into counters(session, last_sequence, bytes) values(?, ?, ?)"
_CALLS = """select body from events where session = ? and sequence >= ?
    and type in ('tool.call.started', 'tool.call.completed', 'tool.call.failed') order by sequence"""


class Head(msgspec.Struct, frozen=True):
    """What the store looks at in an event."""

    id: str
    type: str
    session_id: str
    turn_id: str = ""
    tool_call_id: str = ""
    error_code: str = ""
    sequence: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


decode_head: Callable[[bytes], Head] = msgspec.json.Decoder(Head).decode


class Session:
    """What is kept in memory of a session: its counters and its open turn ("" for none)."""

    __slots__ = (
        "agent_id",
        "bytes",
        "calls",
        "first_sequence",
        "generation",
        "key",
        "last_sequence",
        "session_id",
        "state",
        "turn_id",
    )

    def __init__(self, session_id: SessionId, agent_id: AgentId, key: int) -> None:
        self.session_id = session_id
        self.agent_id = agent_id
        self.key = key
        self.state = "open"
        self.generation = 0
        self.last_sequence = 0
        self.first_sequence = 1
        self.bytes = 0
        self.turn_id = ""
        self.calls: set[str] = set()


class Written(NamedTuple):
    """An event that is in the log, or will be with this transaction."""

    session: int
    sequence: int
    body: bytes


# session, sequence, event_id, type, turn_id, body, crc
Row = tuple[int, int, str, str, str, bytes, int]


class Journal:
    """The log over one connection, and the transaction that is open."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self.db = connection
        self.clock = clock
        self.effects = Effects()
        # Told of each transaction, once it is durable, how many events it has appended, and its decisions.
        self.on_appended: Callable[[int], None] = lambda events: None
        self.on_decided: Callable[[Sequence[Decided]], None] = lambda decided: None
        self._sessions: dict[str, Session] = {}
        self._rows: list[Row] = []
        self._written: dict[str, Row] = {}
        self._changed: dict[int, Session] = {}
        self._added = 0
        self._appended = 0
        # The sessions that the last transaction has written to; what all events take, counted from 0 unless it is set.
        self.grown: dict[int, Session] = {}
        self.total_bytes = 0
        # How many transactions have been undone: what was counted in one of them has to be counted anew.
        self.undone = 0
        # Before retention goes on with removing what a damaged row only seems to have cut off.
        log_corrected(put_suspects_right(connection))

    def begin(self) -> None:
        """Open a transaction."""
        self.effects = Effects()
        self.grown.clear()
        self.db.execute("begin immediate")

    def commit(self) -> Effects:
        """Make the transaction durable and return what it causes.

        Raises:
            sqlite3.Error: nothing was written; call `rollback`.
        """
        self.flush()
        self.db.execute("commit")
        self._written.clear()
        self.total_bytes += self._added
        self.on_appended(self._appended)
        self._added = self._appended = 0
        if len(self._sessions) > MAX_CACHED:
            self._sessions.clear()
        effects, self.effects = self.effects, Effects()
        if effects.decided:
            self.on_decided(effects.decided)
        return effects

    def rollback(self) -> None:
        """Undo the transaction, in memory too."""
        self.undone += 1
        self._sessions.clear()
        self._rows.clear()
        self._written.clear()
        self._changed.clear()
        self._added = self._appended = 0
        self.grown.clear()
        self.effects = Effects()
        if self.db.in_transaction:
            self.db.execute("rollback")

    def flush(self) -> None:
        """Hand the events appended so far to the database."""
        if not self._rows:
            return
        self.db.executemany(_INSERT, self._rows)
        counters = [(s.key, s.last_sequence, s.bytes) for s in self._changed.values()]
        self.db.executemany(_COUNTERS, counters)
        self._appended += len(self._rows)
        self.grown.update(self._changed)
        self._changed.clear()
        self._rows.clear()

    @property
    def waiting(self) -> int:
        """How many appended events the database does not have yet."""
        return len(self._rows)

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return int(self.clock() * 1000)

    def session(self, session_id: str) -> Session | None:
        """Return a session, closed ones included, or None."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._load(session_id)
            if session is not None:
                self._sessions[session_id] = session
        return session

    def forget(self, session_id: str) -> None:
        """Read the session from the database when it is asked for again."""
        self.flush()
        self._sessions.pop(session_id, None)

    def append(self, session: Session, event_id: str, kind: str, turn_id: str, body: bytes) -> int:
        """Write an event and return its sequence."""
        sequence = session.last_sequence + 1
        session.last_sequence = sequence
        size = len(body) + EVENT_BYTES
        session.bytes += size
        self._added += size
        self._changed[session.key] = session
        row = (
            session.key,
            sequence,
            event_id,
            kind,
            turn_id,
            body,
            seal(session.key, sequence, body),
        )
        self._rows.append(row)
        self._written[event_id] = row
        self.effects.event(session.session_id, session.agent_id, sequence, body)
        return sequence

    def adopt(self, session: Session) -> None:
        """Count a session that has got its events from elsewhere, in the transaction that is open."""
        self.grown[session.key] = session
        self._added += session.bytes

    def record(self, session: Session, event: AnyEvent) -> int:
        """Write an event of the store's own and return its sequence."""
        turn_id = event.turn_id or ""
        kind = str(event.__struct_config__.tag)
        return self.append(session, event.id, kind, turn_id, event_encoder.encode(event))

    def new_id(self) -> EventId:
        """Return the id of an event that the store writes itself."""
        return EventId(str(uuid_utils.uuid7()))

    def find(self, event_ids: Sequence[str]) -> dict[str, Written]:
        """Return those of the events that are in the log already."""
        found: dict[str, Written] = {}
        for start in range(0, len(event_ids), IDS_AT_ONCE):
            part = list(event_ids[start : start + IDS_AT_ONCE])
            # Few statements, so that each stays prepared: the list is filled up to a power of two.
            size = 1 << (len(part) - 1).bit_length()
            marks = ",".join("?" * size)
            sql = (
                f"select event_id, session, sequence, body from events where event_id in ({marks})"
            )
            for row in self.db.execute(sql, [*part, *part[-1:] * (size - len(part))]):
                found[row[0]] = Written(row[1], row[2], row[3])
        return found

    def written(self, event_id: str) -> Written | None:
        """Return an event written in this transaction."""
        row = self._written.get(event_id)
        return None if row is None else Written(row[0], row[1], row[5])

    def turn_events(self, session: Session, first: int) -> tuple[list[bytes], Damaged | None]:
        """Return the events from a sequence on, without text deltas, and what is damaged of them first."""
        self.flush()
        return turn_bodies(self.db, _range(session, first - 1, session.last_sequence))

    def read(
        self, session: Session, after: int, upto: int, limit: int, max_bytes: int
    ) -> list[PageRow]:
        """Return the events with `after` < sequence ≤ `upto`, at most `limit` and, but for the first, `max_bytes`.

        Those before the first damaged one are returned.

        Raises:
            Damaged: the first of them is damaged, or gone.
        """
        return read_page(self.db, _range(session, after, upto), limit, max_bytes)

    def damaged_upto(self, session: Session, after: int, upto: int) -> int:
        """Return the last of the damaged events that begin after this sequence."""
        return damaged_upto(self.db, _range(session, after, upto))

    def _load(self, session_id: str) -> Session | None:
        row = self.db.execute(_LOAD, (session_id,)).fetchone()
        if row is None:
            return None
        session = Session(SessionId(session_id), row[1], row[0])
        session.state, session.generation, session.bytes, session.turn_id = row[2:6]
        counters, notes = put_right(self.db, session.key)
        log_corrected(notes)
        if counters is not None:
            session.first_sequence = counters.first_sequence
            session.last_sequence = counters.last_sequence
        if session.turn_id:
            # The calls are only counted: a damaged one is told where it is read.
            with suppress(msgspec.DecodeError):
                for (body,) in self.db.execute(_CALLS, (session.key, row[6])):
                    note_call(session, decode_head(body))
        return session


def note_call(session: Session, head: Head) -> None:
    """Count the calls of a session that run."""
    if head.type == CALL_OPENED:
        session.calls.add(head.tool_call_id)
    elif head.type in CALL_CLOSED:
        session.calls.discard(head.tool_call_id)


def _range(session: Session, after: int, upto: int) -> Range:
    # What has been removed may still be there for a moment.
    first = max(after, session.first_sequence - 1)
    return Range(session.key, session.session_id, first, min(upto, session.last_sequence))
