"""Stored events as far as threads are made of them: what is only passed on is not looked into.

The types are those of `roost.schemas.event`; members that a thread has no use for are stepped over.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    """What is read of every event."""

    id: str
    timestamp: float
    turn_id: str = ""

    @property
    def at_ms(self) -> int:
        """When it was, in milliseconds since 1970."""
        return round(self.timestamp * 1000)


class SeenTokens(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens that a step has used."""

    input: int
    output: int


class SeenSaid(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is read of the metadata of a person's message, whatever its type."""

    display: object = msgspec.field(default=UNSET, name="displayUserMessage")
    input: object = UNSET
    model: object = UNSET


class SeenMark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is read of the metadata of an agent's message."""

    final: object = UNSET


class SeenCreated(Seen, frozen=True, kw_only=True, tag="session.created"):
    """A session exists."""


class SeenClosed(Seen, frozen=True, kw_only=True, tag="session.closed"):
    """It takes no further message."""


class SeenUserMessage(Seen, frozen=True, kw_only=True, tag="user.message"):
    """A person's message."""

    content: str
    metadata: SeenSaid = SeenSaid()


class SeenAudio(Seen, frozen=True, kw_only=True, tag="user.audio.chunk"):
    """Audio arrived."""


class SeenPartial(Seen, frozen=True, kw_only=True, tag="transcript.partial"):
    """A provisional transcript."""


class SeenTranscript(Seen, frozen=True, kw_only=True, tag="transcript.final"):
    """A settled transcript."""

    text: str


class SeenRetrieval(Seen, frozen=True, kw_only=True, tag="memory.retrieval.started"):
    """A retrieval begins."""

    query: str


class SeenRetrieved(Seen, frozen=True, kw_only=True, tag="memory.retrieval.completed"):
    """A retrieval has ended."""

    query: str
    documents: msgspec.Raw


class SeenReasoning(Seen, frozen=True, kw_only=True, tag="agent.reasoning.started"):
    """A step begins."""


class SeenDelta(Seen, frozen=True, kw_only=True, tag="agent.message.delta"):
    """A piece of streamed text."""

    delta: str


class SeenMessage(Seen, frozen=True, kw_only=True, tag="agent.message.completed"):
    """The text of a step is whole."""

    content: str
    tokens: SeenTokens | None = None
    metadata: SeenMark = SeenMark()


class SeenExhausted(Seen, frozen=True, kw_only=True, tag="agent.turn.exhausted"):
    """The last allowed step still asked for tools."""

    max_iterations: int


class SeenFailed(Seen, frozen=True, kw_only=True, tag="agent.turn.failed"):
    """A turn has ended in an error."""

    error: str
    error_code: str = ""
    retryable: bool | UnsetType = UNSET


class SeenCall(Seen, frozen=True, kw_only=True):
    """What is read of every event of a call."""

    tool_name: str
    tool_call_id: str


class SeenRequested(SeenCall, frozen=True, kw_only=True, tag="tool.call.requested"):
    """A call was asked for."""

    tool_args: msgspec.Raw


class SeenStarted(SeenCall, frozen=True, kw_only=True, tag="tool.call.started"):
    """Its handler runs."""


class SeenCompleted(SeenCall, frozen=True, kw_only=True, tag="tool.call.completed"):
    """Its handler has returned."""

    result: msgspec.Raw


class SeenCallFailed(SeenCall, frozen=True, kw_only=True, tag="tool.call.failed"):
    """Every other end of a call."""

    error: str
    error_code: str = ""
    outcome: str = ""


class SeenAsked(SeenCall, frozen=True, kw_only=True, tag="tool.approval.requested"):
    """Somebody has to decide."""

    tool_args: msgspec.Raw
    risk: str


class SeenApproved(SeenCall, frozen=True, kw_only=True, tag="tool.approval.approved"):
    """Yes."""


class SeenRejected(SeenCall, frozen=True, kw_only=True, tag="tool.approval.rejected"):
    """No, or no answer."""

    error_code: str
    reason: str


class SeenWorkflow(Seen, frozen=True, kw_only=True, tag="workflow.started"):
    """A workflow begins."""

    workflow_name: str


class SeenWorkflowDone(Seen, frozen=True, kw_only=True, tag="workflow.completed"):
    """A workflow has ended."""

    workflow_name: str
    result: msgspec.Raw


class SeenWorkflowFailed(Seen, frozen=True, kw_only=True, tag="workflow.failed"):
    """A workflow has failed."""

    workflow_name: str
    error: str


class SeenCancel(Seen, frozen=True, kw_only=True, tag="cancellation.requested"):
    """Somebody asked to stop."""


class SeenCancelled(Seen, frozen=True, kw_only=True, tag="cancellation.completed"):
    """The turn has stopped because of it."""


AnySeen = (
    SeenCreated
    | SeenClosed
    | SeenUserMessage
    | SeenAudio
    | SeenPartial
    | SeenTranscript
    | SeenRetrieval
    | SeenRetrieved
    | SeenReasoning
    | SeenDelta
    | SeenMessage
    | SeenExhausted
    | SeenFailed
    | SeenRequested
    | SeenStarted
    | SeenCompleted
    | SeenCallFailed
    | SeenAsked
    | SeenApproved
    | SeenRejected
    | SeenWorkflow
    | SeenWorkflowDone
    | SeenWorkflowFailed
    | SeenCancel
    | SeenCancelled
)

seen_decoder: msgspec.json.Decoder[AnySeen] = msgspec.json.Decoder(AnySeen)
