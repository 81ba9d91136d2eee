"""The stored events: the 25 types of format version 1.0 (L 1, 2).

A draft is an event without `sequence`; only the store gives one. Optional fields that may not be null are `UNSET`
when absent. What a struct cannot say (safe integers, byte limits, the recovery table) is checked where events come
from outside.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Id = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
ShortText = Annotated[str, Meta(min_length=1, max_length=200)]
JsonObject = dict[str, object]
Risk = Literal["read", "write", "external_effect", "destructive", "admin"]
Outcome = Literal["not_started", "failed", "unknown"]
Phase = Literal["queue", "provider_open", "provider_stream", "approval", "tool"]
RejectionCode = Literal[
    "APPROVAL_REJECTED",
    "APPROVAL_TIMEOUT",
    "TURN_TIMEOUT",
    "TOOL_CANCELLED",
    "APPROVAL_UNAVAILABLE",
]

# What `\S` is in a JSON Schema, whose patterns are ECMAScript's: U+FEFF is white space there, U+0085 is none.
INK = r"[^\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
has_ink = re.compile(INK).search

MAX_EVENT_BYTES = 1_048_576
MAX_VALUE_BYTES = 65_536
MAX_DELTA_BYTES = 4_096
# How much is kept of why somebody cancels or closes something; the format has no bound of its own.
MAX_REASON = 4_096


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens that a message or a call has used."""

    input: Count
    output: Count


class Event(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    """What every event has. `timestamp` is in seconds since 1970 and orders nothing."""

    id: Id
    timestamp: float
    session_id: Id
    version: Literal["1.0"] = "1.0"
    turn_id: Id | UnsetType = UNSET
    metadata: JsonObject = {}
    sequence: Annotated[int, Meta(ge=1)] | UnsetType = UNSET

    durable: ClassVar[bool] = True
    """Whether a group that holds this event commits at once; text deltas alone may wait a little."""


class SessionCreated(Event, frozen=True, kw_only=True, tag="session.created"):
    """A session exists."""


class SessionClosed(Event, frozen=True, kw_only=True, tag="session.closed"):
    """A session takes no further message."""

    reason: str | UnsetType | None = UNSET


class UserMessage(Event, frozen=True, kw_only=True, tag="user.message"):
    """A person's message; the first of a turn opens it."""

    content: str


class UserAudioChunk(Event, frozen=True, kw_only=True, tag="user.audio.chunk"):
    """Audio arrived; its bytes are not in the log."""

    chunk_size_bytes: int


class TranscriptPartial(Event, frozen=True, kw_only=True, tag="transcript.partial"):
    """A provisional transcript."""

    text: str


class TranscriptFinal(Event, frozen=True, kw_only=True, tag="transcript.final"):
    """A settled transcript; counts as a user's message."""

    text: str


class MemoryRetrievalStarted(Event, frozen=True, kw_only=True, tag="memory.retrieval.started"):
    """A retrieval begins."""

    query: str


class MemoryRetrievalCompleted(Event, frozen=True, kw_only=True, tag="memory.retrieval.completed"):
    """A retrieval has ended."""

    query: str
    documents: list[JsonObject]


class AgentReasoningStarted(Event, frozen=True, kw_only=True, tag="agent.reasoning.started"):
    """One request to what thinks begins."""


class AgentMessageDelta(Event, frozen=True, kw_only=True, tag="agent.message.delta"):
    """A piece of streamed text, at most 4,096 bytes."""

    delta: str

    durable: ClassVar[bool] = False


class AgentMessageCompleted(Event, frozen=True, kw_only=True, tag="agent.message.completed"):
    """The text of one iteration is whole; with `metadata.final` true it ends its turn (T 6.5)."""

    content: str
    tokens: TokenUsage | UnsetType | None = UNSET
    cost_usd: Annotated[float, Meta(ge=0)] | UnsetType | None = UNSET


class AgentTurnExhausted(Event, frozen=True, kw_only=True, tag="agent.turn.exhausted"):
    """The last allowed iteration still asked for tools."""

    max_iterations: Count
    pending_tool_calls: list[JsonObject]
    reason: str | UnsetType | None = UNSET


class AgentTurnFailed(Event, frozen=True, kw_only=True, tag="agent.turn.failed"):
    """A turn has ended in an error (L 11.2)."""

    turn_id: Id  # pyright: ignore[reportGeneralTypeIssues] - here it is required, and every field is keyword-only
    error: ShortText
    error_code: str | UnsetType = UNSET
    phase: Phase | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET


class ToolEvent(Event, frozen=True, kw_only=True):
    """What every event of a tool call has."""

    turn_id: Id  # pyright: ignore[reportGeneralTypeIssues] - likewise
    tool_name: Id
    tool_call_id: Id


class ToolCallRequested(ToolEvent, frozen=True, kw_only=True, tag="tool.call.requested"):
    """What thinks asked for a call."""

    tool_args: JsonObject


class ToolCallStarted(ToolEvent, frozen=True, kw_only=True, tag="tool.call.started"):
    """Acknowledged before the handler runs."""


class ToolCallCompleted(ToolEvent, frozen=True, kw_only=True, tag="tool.call.completed"):
    """The handler has returned."""

    result: object
    tokens: TokenUsage | UnsetType | None = UNSET
    cost_usd: Annotated[float, Meta(ge=0)] | UnsetType | None = UNSET


class ToolCallFailed(ToolEvent, frozen=True, kw_only=True, tag="tool.call.failed"):
    """Every other end of a call (L 9.3)."""

    error: ShortText
    error_code: str | UnsetType = UNSET
    error_path: str | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    reason_code: str | UnsetType = UNSET
    recovery_code: str | UnsetType = UNSET
    doc_url: str | UnsetType = UNSET


class ToolApprovalRequested(ToolEvent, frozen=True, kw_only=True, tag="tool.approval.requested"):
    """Policy wants a decision."""

    tool_args: JsonObject
    risk: Risk


class ToolApprovalApproved(ToolEvent, frozen=True, kw_only=True, tag="tool.approval.approved"):
    """Yes."""


class ToolApprovalRejected(ToolEvent, frozen=True, kw_only=True, tag="tool.approval.rejected"):
    """No, or no answer."""

    error_code: RejectionCode
    reason: Annotated[str, Meta(min_length=1, max_length=200, pattern=INK)]


class WorkflowStarted(Event, frozen=True, kw_only=True, tag="workflow.started"):
    """A workflow begins."""

    workflow_name: str


class WorkflowCompleted(Event, frozen=True, kw_only=True, tag="workflow.completed"):
    """A workflow has ended."""

    workflow_name: str
    result: object


class WorkflowFailed(Event, frozen=True, kw_only=True, tag="workflow.failed"):
    """A workflow has failed."""

    workflow_name: str
    error: str


class CancellationRequested(Event, frozen=True, kw_only=True, tag="cancellation.requested"):
    """Somebody asked to stop."""

    reason: str


class CancellationCompleted(Event, frozen=True, kw_only=True, tag="cancellation.completed"):
    """The turn has stopped because of it."""


AnyEvent = (
    SessionCreated
    | SessionClosed
    | UserMessage
    | UserAudioChunk
    | TranscriptPartial
    | TranscriptFinal
    | MemoryRetrievalStarted
    | MemoryRetrievalCompleted
    | AgentReasoningStarted
    | AgentMessageDelta
    | AgentMessageCompleted
    | AgentTurnExhausted
    | AgentTurnFailed
    | ToolCallRequested
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallFailed
    | ToolApprovalRequested
    | ToolApprovalApproved
    | ToolApprovalRejected
    | WorkflowStarted
    | WorkflowCompleted
    | WorkflowFailed
    | CancellationRequested
    | CancellationCompleted
)


def is_final(event: AnyEvent) -> bool:
    """Return whether the event ends its turn (T 6.5)."""
    match event:
        case AgentTurnFailed() | AgentTurnExhausted() | CancellationCompleted():
            return True
        case AgentMessageCompleted(metadata=metadata):
            return metadata.get("final") is True
        case _:
            return False
