"""Requests that are answered when their message has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, NotFound
from roost.actors.front.promise import Promise
from roost.schemas.base import TurnId
from roost.schemas.session import MessageChanged, TurnRef

if TYPE_CHECKING:
    from roost.schemas.base import AgentId, SessionId
    from roost.schemas.turn import Accepted, AcceptMessage


class Waiter:
    """A request that is answered when its message has ended."""

    def __init__(self, message: AcceptMessage) -> None:
        self.message = message
        self.ended: Promise[MessageChanged] = Promise()


def turn_of(change: MessageChanged) -> TurnRef:
    """Return which message a turn belongs to."""
    return TurnRef(
        turn_id=TurnId(change.turn_id),
        message_id=change.message_id,
        stream_id=change.stream_id,
        accepted_at=change.accepted_at,
    )


def ended_of(session_id: SessionId, agent_id: AgentId, accepted: Accepted) -> MessageChanged:
    """Return the end of a message that had ended before it was asked for."""
    return MessageChanged(
        session_id=session_id,
        agent_id=agent_id,
        message_id=accepted.message_id,
        stream_id=accepted.stream_id,
        state="ended",
        accepted_at=accepted.accepted_at,
        turn_id=accepted.turn_id,
        outcome=accepted.outcome,
        error=accepted.error,
    )


def not_found(session_id: str) -> DaemonError:
    """Return the error of most methods for an unknown or closed session."""
    return NotFound("AGENT_NOT_FOUND", f"AgenC daemon session not found or closed: {session_id}")
