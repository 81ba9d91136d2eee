"""Stored events to notifications of the daemon door (T 6.4, P 7).

Each stored event makes one carrier with its sequence, and derived ones right after it with the same sequence,
`metadata.derived` and ids of their own. Pure: the same events give the same bytes, live or on replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from roost.actors.front.clock import stamp
from roost.actors.front.notices import Where, approval_body, displayed, line_of
from roost.schemas import event as stored
from roost.schemas.base import MessageId, TurnId
from roost.schemas.notifications import (
    AgentStatusEvent,
    InnerEvent,
    MessageChunk,
    PermissionRequest,
    RunStatus,
    SessionEvent,
    ToolRequest,
)
from roost.schemas.session import TurnRef
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.schemas.agent import AgentStatus
    from roost.schemas.approval import PendingRow
    from roost.schemas.daemon import JsonObject

NO_TURN = TurnRef(turn_id=TurnId(""), message_id=MessageId(""), stream_id="", accepted_at=0)

_encode = msgspec.json.Encoder().encode
_ENVELOPE = frozenset(
    ("id", "timestamp", "session_id", "version", "turn_id", "metadata", "sequence")
)
_REJECTIONS = {"TOOL_CANCELLED": "cancelled", "TURN_TIMEOUT": "cancelled"}


class Renderer:
    """Renders the events of one session in order; knows the turn they belong to.

    `turns` and `pending` are its owner's to fill; what settles or ends is taken out here.
    """

    def __init__(self, where: Where) -> None:
        self.session_id = where.session_id
        self.agent_id = where.agent_id
        self.turns: dict[str, TurnRef] = {}
        self.pending: dict[str, PendingRow] = {}
        self._newest: TurnRef = NO_TURN
        self._waiting: set[str] = set()
        self._running = ""
        self._reason = ("", "")

    def begin_with(self, turn: TurnRef | None, waiting: Mapping[str, PendingRow]) -> None:
        """Know the state before the first event."""
        if turn is not None:
            self.turns = {turn.turn_id: turn}
            self._running = turn.turn_id
        self.pending = dict(waiting)
        self._waiting = {key for key, row in waiting.items() if row.kind == "approval"}

    def fork(self) -> Renderer:
        """Return another one that goes on from the same state."""
        other = Renderer(Where(session_id=self.session_id, agent_id=self.agent_id))
        other.turns, other.pending = dict(self.turns), dict(self.pending)
        other._newest, other._running = self._newest, self._running
        other._waiting, other._reason = set(self._waiting), self._reason
        return other

    def begin(self, turn: TurnRef) -> None:
        """Know that a message has become part of a turn; its event comes next."""
        self.turns.setdefault(turn.turn_id, turn)
        self._newest = turn

    def render(self, sequence: int, body: bytes) -> list[bytes]:
        """Return the lines for one stored event, the carrier first.

        Raises:
            msgspec.DecodeError: the body is no event of this version.
        """
        event = event_decoder.decode(body)
        if type(event) is stored.AgentMessageDelta:
            return [self._chunk(sequence, event)]
        return self._carry(sequence, event)

    def _carry(self, sequence: int, event: stored.AnyEvent) -> list[bytes]:
        match event:
            case stored.UserMessage():
                return self._user_message(sequence, event)
            case stored.AgentMessageCompleted():
                return self._message_completed(sequence, event)
            case stored.AgentTurnFailed():
                return self._turn_failed(sequence, event)
            case stored.AgentTurnExhausted():
                return self._turn_exhausted(sequence, event)
            case stored.ToolCallRequested():
                return [self._tool_requested(sequence, event)]
            case stored.ToolCallStarted():
                return [self._tool_started(sequence, event)]
            case stored.ToolCallCompleted():
                return [self._tool_completed(sequence, event)]
            case stored.ToolCallFailed():
                return [self._tool_failed(sequence, event)]
            case stored.ToolApprovalRequested():
                return self._approval_requested(sequence, event)
            case stored.ToolApprovalApproved() | stored.ToolApprovalRejected():
                return self._approval_settled(sequence, event)
            case stored.CancellationRequested():
                return [self._cancel_requested(sequence, event)]
            case stored.CancellationCompleted():
                return [self._cancel_completed(sequence, event)]
            case stored.SessionClosed():
                return [self._session_closed(sequence, event)]
            case _:
                return [self._plain(sequence, event)]

    def _turn(self, event: stored.Event) -> TurnRef:
        if event.turn_id and self._newest.turn_id == event.turn_id:
            return self._newest
        return self.turns.get(event.turn_id or "", NO_TURN)

    def _chunk(self, sequence: int, event: stored.AgentMessageDelta) -> bytes:
        turn = self.turns.get(event.turn_id or "", NO_TURN)
        chunk = MessageChunk(
            session_id=self.session_id,
            event_id=event.id,
            agent_id=self.agent_id,
            sequence=sequence,
            accepted_at=stamp(int(event.timestamp * 1000)),
            metadata={"turnId": event.turn_id} if event.turn_id else {},
            message_id=turn.message_id,
            stream_id=turn.stream_id,
            delta=event.delta,
        )
        return line_of(chunk)

    def _session_event(
        self,
        sequence: int,
        event: stored.Event,
        kind: str,
        payload: JsonObject,
        *,
        turn: TurnRef = NO_TURN,
        cause: str = "",
    ) -> bytes:
        named = {"turnId": event.turn_id, "cause": cause}
        metadata: JsonObject = {name: text for name, text in named.items() if text}
        inner = InnerEvent(
            id=event.id,
            type=kind,
            message_id=turn.message_id,
            stream_id=turn.stream_id,
            accepted_at=stamp(turn.accepted_at) if turn.accepted_at else "",
            payload=payload,
        )
        return line_of(
            SessionEvent(
                session_id=self.session_id,
                event_id=event.id,
                agent_id=self.agent_id,
                sequence=sequence,
                accepted_at=stamp(int(event.timestamp * 1000)),
                metadata=metadata,
                event=inner,
            )
        )

    def _status(
        self,
        sequence: int,
        event: stored.Event,
        status: AgentStatus,
        run_status: RunStatus,
        *,
        message: str = "",
        metadata: JsonObject | None = None,
        derived: int = 0,
    ) -> bytes:
        found: JsonObject = dict(metadata or {})
        if derived:
            found["derived"] = True
        return line_of(
            AgentStatusEvent(
                session_id=self.session_id,
                event_id=f"{event.id}/{derived}" if derived else event.id,
                agent_id=self.agent_id,
                sequence=sequence,
                accepted_at=stamp(int(event.timestamp * 1000)),
                metadata=found,
                status=status,
                run_status=run_status,
                turn_id=event.turn_id or "",
                message=message,
            )
        )

    def _plain(self, sequence: int, event: stored.AnyEvent) -> bytes:
        members = msgspec.to_builtins(event)
        kind = members.pop("type")
        payload = {key: value for key, value in members.items() if key not in _ENVELOPE}
        return self._session_event(sequence, event, kind, payload)

    def _user_message(self, sequence: int, event: stored.UserMessage) -> list[bytes]:
        turn = self._turn(event)
        message_id = turn.message_id or str(event.metadata.get("message_id", ""))
        if not turn.message_id and message_id:
            turn = msgspec.structs.replace(turn, message_id=MessageId(message_id))
        hidden, text = displayed(event.content, event.metadata)
        payload: JsonObject = {"messageId": message_id}
        if not hidden:
            payload = {"message": text, "displayText": text, **payload}
        if turn.stream_id:
            payload["streamId"] = turn.stream_id
        if turn.accepted_at:
            payload["acceptedAt"] = stamp(turn.accepted_at)
        kind = "user_message_hidden" if hidden else "user_message"
        lines = [self._session_event(sequence, event, kind, payload, turn=turn)]
        if event.turn_id and event.turn_id != self._running:
            self._running = event.turn_id
            lines.append(self._status(sequence, event, "running", "running", derived=1))
        return lines

    def _message_completed(self, sequence: int, event: stored.AgentMessageCompleted) -> list[bytes]:
        final = event.metadata.get("final") is True
        payload: JsonObject = {"content": event.content, "final": final}
        if event.tokens:
            payload["tokens"] = {"input": event.tokens.input, "output": event.tokens.output}
        lines = [
            self._session_event(
                sequence, event, "agent.message.completed", payload, turn=self._turn(event)
            )
        ]
        if final:
            self._end_turn(event)
            lines.append(
                self._status(sequence, event, "idle", "completed", message=event.content, derived=1)
            )
        return lines

    def _turn_failed(self, sequence: int, event: stored.AgentTurnFailed) -> list[bytes]:
        self._end_turn(event)
        named = {
            "errorCode": event.error_code,
            "phase": event.phase,
            "retryable": event.retryable,
            "outcome": event.outcome,
        }
        metadata: JsonObject = {key: value for key, value in named.items() if value is not UNSET}
        return [
            self._status(
                sequence, event, "error", "errored", message=event.error, metadata=metadata
            )
        ]

    def _turn_exhausted(self, sequence: int, event: stored.AgentTurnExhausted) -> list[bytes]:
        self._end_turn(event)
        reason = event.reason or f"the limit of {event.max_iterations} iterations is reached"
        metadata: JsonObject = {"maxIterations": event.max_iterations}
        return [
            self._status(sequence, event, "error", "errored", message=reason, metadata=metadata)
        ]

    def _tool_requested(self, sequence: int, event: stored.ToolCallRequested) -> bytes:
        request = ToolRequest(
            session_id=self.session_id,
            event_id=event.id,
            agent_id=self.agent_id,
            sequence=sequence,
            accepted_at=stamp(int(event.timestamp * 1000)),
            request_id=event.tool_call_id,
            tool_name=event.tool_name,
            turn_id=event.turn_id,
            input=event.tool_args,
        )
        return line_of(request)

    def _tool_started(self, sequence: int, event: stored.ToolCallStarted) -> bytes:
        payload: JsonObject = {
            "callId": event.tool_call_id,
            "toolName": event.tool_name,
            "status": "started",
        }
        return self._session_event(sequence, event, "tool_progress", payload)

    def _tool_completed(self, sequence: int, event: stored.ToolCallCompleted) -> bytes:
        result = event.result
        payload: JsonObject = {
            "callId": event.tool_call_id,
            "result": result if isinstance(result, str) else _encode(result).decode(),
            "isError": False,
            "metadata": {"toolName": event.tool_name},
        }
        return self._session_event(sequence, event, "tool_call_completed", payload)

    def _tool_failed(self, sequence: int, event: stored.ToolCallFailed) -> bytes:
        named = {
            "errorCode": event.error_code,
            "outcome": event.outcome,
            "retryable": event.retryable,
        }
        metadata: JsonObject = {key: value for key, value in named.items() if value is not UNSET}
        result = event.error
        if event.error_code == "TOOL_CANCELLED":
            metadata["cause"] = "user_interrupted"
            shown = {"tool_use_id": event.tool_call_id, "is_error": True, "content": event.error}
            result = _encode(shown).decode()
        payload: JsonObject = {
            "callId": event.tool_call_id,
            "result": result,
            "isError": True,
            "metadata": {"toolName": event.tool_name, **metadata},
        }
        return self._session_event(sequence, event, "tool_call_completed", payload)

    def _approval_requested(
        self, sequence: int, event: stored.ToolApprovalRequested
    ) -> list[bytes]:
        self._waiting.add(event.tool_call_id)
        row = self.pending.get(event.tool_call_id)
        reason = str(event.metadata.get("reason", "")) if row is None else approval_body(row).reason
        request = PermissionRequest(
            session_id=self.session_id,
            event_id=event.id,
            agent_id=self.agent_id,
            sequence=sequence,
            accepted_at=stamp(int(event.timestamp * 1000)),
            metadata={**event.metadata, "risk": event.risk},
            request_id=event.tool_call_id,
            tool_name=event.tool_name,
            turn_id=event.turn_id,
            permissions=("tool.use",),
            input=event.tool_args,
            reason=reason,
        )
        return [
            line_of(request),
            self._status(sequence, event, "running", "blocked", derived=1),
        ]

    def _approval_settled(
        self,
        sequence: int,
        event: stored.ToolApprovalApproved | stored.ToolApprovalRejected,
    ) -> list[bytes]:
        self._waiting.discard(event.tool_call_id)
        row = self.pending.pop(event.tool_call_id, None)
        payload: JsonObject = {
            "requestId": event.tool_call_id,
            "toolName": event.tool_name,
            "decision": "approved",
        }
        cause = ""
        if isinstance(event, stored.ToolApprovalRejected):
            payload["decision"] = _REJECTIONS.get(event.error_code, "denied")
            payload["reason"] = event.reason
            if event.error_code != "APPROVAL_REJECTED":
                cause = event.error_code.removeprefix("APPROVAL_").lower()
        else:
            scope = row.scope if row is not None else event.metadata.get("scope")
            payload["scope"] = scope or "once"
        by = row.by if row is not None and row.by else event.metadata.get("by")
        if by:
            payload["clientId"] = by
        lines = [self._session_event(sequence, event, "permission_resolved", payload, cause=cause)]
        if not self._waiting and self._running == event.turn_id:
            lines.append(self._status(sequence, event, "running", "running", derived=1))
        return lines

    def _cancel_requested(self, sequence: int, event: stored.CancellationRequested) -> bytes:
        self._reason = (event.turn_id or "", event.reason)
        payload: JsonObject = {"reason": event.reason}
        return self._session_event(sequence, event, "cancellation.requested", payload)

    def _cancel_completed(self, sequence: int, event: stored.CancellationCompleted) -> bytes:
        self._end_turn(event)
        turn_id, reason = self._reason
        message = reason if turn_id == (event.turn_id or "") else ""
        metadata: JsonObject = {"outcome": "interrupted"}
        return self._status(
            sequence, event, "idle", "completed", message=message, metadata=metadata
        )

    def _session_closed(self, sequence: int, event: stored.SessionClosed) -> bytes:
        payload: JsonObject = {"reason": event.reason} if event.reason else {}
        return self._session_event(sequence, event, "session_closed", payload)

    def _end_turn(self, event: stored.Event) -> None:
        self._running = ""
        self._waiting.clear()
        self.pending.clear()
        self.turns.pop(event.turn_id or "", None)
