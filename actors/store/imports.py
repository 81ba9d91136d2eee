"""Sessions that come from elsewhere: filled out of sight chunk by chunk, then shown in one small transaction.

While it is filled an import is a session in the state `importing`, without an agent and under a name that is no session's, so
that nothing lists, reads or counts it. Nothing of its progress is kept in memory but that it is wanted: a transaction
that fails leaves no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument, NotFound, Overloaded
from roost.actors.store.capacity import FULL, too_many
from roost.actors.store.database import EVENT_BYTES
from roost.actors.store.recovery import plan_recovery
from roost.actors.store.sealing import seal
from roost.schemas import archive, event
from roost.schemas.archive import MAX_IMPORTED, ImportBegun
from roost.schemas.base import AgentId, Done, SessionId, TurnId
from roost.schemas.session import SessionSpec
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.schemas.archive import (
        AbortImport,
        ArchivedEvent,
        BeginImport,
        FinishImport,
        ImportEvents,
    )
    from roost.schemas.base import Message
    from roost.schemas.event import AnyEvent
    from roost.schemas.session import SessionRow

STATE: Final = "importing"
MAX_AT_ONCE: Final = 16
SLICE: Final = 500
RETRY_MS: Final = 50
ENDINGS: Final = frozenset({"agent.turn.failed", "agent.turn.exhausted", "cancellation.completed"})

_INSERT = """insert into events(session, sequence, event_id, type, turn_id, body, crc)
    values(?, ?, ?, ?, ?, ?, ?)"""
# Until an import is shown nobody is told its events: `delivered` says where its last turn begins, or 0.
_STAGED = """select key, first_sequence, last_sequence, delivered from sessions
    join counters on session = key where session_id = ?"""
_COUNTERS = "update counters set last_sequence = ?, bytes = bytes + ? where session = ?"
_GROWN = """update sessions set delivered = ?, turns = turns + ?, completed = completed + ?,
    input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
    total_tokens = total_tokens + ?, requests = requests + ?, cost_usd = cost_usd + ? where key = ?"""
_SHOW = """update sessions set session_id = ?1, agent_id = ?2, created_at = ?3, updated_at = ?3,
    spec = ?4, state = 'open', delivered = 0 where key = ?5"""
_LEFT = f"select key, session_id from sessions where state = '{STATE}'"
_CUT = """delete from events where key in (
    select key from events where session = ? order by sequence desc limit ?)"""
_ONE = "select type, turn_id from events where session = ? and sequence = ?"


class _Tokens(msgspec.Struct, frozen=True):
    input: int
    output: int


class _Completed(msgspec.Struct, frozen=True):
    """What is read of an `agent.message.completed`."""

    metadata: dict[str, object] = {}
    tokens: _Tokens | None = None
    cost_usd: float | None = None

    @property
    def final(self) -> bool:
        return self.metadata.get("final") is True


class _Staged(NamedTuple):
    """An import under way."""

    key: int
    first_sequence: int
    last_sequence: int
    turn_from: int


class _Usage:
    """What some events add to the counters of their session."""

    def __init__(self) -> None:
        self.turns = self.completed = self.requests = self.input = self.output = 0
        self.cost = 0.0

    def add(self, one: ArchivedEvent) -> None:
        if one.type in ENDINGS:
            self.turns += 1
        elif one.type == "agent.message.completed":
            found = _completed(one.body)
            self.turns += found.final
            self.completed += found.final
            self.cost += found.cost_usd or 0.0
            if found.tokens is not None:
                self.requests += 1
                self.input += found.tokens.input
                self.output += found.tokens.output


_completed = msgspec.json.Decoder(_Completed).decode
_encode = msgspec.msgpack.Encoder().encode


class Imports:
    """Imports in the transaction that is open."""

    def __init__(self, lifecycle: Lifecycle, check_room: Callable[[], None]) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._catalogue = lifecycle.catalogue
        self._check_room = check_room
        self._wanted: set[str] = set()

    def take(self, request: BeginImport | ImportEvents | FinishImport | AbortImport) -> Message:
        """Carry out one step."""
        match request:
            case archive.BeginImport():
                return self.begin(request)
            case archive.ImportEvents():
                return self.add(request)
            case archive.FinishImport():
                return self.finish(request)
            case archive.AbortImport():
                return self.abort(request)

    def begin(self, request: BeginImport) -> ImportBegun:
        """Make room for a session that is to come; a second time the same changes nothing."""
        if self._journal.session(request.session_id) is not None:
            return ImportBegun(exists=True)
        name = _name(request.import_id)
        if name in self._wanted and self._staged(name) is not None:
            return ImportBegun(exists=False)
        if len(self._wanted) >= MAX_AT_ONCE:
            self._wanted = {one for one in self._wanted if self._staged(one) is not None}
        if len(self._wanted) >= MAX_AT_ONCE:
            raise Overloaded("OVERLOADED", "too many imports at once", {"retryAfterMs": 1000})
        if self._left() is not None:
            text = "the remains of an import that was broken off are being removed"
            raise Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_MS})
        self._check_room()
        self._check_sessions(request.session_id)
        now = self._journal.now()
        spec = SessionSpec(session_id=SessionId(name), agent_id=AgentId(""), created_at=now)
        self._catalogue.add_session(spec)
        first = request.first_sequence
        self._catalogue.set_session(name, state=STATE, first_sequence=first, removed=first - 1)
        db = self._journal.db
        (key,) = db.execute("select key from sessions where session_id = ?", (name,)).fetchone()
        db.execute(_COUNTERS, (first - 1, 0, key))
        self._wanted.add(name)
        return ImportBegun(exists=False)

    def add(self, request: ImportEvents) -> Done:
        """Write further events of an import."""
        staged = self._need(request.import_id)
        if request.first != staged.last_sequence + 1:
            text = f"event {request.first} does not follow event {staged.last_sequence}"
            raise InvalidArgument(text)
        last = request.first + len(request.events) - 1
        if last > MAX_IMPORTED:
            text = f"event {last} leaves no room for further ones: {MAX_IMPORTED} is the last that is taken"
            raise InvalidArgument(text, {"sequence": last})
        self._check_ids(request)
        self._check_room()
        self._check_capacity(request)
        usage = _Usage()
        turn_from, turn_id = staged.turn_from, self._one(staged.key, staged.turn_from)[1]
        rows: list[tuple[int, int, str, str, str, bytes, int]] = []
        for sequence, one in enumerate(request.events, request.first):
            usage.add(one)
            if one.turn_id and one.turn_id != turn_id:
                turn_from, turn_id = sequence, one.turn_id
            mark = seal(staged.key, sequence, one.body)
            row = (one.event_id, one.type, one.turn_id, one.body, mark)
            rows.append((staged.key, sequence, *row))
        size = sum(len(one.body) + EVENT_BYTES for one in request.events)
        db = self._journal.db
        db.executemany(_INSERT, rows)
        tokens = (usage.input, usage.output, usage.input + usage.output)
        counters = (usage.turns, usage.completed, *tokens, usage.requests, usage.cost)
        db.execute(_COUNTERS, (last, size, staged.key))
        db.execute(_GROWN, (turn_from, *counters, staged.key))
        return Done()

    def finish(self, request: FinishImport) -> SessionRow:
        """Show the session under its own name, with its agent; whatever was left open in it is closed."""
        staged = self._need(request.import_id)
        spec = request.session
        if self._journal.session(spec.session_id) is not None:
            raise InvalidArgument(f"session {spec.session_id} exists already")
        if not staged.first_sequence <= staged.last_sequence == request.last_sequence:
            raise InvalidArgument("the import is not complete")
        self._check_sessions(spec.session_id)
        self._catalogue.add_agent(request.agent, has_env=False)
        self._journal.db.execute(
            _SHOW, (spec.session_id, spec.agent_id, spec.created_at, _encode(spec), staged.key)
        )
        session = self._journal.session(spec.session_id)
        assert session is not None
        self._journal.adopt(session)
        if self._one(staged.key, staged.last_sequence)[0] == "session.closed":
            self._close(session)
        elif staged.turn_from:
            self._end_turn(session, staged.turn_from)
        self._wanted.discard(_name(request.import_id))
        return self._lifecycle.session_row(session)

    def abort(self, request: AbortImport) -> Done:
        """Want an import no more; its events are removed later."""
        self._wanted.discard(_name(request.import_id))
        return Done()

    def abandon(self) -> None:
        """Want none of the imports any more: who asked for them has gone."""
        self._wanted.clear()

    def remove_slice(self) -> bool:
        """Remove some of what nobody wants; return whether there may be more."""
        left = self._left()
        if left is None:
            return False
        key = left
        removed = self._journal.db.execute(_CUT, (key, SLICE)).rowcount
        if removed < SLICE:
            self._journal.db.execute("delete from sessions where key = ?", (key,))
        else:
            sql = "update counters set last_sequence = last_sequence - ? where session = ?"
            self._journal.db.execute(sql, (removed, key))
        return True

    def _left(self) -> int | None:
        """Return the key of an import that nobody wants."""
        for key, name in self._journal.db.execute(_LEFT).fetchall():
            if name not in self._wanted:
                return int(key)
        return None

    def _staged(self, name: str) -> _Staged | None:
        row = self._journal.db.execute(_STAGED, (name,)).fetchone()
        return None if row is None else _Staged(*row)

    def _need(self, import_id: str) -> _Staged:
        name = _name(import_id)
        staged = self._staged(name) if name in self._wanted else None
        if staged is None:
            raise NotFound("SESSION_NOT_FOUND", "the import was broken off; begin it again")
        return staged

    def _check_ids(self, request: ImportEvents) -> None:
        ids = [one.event_id for one in request.events]
        used = set(self._journal.find(ids))
        for sequence, event_id in enumerate(ids, request.first):
            if event_id in used:
                text = f"the id of event {sequence} is used for another event"
                raise DaemonError("EVENT_ID_CONFLICT", text, {"sequence": sequence})
            used.add(event_id)

    def _check_sessions(self, session_id: str) -> None:
        most = self._lifecycle.capacity.sessions
        if most and self._catalogue.listed_count() >= most:
            raise too_many(session_id, most)

    def _check_capacity(self, request: ImportEvents) -> None:
        """See that the session may hold the further events, as if they were written one by one."""
        capacity = self._lifecycle.capacity
        name = _name(request.import_id)
        session = self._journal.session(name) if capacity.is_bounded else None
        if session is None:
            return
        self._journal.forget(name)
        for one in request.events:
            if not capacity.has_room(session, one.type, len(one.body)):
                raise DaemonError(FULL, "it is larger than the log of a session may be")
            session.last_sequence += 1
            session.bytes += len(one.body) + EVENT_BYTES

    def _one(self, key: int, sequence: int) -> tuple[str, str]:
        """Return type and turn of an event; of none, nothing."""
        row = self._journal.db.execute(_ONE, (key, sequence)).fetchone()
        return ("", "") if row is None else (str(row[0]), str(row[1]))

    def _close(self, session: Session) -> None:
        session.state = "closed"
        now = self._journal.now()
        self._catalogue.set_session(session.session_id, state="closed", closed_at=now)
        self._catalogue.set_agent(session.agent_id, state="stopped", ended_at=now)

    def _end_turn(self, session: Session, first: int) -> None:
        """Close the last turn, which begins there, as after a crash, if it is open."""
        turn_id = TurnId(self._one(session.key, first)[1])
        bodies, _ = self._journal.turn_events(session, first)
        found = [one for one in map(event_decoder.decode, bodies) if one.turn_id == turn_id]
        if not found or any(map(event.is_final, found)):
            return
        if _counts_as_completed(found) and self._is_foreign(session):
            return
        plan = plan_recovery(
            session.session_id,
            turn_id,
            found,
            (),
            cancelled=any(isinstance(one, event.CancellationRequested) for one in found),
            timestamp=self._journal.clock(),
            may_park=False,
        )
        for step in plan.steps:
            self._journal.record(session, step.event)
        self._journal.flush()
        sql = "update sessions set turns = turns + 1 where key = ?"
        self._journal.db.execute(sql, (session.key,))

    def _is_foreign(self, session: Session) -> bool:
        """Return whether another program has written the log, which does not mark the end of a turn (T 6.5)."""
        sql = "select type, body from events where session = ? and sequence = 1"
        row = self._journal.db.execute(sql, (session.key,)).fetchone()
        if row is None:
            return False
        return row[0] != "session.created" or "agent_id" not in _completed(row[1]).metadata


def _counts_as_completed(turn: list[AnyEvent]) -> bool:
    calls: set[str] = set()
    for one in turn:
        if isinstance(one, event.ToolCallCompleted | event.ToolCallFailed):
            calls.discard(one.tool_call_id)
        elif isinstance(one, event.ToolEvent):
            calls.add(one.tool_call_id)
    return not calls and isinstance(turn[-1], event.AgentMessageCompleted)


def _name(import_id: str) -> str:
    """Return the name under which an import's session is kept until it is shown."""
    return f"\0import:{import_id}"
