"""One tool call inside a turn: its states, and the ways in which it ends (L 9.2, 9.3); pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Literal

import msgspec

from roost.actors.agent.runner import CallResult
from roost.schemas.event import (
    AnyEvent,
    JsonObject,
    Outcome,
    RejectionCode,
    Risk,
    ToolCallCompleted,
    ToolCallFailed,
)

if TYPE_CHECKING:
    from roost.schemas.base import CallId

REASON_CHARACTERS = 200


class Logged(enum.Enum):
    """What the log says about a call."""

    NONE = "none"
    REQUESTED = "requested"
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    RUNNING = "running"
    ENDED = "ended"


NEXT: dict[Logged, dict[str, Logged]] = {
    Logged.NONE: {"tool.call.requested": Logged.REQUESTED},
    Logged.REQUESTED: {
        "tool.approval.requested": Logged.WAITING,
        "tool.call.started": Logged.RUNNING,
        "tool.call.completed": Logged.ENDED,
        "tool.call.failed": Logged.ENDED,
    },
    Logged.WAITING: {
        "tool.approval.approved": Logged.APPROVED,
        "tool.approval.rejected": Logged.REJECTED,
    },
    Logged.APPROVED: {
        "tool.call.started": Logged.RUNNING,
        "tool.call.completed": Logged.ENDED,
        "tool.call.failed": Logged.ENDED,
    },
    Logged.REJECTED: {"tool.call.failed": Logged.ENDED},
    Logged.RUNNING: {"tool.call.completed": Logged.ENDED, "tool.call.failed": Logged.ENDED},
    Logged.ENDED: {},
}
"""The table of L 9.2: what the log holds of a call → event → what it holds then."""


class Stage(enum.Enum):
    """What the machine does with a call."""

    UNDECIDED = "undecided"
    WAITING = "waiting"
    SETTLING = "settling"
    READY = "ready"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RECALLING = "recalling"
    SETTLED = "settled"


class Completed(msgspec.Struct, frozen=True):
    """The handler has returned."""

    result: object


class Failed(msgspec.Struct, frozen=True):
    """The call ended in another way."""

    error: str
    code: str
    retryable: bool = False
    outcome: Outcome = "not_started"
    path: str = ""


End = Completed | Failed

NOT_ALLOWED = Failed("The tool is not allowed here", "TOOL_NOT_ALLOWED")
CANCELLED_BEFORE = Failed(
    "The call was cancelled before it started", "TOOL_CANCELLED", retryable=True
)
CANCELLED_AFTER = Failed("The call was cancelled", "TOOL_CANCELLED", outcome="unknown")
LIMIT_BEFORE = Failed(
    "The turn took too long before the call started", "TURN_TIMEOUT", retryable=True
)
LIMIT_AFTER = Failed("The turn took too long", "TURN_TIMEOUT", outcome="unknown")
TIMED_OUT_BEFORE = Failed(
    "The call waited too long before it started", "TOOL_TIMEOUT", retryable=True
)
TIMED_OUT = Failed("The tool took too long", "TOOL_TIMEOUT", outcome="unknown")
EXECUTION_FAILED = Failed("The tool failed", "TOOL_EXECUTION_FAILED", outcome="unknown")
INVALID_RESULT = Failed(
    "The result of the tool cannot be stored", "INVALID_TOOL_RESULT", outcome="unknown"
)

StopCode = Literal["TOOL_CANCELLED", "TURN_TIMEOUT"]
"""Why the calls of a turn are stopped."""

STOPPED: dict[StopCode, tuple[Failed, Failed]] = {
    "TOOL_CANCELLED": (CANCELLED_BEFORE, CANCELLED_AFTER),
    "TURN_TIMEOUT": (LIMIT_BEFORE, LIMIT_AFTER),
}
"""How a call ends that is stopped: before its start, and after it."""

ALREADY_STARTED = "CALL_ALREADY_STARTED"
"""The store's refusal of the start of a call that it has seen the start of."""

NOT_CLAIMED: dict[str, Failed] = {
    "IDEMPOTENCY_CONFLICT": Failed("The call's id belongs to another call", "IDEMPOTENCY_CONFLICT"),
    "IDEMPOTENCY_CAPACITY_EXCEEDED": Failed(
        "The ledger of calls is full", "IDEMPOTENCY_CAPACITY_EXCEEDED", retryable=True
    ),
}
"""How a call ends whose start the store has refused for good."""

REJECTIONS: dict[RejectionCode, tuple[str, bool]] = {
    "APPROVAL_REJECTED": ("The call was denied", False),
    "APPROVAL_TIMEOUT": ("Nobody decided about the call in time", True),
    "TURN_TIMEOUT": ("The turn took too long", True),
    "TOOL_CANCELLED": ("The call was cancelled before it started", True),
    "APPROVAL_UNAVAILABLE": ("Nobody can decide about the call", False),
}
"""How a call ends that was not approved: the text, and whether the same call may be tried again."""


def rejected(code: RejectionCode, reason: str = "") -> Failed:
    """Return the end of a call that was not approved; what a person said about it is passed on."""
    text, retryable = REJECTIONS[code]
    if reason.strip() and code == "APPROVAL_REJECTED":
        text = f"{text}: {reason.strip()}"
    return Failed(text[:REASON_CHARACTERS], code, retryable=retryable)


STARTED_BEFORE = Failed(
    "The call was started before; its effect is unknown", "TOOL_EXECUTION_FAILED", outcome="unknown"
)


def ended_as(event: AnyEvent | None) -> End:
    """Return the end of a call that was started before, whose last event is this one; None if it has none."""
    match event:
        case ToolCallCompleted(result=result):
            return Completed(result)
        case ToolCallFailed(error=error, error_code=code, outcome="unknown") if code:
            return Failed(error, code, outcome="unknown")
        case _:
            return STARTED_BEFORE


class Call:
    """A requested call and how far it has got."""

    def __init__(
        self, call_id: CallId, tool: str, args: JsonObject, *, parallel: bool, fault: str = ""
    ) -> None:
        self.id = call_id
        self.tool = tool
        self.args = args
        self.fault = fault
        self.parallel = parallel
        self.logged = Logged.NONE
        self.stage = Stage.UNDECIDED
        self.end: End | None = None
        self.risk: Risk = "read"
        self.asks_question = False
        self.answer: object = None
        self.why: RejectionCode = "TOOL_CANCELLED"
        self.is_limited = False
        self.is_stopped = False
        self._logged_before = Logged.NONE

    @property
    def is_open(self) -> bool:
        """Return whether the call has no end yet."""
        return self.stage is not Stage.SETTLED

    def log(self, event_type: str) -> None:
        """Take note of an event of this call.

        Raises:
            ValueError: the table has no such step; the log would be wrong.
        """
        step = NEXT[self.logged].get(event_type)
        if step is None:
            raise ValueError(f"{event_type} of a call that is {self.logged.value}")
        self._logged_before = self.logged
        self.logged = step

    def unlog(self) -> None:
        """Take back the last event of this call, which the store has refused."""
        self.logged = self._logged_before

    def settle(self, end: End) -> None:
        """Fix how the call ends; its event is written when all calls of the batch have ended."""
        self.end = end
        self.stage = Stage.SETTLED

    def outcome(self) -> CallResult:
        """Return what the runner gets to see."""
        match self.end:
            case Completed(result=result):
                return CallResult(self.id, self.tool, self.args, result=result)
            case Failed(error=error, code=code):
                return CallResult(self.id, self.tool, self.args, error=error, code=code)
            case None:
                raise ValueError("the call has not ended")
