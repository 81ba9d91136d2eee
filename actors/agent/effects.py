"""What the turn machine is told about a call, what it needs of its surroundings, and what it wants done; pure."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from roost.actors.agent.calls import Failed
from roost.actors.agent.runner import CallRequest, CallResult
from roost.schemas.base import CallId
from roost.schemas.event import AnyEvent, JsonObject, Risk
from roost.schemas.turn import Change, QueuedMessage


class Allow(msgspec.Struct, frozen=True):
    """The call may run."""


class Refuse(msgspec.Struct, frozen=True):
    """The call does not run."""

    end: Failed


class AskApproval(msgspec.Struct, frozen=True):
    """A person decides; `body` is what the client shows, `keys` what a wider scope would cover."""

    risk: Risk
    body: bytes
    keys: tuple[str, ...] = ()
    metadata: JsonObject = {}


class AskQuestion(msgspec.Struct, frozen=True):
    """The call itself is a question to the user."""

    body: bytes


Verdict = Allow | Refuse | AskApproval | AskQuestion


class Plan(msgspec.Struct, frozen=True):
    """What a requested call is: the tool's own name, and whether neighbours may run beside it."""

    tool: str
    parallel: bool = False


class Policy(Protocol):
    """What is allowed here; pure."""

    def plan(self, request: CallRequest) -> Plan:
        """Return what this call is."""
        ...

    def judge(self, tool: str, args: JsonObject, fault: str) -> Verdict:
        """Return what becomes of this call, given what has been approved until now."""
        ...


class Stamps(Protocol):
    """Where ids and times come from."""

    def event(self) -> str:
        """Return a new event id."""
        ...

    def call(self) -> CallId:
        """Return a new call id."""
        ...

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        ...


Mark = Literal["", "begun", "started", "settled", "ended", "only"]
"""Which draft it is, for when it is answered: the first, the last (or both), a call's start, the end of a wait."""


class Emit(msgspec.Struct, frozen=True):
    """Write an event (or, without one, only changes). When it is on disk, say so: `mark` with `call_id`."""

    event: AnyEvent | None
    changes: tuple[Change, ...] = ()
    mark: Mark = ""
    call_id: str = ""


class Think(msgspec.Struct, frozen=True):
    """Ask the runner for the next step; `steers` are the messages that have come into the turn since the last one."""

    results: tuple[CallResult, ...]
    steers: tuple[QueuedMessage, ...] = ()


class AskSteers(msgspec.Struct, frozen=True):
    """The turn cannot end before it has read a message that the store has and this process does not; get it."""


class StopThinking(msgspec.Struct, frozen=True):
    """Cancel the runner; answer with `runner_stopped`."""


class LimitQueue(msgspec.Struct, frozen=True):
    """The call could run but for a permit: its time limit begins; once it has passed answer with `queue_expired`."""

    call_id: CallId
    tool: str
    args: JsonObject


class TakePermit(msgspec.Struct, frozen=True):
    """Get the call a permit, at once or later, and answer with `permitted`; its time limit begins, as above."""

    call_id: CallId
    tool: str
    args: JsonObject


class Release(msgspec.Struct, frozen=True):
    """The call needs no permit any more, whether it has one or waits for it."""

    call_id: CallId


class Recall(msgspec.Struct, frozen=True):
    """The call has been started before; look up how it ended and answer with `recalled`."""

    call_id: CallId


class RunTool(msgspec.Struct, frozen=True):
    """Run the handler; answer with `tool_ended`."""

    call_id: CallId
    tool: str
    args: JsonObject


class StopTool(msgspec.Struct, frozen=True):
    """Cancel the handler; answer with `tool_stopped`, or with `tool_ended` if it ended by itself."""

    call_id: CallId


class LimitWait(msgspec.Struct, frozen=True):
    """Somebody has been asked; if there is a time limit, answer with `wait_expired`."""

    call_id: CallId


Effect = (
    Emit
    | Think
    | AskSteers
    | StopThinking
    | LimitQueue
    | TakePermit
    | Release
    | Recall
    | RunTool
    | StopTool
    | LimitWait
)
