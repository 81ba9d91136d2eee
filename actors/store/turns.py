"""Messages, turns, and what waits for a person: their rows."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roost.schemas.approval import PendingRow
from roost.schemas.base import MessageId, TurnId
from roost.schemas.session import TurnRef
from roost.schemas.turn import QueuedMessage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from roost.schemas.turn import AcceptMessage, TurnOutcome

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_pending = msgspec.msgpack.Decoder(PendingRow).decode
_texts = msgspec.msgpack.Decoder(tuple[str, ...]).decode

_MESSAGE = """select key, message_id, client_message_id, sha256, stream_id, accepted_at, text, display,
    hidden, metadata, state, turn_id, outcome, error, planned, steering, model, input from messages"""
_BY_ID = f"{_MESSAGE} where session = ? and message_id = ?"
_BY_CLIENT_ID = f"{_MESSAGE} where session = ? and client_message_id = ?"
_QUEUED = f"{_MESSAGE} where session = ? and state = 'queued' order by key"
_OF_TURN = f"{_MESSAGE} where session = ? and turn_id = ? and state = 'begun' order by key"
_UNREAD = f"""{_MESSAGE} where session = ? and state = 'queued' and steering = 1 and planned = ?
    order by key"""
_PROMISED = f"""{_MESSAGE} where session = ? and planned = ? and planned <> '' and steering = 0
    order by key limit 1"""
_ADD = """insert into messages(session, message_id, client_message_id, sha256, stream_id, accepted_at,
    content, text, display, hidden, metadata, planned, steering, model, input)
    values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# What a message said is in the log when its turn has ended, or is of no use any more.
_END = """update messages set state = 'ended', outcome = ?, error = ?, content = x'', text = '',
    metadata = x'7b7d', input = x'' where key = ?"""
_TURN = """select turn_id, message_id, first_sequence, runner_state, cancel_reason from turns
    where session = ? and state = 'open'"""
_ENDED = "select outcome, error from turns where turn_id = ? and session = ?"
_REF = """select t.turn_id, m.message_id, m.stream_id, m.accepted_at, t.first_sequence from turns t
    join messages m on m.session = t.session and m.message_id = t.message_id
    where t.turn_id = ? and t.session = ?"""


class MessageRow(NamedTuple):
    """A message as it is stored."""

    key: int
    message_id: str
    client_message_id: str
    sha256: bytes
    stream_id: str
    accepted_at: int
    text: str
    display: str | None
    hidden: int
    metadata: bytes
    state: str
    turn_id: str
    outcome: str
    error: str
    planned: str
    steering: int
    model: str
    input: bytes

    def queued(self) -> QueuedMessage:
        """Return the message as the agent gets it; damaged input is as good as none."""
        texts: tuple[str, ...] = ()
        if self.input:
            with suppress(msgspec.MsgspecError):
                texts = _texts(self.input)
        return QueuedMessage(
            message_id=MessageId(self.message_id),
            stream_id=self.stream_id,
            accepted_at=self.accepted_at,
            text=self.text,
            client_message_id=self.client_message_id,
            metadata=self.metadata,
            turn_id="" if self.steering else self.planned,
            model=self.model,
            input=texts,
        )


class Plan(NamedTuple):
    """What is known of a message's turn when it is accepted."""

    turn_id: str = ""
    steering: bool = False
    model: str = ""
    input: tuple[str, ...] = ()


class TurnRow(NamedTuple):
    """An open turn as it is stored."""

    turn_id: str
    message_id: str
    first_sequence: int
    runner_state: bytes
    cancel_reason: str | None


class Turns:
    """The rows of messages, turns and pending requests. Sessions are known by their key."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def message(self, session: int, message_id: str) -> MessageRow | None:
        """Return a message by its id."""
        row = self._db.execute(_BY_ID, (session, message_id)).fetchone()
        return None if row is None else MessageRow(*row)

    def client_message(self, session: int, client_message_id: str) -> MessageRow | None:
        """Return a message by the id that its client gave it."""
        row = self._db.execute(_BY_CLIENT_ID, (session, client_message_id)).fetchone()
        return None if row is None else MessageRow(*row)

    def session_of(self, turn_id: str) -> str:
        """Return the id of the session that a turn belongs to, or ""."""
        sql = "select s.session_id from turns t join sessions s on s.key = t.session where t.turn_id = ?"
        row = self._db.execute(sql, (turn_id,)).fetchone()
        return "" if row is None else str(row[0])

    def queued(self, session: int) -> list[MessageRow]:
        """Return the messages whose turn has not begun, in order."""
        return [MessageRow(*row) for row in self._db.execute(_QUEUED, (session,))]

    def queued_before(self, session: int, key: int) -> int:
        """Return how many messages wait in front of this one."""
        sql = "select count(*) from messages where session = ? and state = 'queued' and key < ?"
        return int(self._db.execute(sql, (session, key)).fetchone()[0])

    def queued_count(self, session: int) -> int:
        """Return how many messages wait."""
        sql = "select count(*) from messages where session = ? and state = 'queued'"
        return int(self._db.execute(sql, (session,)).fetchone()[0])

    def messages_of(self, session: int, turn_id: str) -> list[MessageRow]:
        """Return the messages that an open turn has taken up."""
        return [MessageRow(*row) for row in self._db.execute(_OF_TURN, (session, turn_id))]

    def unread(self, session: int, turn_id: str) -> list[MessageRow]:
        """Return the messages for a turn that it has not read, in order."""
        return [MessageRow(*row) for row in self._db.execute(_UNREAD, (session, turn_id))]

    def promised(self, session: int, turn_id: str) -> MessageRow | None:
        """Return the message to which this turn was promised, begun or not."""
        row = self._db.execute(_PROMISED, (session, turn_id)).fetchone()
        return None if row is None else MessageRow(*row)

    def ended_turn(self, session: int, turn_id: str) -> tuple[str, str] | None:
        """Return outcome and error of a turn, empty while it is open, or None if there is none."""
        row = self._db.execute(_ENDED, (turn_id, session)).fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    def add_message(self, session: int, message: AcceptMessage, plan: Plan) -> int:
        """Make a message's row and return its key."""
        cursor = self._db.execute(
            _ADD,
            (
                session,
                message.message_id,
                message.client_message_id,
                message.sha256,
                message.stream_id,
                message.accepted_at,
                message.content,
                message.text,
                message.display,
                message.hidden,
                message.metadata,
                plan.turn_id,
                plan.steering,
                plan.model,
                # One text is the message's own.
                _encode(plan.input) if len(plan.input) > 1 else b"",
            ),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def begin_message(self, message: MessageRow, turn_id: str) -> None:
        """Give a message to a turn."""
        self._db.execute(
            "update messages set state = 'begun', turn_id = ? where key = ?", (turn_id, message.key)
        )

    def end_message(self, message: MessageRow, outcome: TurnOutcome, error: str) -> None:
        """End a message."""
        self._db.execute(_END, (outcome, error, message.key))

    def open_turn(self, session: int) -> TurnRow | None:
        """Return the open turn of a session."""
        row = self._db.execute(_TURN, (session,)).fetchone()
        return None if row is None else TurnRow(*row)

    def turn_exists(self, turn_id: str) -> bool:
        """Return whether there is or was such a turn."""
        sql = "select 1 from turns where turn_id = ?"
        return self._db.execute(sql, (turn_id,)).fetchone() is not None

    def begin_turn(
        self, session: int, turn_id: str, message_id: str, generation: int, first: int
    ) -> None:
        """Make a turn's row."""
        self._db.execute(
            "insert into turns(turn_id, session, message_id, generation, first_sequence)"
            " values(?, ?, ?, ?, ?)",
            (turn_id, session, message_id, generation, first),
        )

    def end_turn(self, turn_id: str, outcome: TurnOutcome, error: str) -> None:
        """End a turn; what the runner kept for it is of no use any more."""
        self._db.execute(
            "update turns set state = 'ended', outcome = ?, error = ?, runner_state = x''"
            " where turn_id = ?",
            (outcome, error, turn_id),
        )

    def cancel_turn(self, turn_id: str, reason: str) -> None:
        """Note that the turn is to stop."""
        sql = "update turns set cancel_reason = ? where turn_id = ?"
        self._db.execute(sql, (reason, turn_id))

    def set_runner_state(self, turn_id: str, state: bytes) -> None:
        """Keep what the runner needs to go on."""
        sql = "update turns set runner_state = ? where turn_id = ?"
        self._db.execute(sql, (state, turn_id))

    def refs(self, session: int, turn_ids: Iterable[str]) -> tuple[TurnRef, ...]:
        """Return which messages these turns belong to."""
        found: list[TurnRef] = []
        for turn_id in turn_ids:
            row = self._db.execute(_REF, (turn_id, session)).fetchone()
            if row is not None:
                found.append(
                    TurnRef(
                        turn_id=TurnId(row[0]),
                        message_id=MessageId(row[1]),
                        stream_id=row[2],
                        accepted_at=row[3],
                        first_sequence=row[4],
                    )
                )
        return tuple(found)

    def pending(self, session: int, request_id: str) -> PendingRow | None:
        """Return a pending request by its id, settled or not."""
        sql = "select record from pending where session = ? and request_id = ?"
        row = self._db.execute(sql, (session, request_id)).fetchone()
        return None if row is None else _readable(row[0])

    def pending_of_event(self, session: int, event_id: str) -> PendingRow | None:
        """Return the pending request that an event asked for."""
        for row in self.open_pending(session):
            if row.event_id == event_id:
                return row
        return None

    def asked_by(self, session: int, event_id: str) -> PendingRow | None:
        """Return the pending request that an event asked for, settled or not."""
        sql = "select record from pending where session = ? and event_id = ? and event_id <> ''"
        row = self._db.execute(sql, (session, event_id)).fetchone()
        return None if row is None else _readable(row[0])

    def open_pending(self, session: int) -> list[PendingRow]:
        """Return what waits for a person, oldest first."""
        sql = "select record from pending where session = ? and state = 'open' order by key"
        rows = [_readable(row[0]) for row in self._db.execute(sql, (session,))]
        return [row for row in rows if row is not None]

    def pending_of_turn(self, session: int, turn_id: str) -> list[PendingRow]:
        """Return what waited or waits in a turn, oldest first."""
        sql = "select record from pending where turn_id = ? and session = ? order by key"
        rows = [_readable(row[0]) for row in self._db.execute(sql, (turn_id, session))]
        return [row for row in rows if row is not None]

    def add_pending(self, session: int, row: PendingRow) -> None:
        """Make a pending request's row."""
        self._db.execute(
            "insert into pending(session, request_id, turn_id, event_id, state, record)"
            " values(?, ?, ?, ?, ?, ?)",
            (session, row.request_id, row.turn_id, row.event_id, row.state, _encode(row)),
        )

    def settle_pending(self, session: int, row: PendingRow, settled_by: str = "") -> None:
        """Write a settled request; `settled_by` is the id of the actor's draft that did it."""
        self._db.execute(
            "update pending set state = ?, record = ?, settled_by = ?"
            " where session = ? and request_id = ?",
            (row.state, _encode(row), settled_by, session, row.request_id),
        )

    def settled_with(self, session: int, event_id: str) -> bool:
        """Return whether a draft of this id has settled a request."""
        sql = "select 1 from pending where session = ? and settled_by = ?"
        return self._db.execute(sql, (session, event_id)).fetchone() is not None


def _readable(record: bytes) -> PendingRow | None:
    """Return a pending request, or None for one that is damaged: it can never be settled, and keeps nothing back."""
    try:
        return _pending(record)
    except (msgspec.MsgspecError, TypeError):
        _log.error("a pending request is damaged: left out")
        return None
