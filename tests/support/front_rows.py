"""What the store in memory knows of a session and of its messages, and the events that it writes."""

from __future__ import annotations

import uuid_utils

from roost.schemas import approval, session, turn
from roost.schemas.base import EventId
from roost.schemas.event import AgentMessageCompleted, AgentMessageDelta, UserMessage

NOW = 1_772_357_400_000


class FakeMessage:
    """One accepted message."""

    def __init__(self, request: turn.AcceptMessage) -> None:
        self.request = request
        self.state: str = "queued"
        self.turn_id = ""
        self.outcome = ""


class FakeSession:
    """One session: its events as bodies, and its rows."""

    def __init__(self, spec: session.SessionSpec) -> None:
        self.spec = spec
        self.state: session.SessionState = "open"
        self.closed_at = 0
        self.reason = ""
        self.bodies: list[bytes] = []
        self.first_sequence = 1
        self.delivered = 0
        self.cleared: tuple[int, int] = (0, 0)
        self.messages: dict[str, FakeMessage] = {}
        self.turn: session.TurnRef | None = None
        self.turns: dict[str, session.TurnRef] = {}
        self.pending: dict[str, approval.PendingRow] = {}

    def row(self) -> session.SessionRow:
        """Return the session's record."""
        return session.SessionRow(
            spec=self.spec,
            state=self.state,
            status="idle",
            last_sequence=len(self.bodies),
            first_sequence=self.first_sequence,
            delivered=self.delivered,
            queued=sum(m.state == "queued" for m in self.messages.values()),
            closed_at=self.closed_at,
            close_reason=self.reason,
            cleared_after=self.cleared[0],
            cleared_at=self.cleared[1],
        )


def new_id() -> EventId:
    """Return an event id."""
    return EventId(str(uuid_utils.uuid7()))


def user_message(
    session_id: str, turn_id: str, text: str, metadata: dict[str, object] | None = None
) -> UserMessage:
    """Return the event that opens a turn."""
    return UserMessage(
        id=new_id(),
        timestamp=NOW / 1000,
        session_id=session_id,
        turn_id=turn_id,
        content=text,
        metadata=metadata or {},
    )


def delta(session_id: str, turn_id: str, text: str) -> AgentMessageDelta:
    """Return streamed text."""
    return AgentMessageDelta(
        id=new_id(), timestamp=NOW / 1000, session_id=session_id, turn_id=turn_id, delta=text
    )


def completed(session_id: str, turn_id: str, text: str) -> AgentMessageCompleted:
    """Return the event that ends a turn."""
    return AgentMessageCompleted(
        id=new_id(),
        timestamp=NOW / 1000,
        session_id=session_id,
        turn_id=turn_id,
        content=text,
        metadata={"final": True},
    )
