"""What becomes of a turn that lost the process it ran in; pure.

A turn is parked when nothing of it can have happened unseen: no call runs, and at least one waits for a decision, or
has got one that nobody has acted on. Every other turn is closed: its calls, then the turn itself. A question has no
effect, so a call that asks one does not count as running. The store uses this at a cold start and for agents that root
gave up, a session actor at each of its starts.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

import msgspec

from roost.schemas import event
from roost.schemas.base import CallId, EventId
from roost.schemas.event import AnyEvent
from roost.schemas.turn import CUT_OFF, Draft, EndTurn, SettleCall, SettlePending, TurnOutcome
from roost.schemas.unions import event_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roost.schemas.approval import PendingRow
    from roost.schemas.base import SessionId, TurnId
    from roost.schemas.turn import Change

NAMESPACE = uuid.UUID("8f1d6a52-94a5-5d0c-9a53-1a0c5b0f6f3e")
INTERRUPTED = "TURN_INTERRUPTED"
REJECTED_TEXT = "The turn was interrupted before a decision"
NOT_STARTED_TEXT = "Tool call cancelled before it started"
UNKNOWN_TEXT = "Tool call interrupted; its effect is unknown"
MAX_TEXT = 200


class Step(msgspec.Struct, frozen=True):
    """One event of a repair; `settles` is the approval that it answers, `ends` the started call, or empty."""

    event: AnyEvent
    settles: str = ""
    ends: SettleCall | None = None


class Plan(msgspec.Struct, frozen=True):
    """What to do about an open turn: leave it parked, or write the steps and end it with the outcome."""

    parked: bool
    steps: tuple[Step, ...] = ()
    outcome: TurnOutcome = "failed"
    error: str = ""


class Call(msgspec.Struct):
    """A tool call as the log shows it."""

    id: str
    name: str
    started: bool = False
    ended: bool = False
    unknown: bool = False
    asked: bool = False
    decided: bool = False


def derived_id(session_id: str, turn_id: str, call_id: str, kind: str) -> EventId:
    """Return the id of a repair event: the same one for the same repair."""
    name = f"{session_id}\0{turn_id}\0{call_id}\0{kind}"
    return EventId(str(uuid.uuid5(NAMESPACE, name)))


def plan_recovery(
    session_id: SessionId,
    turn_id: TurnId,
    events: Iterable[AnyEvent],
    pending: Sequence[PendingRow],
    *,
    cancelled: bool,
    timestamp: float,
    may_park: bool = True,
    reason: str = "",
    code: str = "",
    whole: bool = True,
) -> Plan:
    """Return what to do about an open turn with these events (text deltas may be left out) and pending rows.

    `reason` is for people: why the process was ended, if that is known. `code` says that the turn was not interrupted by
    a crash, but cannot go on, and would not another time. A turn of which not all events could be read (`whole`) may have
    done what nobody knows of.
    """
    calls: dict[str, Call] = {}
    for found in events:
        if found.turn_id != turn_id:
            continue
        if event.is_final(found):
            return _ended_by(found)
        _fold(calls, found)
    questions = {row.request_id for row in pending if row.kind == "question"}
    if may_park and not cancelled and _is_parked(calls, questions, pending):
        return Plan(parked=True)
    repair = _Repair(session_id, turn_id, timestamp)
    for call in calls.values():
        if not call.ended:
            repair.close(call, harmless=call.id in questions)
    unknown = not whole or any(call.unknown for call in calls.values())
    return repair.cancel() if cancelled else repair.fail(unknown, reason, code)


def repair_drafts(
    plan: Plan,
    session_id: SessionId,
    turn_id: TurnId,
    generation: int,
    pending: Sequence[PendingRow],
) -> tuple[Draft, ...]:
    """Return the drafts with which a session actor carries out a plan; none for a parked turn."""
    if plan.parked:
        return ()
    waiting = {row.request_id for row in pending if row.state == "open"}
    end = EndTurn(turn_id=turn_id, outcome=plan.outcome, error=plan.error)
    if not plan.steps:
        event_id = derived_id(session_id, turn_id, "", "end")
        return (_draft(session_id, turn_id, generation, event_id, "", b"", (end,)),)
    drafts: list[Draft] = []
    for number, step in enumerate(plan.steps, 1):
        changes: list[Change] = []
        if step.settles in waiting:
            settle = SettlePending(
                request_id=CallId(step.settles), state="cancelled", reason=REJECTED_TEXT
            )
            changes.append(settle)
        if step.ends is not None:
            changes.append(step.ends)
        if number == len(plan.steps):
            changes.append(end)
        kind = str(step.event.__struct_config__.tag)
        body = event_encoder.encode(step.event)
        event_id = EventId(step.event.id)
        drafts.append(_draft(session_id, turn_id, generation, event_id, kind, body, tuple(changes)))
    return tuple(drafts)


def _draft(
    session_id: SessionId,
    turn_id: TurnId,
    generation: int,
    event_id: EventId,
    kind: str,
    body: bytes,
    changes: tuple[Change, ...],
) -> Draft:
    return Draft(
        session_id=session_id,
        generation=generation,
        event_id=event_id,
        type=kind,
        turn_id=turn_id,
        body=body,
        changes=changes,
    )


def _fold(calls: dict[str, Call], found: AnyEvent) -> None:
    if not isinstance(found, event.ToolEvent):
        return
    call = calls.get(found.tool_call_id)
    if call is None:
        call = calls[found.tool_call_id] = Call(found.tool_call_id, found.tool_name)
    match found:
        case event.ToolCallStarted():
            call.started = True
        case event.ToolCallCompleted():
            call.ended = True
        case event.ToolCallFailed(outcome=outcome):
            call.ended = True
            call.unknown = outcome == "unknown"
        case event.ToolApprovalRequested():
            call.asked = True
        case event.ToolApprovalApproved() | event.ToolApprovalRejected():
            call.decided = True
        case _:
            pass


def _is_parked(
    calls: dict[str, Call], questions: set[CallId], pending: Sequence[PendingRow]
) -> bool:
    left = [call for call in calls.values() if not call.ended]
    if any(call.started and call.id not in questions for call in left):
        return False
    rows = {row.request_id for row in pending}
    return any(call.id in rows for call in left)


def _ended_by(final: AnyEvent) -> Plan:
    match final:
        case event.AgentMessageCompleted():
            return Plan(parked=False, outcome="completed")
        case event.CancellationCompleted():
            return Plan(parked=False, outcome="interrupted")
        case event.AgentTurnFailed(error=error):
            return Plan(parked=False, error=error)
        case _:
            return Plan(parked=False)


class _Repair:
    """The events of one repair, as they are made."""

    def __init__(self, session_id: SessionId, turn_id: TurnId, timestamp: float) -> None:
        self._session_id = session_id
        self._turn_id = turn_id
        self._timestamp = timestamp
        self._steps: list[Step] = []

    def close(self, call: Call, *, harmless: bool) -> None:
        """End a call; one that had started, and may have had an effect, becomes unknown."""
        if call.asked and not call.decided:
            rejected = event.ToolApprovalRejected(
                id=self._id(call.id, "rejected"),
                timestamp=self._timestamp,
                session_id=self._session_id,
                turn_id=self._turn_id,
                tool_name=call.name,
                tool_call_id=call.id,
                error_code="TOOL_CANCELLED",
                reason=REJECTED_TEXT,
            )
            self._steps.append(Step(rejected, call.id))
        call.unknown = call.started and not harmless
        failed = event.ToolCallFailed(
            id=self._id(call.id, "failed"),
            timestamp=self._timestamp,
            session_id=self._session_id,
            turn_id=self._turn_id,
            tool_name=call.name,
            tool_call_id=call.id,
            error=UNKNOWN_TEXT if call.unknown else NOT_STARTED_TEXT,
            error_code="TOOL_CANCELLED",
            retryable=not call.unknown,
            outcome="unknown" if call.unknown else "not_started",
        )
        ends = None
        if call.started:
            state: Literal["unknown", "released"] = "unknown" if call.unknown else "released"
            ends = SettleCall(call_id=CallId(call.id), state=state)
        self._steps.append(Step(failed, ends=ends))

    def cancel(self) -> Plan:
        """End the turn as it was asked to."""
        done = event.CancellationCompleted(
            id=self._id("", "cancelled"),
            timestamp=self._timestamp,
            session_id=self._session_id,
            turn_id=self._turn_id,
        )
        return Plan(parked=False, steps=(*self._steps, Step(done)), outcome="interrupted")

    def fail(self, unknown: bool, reason: str, code: str) -> Plan:
        """End the turn as interrupted."""
        text = f"{CUT_OFF} ({reason})"[:MAX_TEXT] if reason else CUT_OFF
        failed = event.AgentTurnFailed(
            id=self._id("", "turn_failed"),
            timestamp=self._timestamp,
            session_id=self._session_id,
            turn_id=self._turn_id,
            error=text,
            error_code=code or INTERRUPTED,
            retryable=not (unknown or code),
            outcome="unknown" if unknown else "failed",
        )
        return Plan(parked=False, steps=(*self._steps, Step(failed)), error=text)

    def _id(self, call_id: str, kind: str) -> str:
        return derived_id(self._session_id, self._turn_id, call_id, kind)
