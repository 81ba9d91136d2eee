"""Makes the events of one turn; pure: ids and times come from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from roost.schemas.event import (
    MAX_EVENT_BYTES,
    MAX_VALUE_BYTES,
    AgentMessageCompleted,
    AgentMessageDelta,
    AgentReasoningStarted,
    AgentTurnExhausted,
    AgentTurnFailed,
    CancellationCompleted,
    JsonObject,
    RejectionCode,
    TokenUsage,
    ToolApprovalRejected,
    ToolApprovalRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    UserMessage,
)

if TYPE_CHECKING:
    from roost.actors.agent.calls import Call, Failed
    from roost.actors.agent.effects import AskApproval, Stamps
    from roost.actors.agent.runner import RunnerFailed
    from roost.schemas.base import SessionId, TurnId

ERROR_CHARACTERS = 200

_encode = msgspec.json.Encoder().encode


def shown(text: str) -> str:
    """Return as much of an error's text as an event holds; what is no text, as in names of files, is replaced."""
    return text[:ERROR_CHARACTERS].encode(errors="replace").decode()


class EventMaker:
    """The events of one turn, each with a new id."""

    def __init__(self, session_id: SessionId, turn_id: TurnId, stamps: Stamps) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self._stamps = stamps

    def user_message(self, content: str, metadata: JsonObject) -> UserMessage:
        """Return the event that opens the turn."""
        return UserMessage(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            metadata=metadata,
            content=content,
        )

    def reasoning_started(self) -> AgentReasoningStarted:
        """Return the event that opens a step."""
        return AgentReasoningStarted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
        )

    def delta(self, text: str) -> AgentMessageDelta:
        """Return a piece of streamed text."""
        return AgentMessageDelta(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            delta=text,
        )

    def message_completed(
        self, content: str, tokens: TokenUsage | UnsetType, *, final: bool
    ) -> AgentMessageCompleted:
        """Return the whole text of a step; `final` ends the turn."""
        return AgentMessageCompleted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            metadata={"final": True} if final else {},
            content=content,
            tokens=tokens,
        )

    def call_requested(self, call: Call) -> ToolCallRequested:
        """Return the event that opens a call."""
        return ToolCallRequested(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            tool_name=call.tool,
            tool_call_id=call.id,
            tool_args=call.args,
        )

    def call_started(self, call: Call) -> ToolCallStarted:
        """Return the event after which the handler may run."""
        return ToolCallStarted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            tool_name=call.tool,
            tool_call_id=call.id,
        )

    def call_completed(self, call: Call, result: object) -> ToolCallCompleted:
        """Return the end of a call whose handler has returned."""
        return ToolCallCompleted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            tool_name=call.tool,
            tool_call_id=call.id,
            result=result,
        )

    def call_failed(self, call: Call, end: Failed) -> ToolCallFailed:
        """Return the end of a call in any other way."""
        return ToolCallFailed(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            tool_name=call.tool,
            tool_call_id=call.id,
            error=shown(end.error) or "The tool failed",
            error_code=end.code,
            error_path=shown(end.path) or UNSET,
            retryable=end.retryable,
            outcome=end.outcome,
        )

    def approval_requested(self, call: Call, ask: AskApproval) -> ToolApprovalRequested:
        """Return the event that asks a person."""
        return ToolApprovalRequested(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            metadata=ask.metadata,
            tool_name=call.tool,
            tool_call_id=call.id,
            tool_args=call.args,
            risk=ask.risk,
        )

    def approval_rejected(self, call: Call, code: RejectionCode, why: str) -> ToolApprovalRejected:
        """Return the machine's own end of a wait."""
        return ToolApprovalRejected(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            tool_name=call.tool,
            tool_call_id=call.id,
            error_code=code,
            reason=why,
        )

    def exhausted(self, calls: list[JsonObject], max_iterations: int) -> AgentTurnExhausted:
        """Return the end of a turn whose last step still asked for tools."""
        return AgentTurnExhausted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            max_iterations=max_iterations,
            pending_tool_calls=_fitting(calls),
            reason="max_iterations",
        )

    def failed(self, failure: RunnerFailed) -> AgentTurnFailed:
        """Return the end of a turn in an error."""
        return AgentTurnFailed(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
            error=shown(failure.message) or "Agent turn failed",
            error_code=failure.code or UNSET,
            phase=failure.phase or UNSET,
            retryable=failure.retryable,
            outcome=failure.outcome,
        )

    def cancelled(self) -> CancellationCompleted:
        """Return the end of a turn that was interrupted."""
        return CancellationCompleted(
            id=self._stamps.event(),
            timestamp=self._stamps.now(),
            session_id=self.session_id,
            turn_id=self.turn_id,
        )


def _fitting(calls: list[JsonObject]) -> list[JsonObject]:
    """Return the calls that were left over; without their arguments if those do not fit one event together."""
    if len(_encode(calls)) <= MAX_EVENT_BYTES - MAX_VALUE_BYTES:
        return calls
    return [{**call, "arguments": {"__parse_error": "payload too large"}} for call in calls]
