"""Notifications that no stored event stands behind: they have no sequence. And what all notifications share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import uuid_utils

from roost.actors.front.clock import stamp
from roost.schemas.daemon import JsonObject
from roost.schemas.notifications import (
    AgentStatusEvent,
    EventParams,
    InnerEvent,
    MessageChunk,
    PermissionRequest,
    RunStatus,
    SessionEvent,
    ToolRequest,
    UserInputRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.schemas.agent import AgentStatus
    from roost.schemas.approval import PendingRow
    from roost.schemas.session import MessageChanged

_encode = msgspec.json.Encoder().encode
_HEADS: dict[type[EventParams], bytes] = {
    shape: b'{"jsonrpc":"2.0","method":"event.%b","params":' % name
    for shape, name in (
        (MessageChunk, b"message_chunk"),
        (ToolRequest, b"tool_request"),
        (PermissionRequest, b"permission_request"),
        (UserInputRequest, b"user_input_request"),
        (AgentStatusEvent, b"agent_status"),
        (SessionEvent, b"session_event"),
    )
}
STATUS_HEAD = _HEADS[AgentStatusEvent]
RUN_STATUS: dict[AgentStatus, RunStatus] = {
    "idle": "completed",
    "running": "running",
    "stopping": "running",
    "stopped": "stopped",
    "error": "errored",
}


class ApprovalBody(msgspec.Struct, frozen=True):
    """What `PendingRow.body` says of an approval."""

    input: JsonObject = {}
    reason: str = ""
    sandbox: str = ""


class QuestionBody(msgspec.Struct, frozen=True):
    """What `PendingRow.body` says of a question."""

    questions: list[JsonObject] = []


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What every notification of a session says of it."""

    session_id: str
    agent_id: str


_approval_body = msgspec.json.Decoder(ApprovalBody)
_question_body = msgspec.json.Decoder(QuestionBody)


def known_status(status: str) -> AgentStatus:
    """Return the status, or `idle` for a word that is none."""
    for known in RUN_STATUS:
        if known == status:
            return known
    return "idle"


def new_event_id() -> str:
    """Return an id for a notification without a stored event."""
    return f"evt_{uuid_utils.uuid7()}"


def line_of(params: EventParams) -> bytes:
    """Return a notification as the line that is sent."""
    return b"%b%b}\n" % (_HEADS[type(params)], _encode(params))


def approval_body(row: PendingRow) -> ApprovalBody:
    """Return what an approval is about; empty if its body cannot be read."""
    try:
        return _approval_body.decode(row.body)
    except msgspec.MsgspecError:
        return ApprovalBody()


def displayed(text: str, metadata: Mapping[str, object]) -> tuple[bool, str]:
    """Return whether a user's message is hidden from clients, and the text shown to them (P 6.19)."""
    if "displayUserMessage" not in metadata:
        return False, text
    shown = metadata["displayUserMessage"]
    return (False, shown) if isinstance(shown, str) else (True, "")


def message_accepted(where: Where, event_id: str, change: MessageChanged) -> bytes:
    """Return the line that tells of a message which is durable and waits for its turn."""
    text = change.text if change.display is None else change.display
    at = stamp(change.accepted_at)
    payload: JsonObject = {
        "messageId": change.message_id,
        "streamId": change.stream_id,
        "acceptedAt": at,
        "message": text,
        "displayText": text,
        "position": change.position,
    }
    inner = InnerEvent(
        id=event_id,
        type="message_accepted",
        message_id=change.message_id,
        stream_id=change.stream_id,
        accepted_at=at,
        payload=payload,
    )
    return _session_event(where, event_id, at, inner)


def agent_status(
    where: Where,
    event_id: str,
    now: int,
    status: AgentStatus,
    run_status: RunStatus,
    *,
    turn_id: str = "",
    message: str = "",
    derived: bool = False,
) -> bytes:
    """Return the line of a status that no event says."""
    return line_of(
        AgentStatusEvent(
            session_id=where.session_id,
            event_id=event_id,
            agent_id=where.agent_id,
            accepted_at=stamp(now),
            metadata={"derived": True} if derived else {},
            status=status,
            run_status=run_status,
            turn_id=turn_id,
            message=message,
        )
    )


def pending_request(where: Where, row: PendingRow, *, redelivered: bool) -> bytes:
    """Return the line of something that waits for a person; an approval has the sequence of its event."""
    metadata: JsonObject = {"redelivered": True} if redelivered else {}
    at = stamp(row.opened_at)
    if row.kind == "question":
        return line_of(
            UserInputRequest(
                session_id=where.session_id,
                event_id=row.event_id or f"evt_{row.request_id}",
                agent_id=where.agent_id,
                accepted_at=at,
                metadata=metadata,
                request_id=row.request_id,
                call_id=row.request_id,
                turn_id=row.turn_id,
                questions=_questions(row),
            )
        )
    if row.risk:
        metadata["risk"] = row.risk
    body = approval_body(row)
    if body.sandbox:
        metadata["sandbox"] = body.sandbox
    return line_of(
        PermissionRequest(
            session_id=where.session_id,
            event_id=row.event_id or f"evt_{row.request_id}",
            agent_id=where.agent_id,
            sequence=row.sequence or msgspec.UNSET,
            accepted_at=at,
            metadata=metadata,
            request_id=row.request_id,
            tool_name=row.tool_name,
            turn_id=row.turn_id,
            permissions=("tool.use",),
            input=body.input,
            reason=body.reason,
        )
    )


def question_settled(where: Where, event_id: str, now: int, row: PendingRow) -> bytes:
    """Return the line that tells that a question is answered, or has ended without an answer."""
    payload: JsonObject = {
        "requestId": row.request_id,
        "kind": "request_user_input",
        "state": row.state,
    }
    if row.by:
        payload["clientId"] = row.by
    inner = InnerEvent(id=event_id, type="elicitation_resolved", payload=payload)
    return _session_event(where, event_id, stamp(now), inner)


def event_gap(
    where: Where, event_id: str, now: int, *, reason: str, first: int, last: int, available: int
) -> bytes:
    """Return the marker of events that are gone; its sequence is that of the last of them."""
    payload: JsonObject = {"reason": reason, "firstAvailableSequence": available}
    if last >= first:
        payload["retiredCount"] = last - first + 1
        payload["firstLostSequence"] = first
        payload["lastLostSequence"] = last
    inner = InnerEvent(id=event_id, type="event_gap", payload=payload)
    return line_of(
        SessionEvent(
            session_id=where.session_id,
            event_id=event_id,
            agent_id=where.agent_id,
            sequence=last,
            accepted_at=stamp(now),
            event=inner,
        )
    )


def history_cleared(where: Where, cleared_at: int) -> bytes:
    """Return the line that tells that the conversation begins anew (P 6.14); the same clear has the same id."""
    at = stamp(cleared_at)
    event_id = f"history-cleared-{where.session_id}-{at}"
    payload: JsonObject = {"timestamp": cleared_at}
    inner = InnerEvent(id=event_id, type="history_cleared", accepted_at=at, payload=payload)
    return _session_event(where, event_id, at, inner)


def _questions(row: PendingRow) -> list[JsonObject]:
    try:
        return _question_body.decode(row.body).questions
    except msgspec.MsgspecError:
        return []


def _session_event(where: Where, event_id: str, at: str, inner: InnerEvent) -> bytes:
    return line_of(
        SessionEvent(
            session_id=where.session_id,
            event_id=event_id,
            agent_id=where.agent_id,
            accepted_at=at,
            event=inner,
        )
    )
