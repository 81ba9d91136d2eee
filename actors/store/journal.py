"""The event log: sequences, groups as transactions, ids, and pages.

One transaction is open at a time. Sequences are given inside of it, so a transaction that fails forgets every cached
session, whose counters are then read from the disk again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec
import uuid_utils

from roost.actors.store.effects import Effects
from roost.schemas.base import EventId, SessionId
from roost.schemas.unions import event_encoder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from roost.schemas.base import AgentId
    from roost.schemas.event import AnyEvent

MAX_CACHED: Final = 16_384
IDS_AT_ONCE: Final = 512
CALL_OPENED: Final = "tool.call.started"
CALL_CLOSED: Final = frozenset({"tool.call.completed", "tool.call.failed"})

_LOAD = """select s.key, s.agent_id, s.state, s.generation, s.last_sequence,
    coalesce(t.turn_id, ''), coalesce(t.first_sequence, 0)
    from sessions s left join turns t on t.session = s.key and t.state = 'open'
    where s.session_id = ?"""
_INSERT = """insert into events(session, sequence, event_id, type, turn_id, body, crc)
    values(?, ?, ?, ?, ?, ?, ?)"""
_COUNTERS = "update sessions set last_sequence = ? where key = ?"
_CALLS = """select body from events where session = ? and sequence >= ?
    and type in ('tool.call.started', 'tool.call.completed', 'tool.call.failed') order by sequence"""
_TURN = """select body, crc from events where session = ? and sequence >= ?
    and type <> 'agent.message.delta' order by sequence"""
_PAGE = """select sequence, turn_id, body, crc from events
    where session = ? and sequence > ? and sequence <= ? order by sequence limit ?"""


class Damaged(Exception):
    """A stored event is not what was written."""


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
        "calls",
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
        self.turn_id = ""
        self.calls: set[str] = set()


class Written(NamedTuple):
    """An event that is in the log, or will be with this transaction."""

    session: int
    sequence: int
    body: bytes


class PageRow(NamedTuple):
    """One event of a page."""

    sequence: int
    turn_id: str
    body: bytes


class Journal:
    """The log over one connection, and the transaction that is open."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self.db = connection
        self.clock = clock
        self.effects = Effects()
        self._sessions: dict[str, Session] = {}
        self._rows: list[tuple[int, int, str, str, str, bytes, int]] = []
        self._written: dict[str, Written] = {}

    def begin(self) -> None:
        """Open a transaction."""
        self.effects = Effects()
        self.db.execute("begin immediate")

    def commit(self) -> Effects:
        """Make the transaction durable and return what it causes.

        Raises:
            sqlite3.Error: nothing was written; call `rollback`.
        """
        self.flush()
        self.db.execute("commit")
        self._written.clear()
        if len(self._sessions) > MAX_CACHED:
            self._sessions.clear()
        effects, self.effects = self.effects, Effects()
        return effects

    def rollback(self) -> None:
        """Undo the transaction, in memory too."""
        self._sessions.clear()
        self._rows.clear()
        self._written.clear()
        self.effects = Effects()
        if self.db.in_transaction:
            self.db.execute("rollback")

    def flush(self) -> None:
        """Hand the events appended so far to the database."""
        if not self._rows:
            return
        self.db.executemany(_INSERT, self._rows)
        last = {row[0]: row[1] for row in self._rows}
        self.db.executemany(_COUNTERS, [(sequence, key) for key, sequence in last.items()])
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
        self._rows.append((session.key, sequence, event_id, kind, turn_id, body, crc32(body)))
        self._written[event_id] = Written(session.key, sequence, body)
        self.effects.event(session.session_id, session.agent_id, sequence, body)
        return sequence

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
        return self._written.get(event_id)

    def turn_events(self, session: Session, first: int) -> Iterator[bytes]:
        """Yield the events from a sequence on, without text deltas.

        Raises:
            Damaged: one of them has changed on the disk.
        """
        self.flush()
        for body, crc in self.db.execute(_TURN, (session.key, first)):
            yield _checked(body, crc)

    def read(
        self, session: Session, after: int, upto: int, limit: int, max_bytes: int
    ) -> list[PageRow]:
        """Return the events with `after` < sequence ≤ `upto`, at most `limit` and, but for the first, `max_bytes`.

        Raises:
            Damaged: one of them has changed on the disk.
        """
        rows: list[PageRow] = []
        size = 0
        cursor = self.db.execute(_PAGE, (session.key, after, upto, limit))
        for sequence, turn_id, body, crc in cursor:
            size += len(body)
            if rows and size > max_bytes:
                break
            rows.append(PageRow(sequence, turn_id, _checked(body, crc)))
        cursor.close()
        return rows

    def _load(self, session_id: str) -> Session | None:
        row = self.db.execute(_LOAD, (session_id,)).fetchone()
        if row is None:
            return None
        session = Session(SessionId(session_id), row[1], row[0])
        session.state, session.generation, session.last_sequence, session.turn_id = row[2:6]
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


def _checked(body: bytes, crc: int) -> bytes:
    if crc32(body) != crc:
        raise Damaged("a stored event does not have its checksum")
    return body
