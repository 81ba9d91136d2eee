"""The calls of one step: decided one at a time in order, then run, then ended together in order; pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from roost.actors.agent.calls import (
    ALREADY_STARTED,
    CANCELLED_AFTER,
    NOT_CLAIMED,
    STOPPED,
    TIMED_OUT_BEFORE,
    Call,
    Completed,
    End,
    Failed,
    Logged,
    Stage,
    StopCode,
)
from roost.actors.agent.decisions import Decisions, find
from roost.actors.agent.effects import (
    Emit,
    LimitQueue,
    Policy,
    Recall,
    Release,
    RunTool,
    Stamps,
    StopTool,
    TakePermit,
)
from roost.schemas import canonical
from roost.schemas.base import CallId
from roost.schemas.turn import ClaimCall, EndCall, SettleCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.agent.emitter import Emitter
    from roost.actors.agent.events import EventMaker
    from roost.actors.agent.runner import CallRequest
    from roost.schemas.event import JsonObject
    from roost.schemas.turn import Change

PARALLEL_CALLS = 4

_HOLDS_UP = (Stage.QUEUED, Stage.STARTING, Stage.RUNNING, Stage.RECALLING)


class Batch:
    """Requested calls on their way to their ends."""

    def __init__(
        self,
        calls: list[Call],
        emitter: Emitter,
        events: EventMaker,
        stamps: Stamps,
        policy: Policy,
    ) -> None:
        self.calls = calls
        self.decisions = Decisions(calls, emitter, events, stamps, policy)
        self._emitter = emitter
        self._events = events
        self._stamps = stamps
        self._policy = policy

    @property
    def requested(self) -> list[JsonObject]:
        """Return the calls as the model asked for them."""
        return [{"id": call.id, "name": call.tool, "arguments": call.args} for call in self.calls]

    @property
    def has_ended(self) -> bool:
        """Return whether it is settled how each call ends."""
        return all(call.stage is Stage.SETTLED for call in self.calls)

    def request(self, requests: Sequence[CallRequest], changes: tuple[Change, ...]) -> None:
        """Take up the calls that a step asks for; the first one's event carries the changes."""
        for asked in requests:
            plan = self._policy.plan(asked)
            call_id = self._stamps.call()
            call = Call(call_id, plan.tool, asked.args, parallel=plan.parallel, fault=asked.fault)
            self.calls.append(call)
            self._emitter.emit(self._events.call_requested(call), *changes, call=call)
            changes = ()

    def advance(self) -> None:
        """Go on as far as possible: decide, then run."""
        if self.decisions.decide():
            self._run()

    def queue_expired(self, call_id: str) -> None:
        """The time limit of a call has passed before it got a permit."""
        call = find(self.calls, call_id, Stage.READY, Stage.QUEUED)
        if call is not None and call.is_limited:
            self._settle(call, TIMED_OUT_BEFORE)

    def permitted(self, call_id: str) -> None:
        """The call has its permit."""
        call = find(self.calls, call_id, Stage.QUEUED)
        if call is None:
            self._emitter.want(Release(CallId(call_id)))
        else:
            self._start(call)

    def started(self, call_id: str) -> None:
        """The start of a call is on disk."""
        call = find(self.calls, call_id, Stage.STARTING)
        if call is None:
            return
        if self.decisions.stopping is not None:
            self._settle(call, STOPPED[self.decisions.stopping][1])
        elif call.is_stopped:
            self._settle(call, CANCELLED_AFTER)
        elif call.asks_question:
            self._settle(call, Completed(call.answer))
        else:
            call.stage = Stage.RUNNING
            self._emitter.want(RunTool(call.id, call.tool, call.args))

    def start_refused(self, call_id: str, code: str) -> None:
        """The store does not let the call start."""
        call = find(self.calls, call_id, Stage.STARTING)
        if call is None:
            return
        call.unlog()
        if code == ALREADY_STARTED:
            call.stage = Stage.RECALLING
            self._emitter.want(Recall(call.id))
        else:
            self._settle(call, NOT_CLAIMED[code])

    def recalled(self, call_id: str, end: End) -> None:
        """It is known how a call ended that had been started before."""
        call = find(self.calls, call_id, Stage.RECALLING)
        if call is not None:
            self._settle(call, end)

    def tool_ended(self, call_id: str, end: End | None) -> None:
        """A handler has ended, or (None) has unwound because it was stopped."""
        call = find(self.calls, call_id, Stage.RUNNING)
        if call is not None:
            why = "TOOL_CANCELLED" if call.is_stopped else self.decisions.stopping
            self._settle(call, end or STOPPED[why or "TOOL_CANCELLED"][1])

    def can_stop(self, call_id: str) -> bool:
        """Return whether a call runs or is about to, and has not been asked to stop."""
        call = find(self.calls, call_id, Stage.STARTING, Stage.RUNNING)
        return call is not None and not call.is_stopped and self.decisions.stopping is None

    def stop_call(self, call_id: str) -> None:
        """Stop one call, whatever becomes of the others."""
        call = find(self.calls, call_id, Stage.STARTING, Stage.RUNNING)
        if call is None:
            return
        call.is_stopped = True
        if call.stage is Stage.RUNNING:
            self._emitter.want(StopTool(call.id))

    def stop(self, why: StopCode) -> None:
        """Let no further call start, and stop what runs or waits."""
        first = self.decisions.stopping is None
        self.decisions.stopping = why
        for call in self.calls:
            match call.stage:
                case Stage.UNDECIDED | Stage.READY | Stage.QUEUED:
                    self._settle(call, STOPPED[why][0])
                case Stage.WAITING:
                    self.decisions.end_wait(call, why)
                case Stage.RUNNING if first and not call.is_stopped:
                    self._emitter.want(StopTool(call.id))
                case _:
                    pass  # what is on its way comes back and is judged then

    def close(self) -> None:
        """Write the end of each call, in the order of their requests."""
        for call in self.calls:
            if call.logged is Logged.ENDED:
                continue  # written before the process that ran this turn ended
            changes = _settlement(call)
            match call.end:
                case Completed(result=result):
                    event = self._events.call_completed(call, result)
                    self._emitter.emit(event, *changes, call=call)
                case Failed() as end:
                    failed = self._events.call_failed(call, end)
                    self._emitter.emit(failed, *changes, call=call)
                case None:
                    raise ValueError("a call of a closed batch has no end")

    def _run(self) -> None:
        """Start what may start now: neighbours that run side by side, or one call alone."""
        holding = 0
        for call in self.calls:
            if call.stage in _HOLDS_UP:
                if not call.parallel:
                    return
                holding += 1
            elif call.stage is Stage.READY:
                if holding and not call.parallel:
                    return
                if holding < PARALLEL_CALLS:
                    self._ask_permit(call)
                    holding += 1
                elif not call.is_limited:
                    call.is_limited = True
                    self._emitter.want(LimitQueue(call.id, call.tool, call.args))
                if not call.parallel:
                    return

    def _ask_permit(self, call: Call) -> None:
        if call.asks_question:
            self._start(call)  # nothing runs
            return
        call.stage = Stage.QUEUED
        call.is_limited = True
        self._emitter.want(TakePermit(call.id, call.tool, call.args))

    def _start(self, call: Call) -> None:
        call.stage = Stage.STARTING
        fingerprint = sha256(canonical.encode([call.tool, call.args])).digest()
        claim = ClaimCall(call_id=call.id, fingerprint=fingerprint)
        self._emitter.emit(self._events.call_started(call), claim, mark="started", call=call)

    def _settle(self, call: Call, end: End) -> None:
        call.settle(end)
        if call.is_limited:
            call.is_limited = False
            self._emitter.want(Release(call.id))
        if call.logged is Logged.RUNNING and not self.has_ended:
            # Its event waits for those before and beside it; that it cannot be cancelled any more does not.
            self._emitter.want(Emit(None, (EndCall(call_id=call.id),)))


def _settlement(call: Call) -> tuple[SettleCall, ...]:
    """Return what becomes of the claim of a call, if it has one."""
    if call.logged is not Logged.RUNNING:
        return ()
    match call.end:
        case Completed():
            return (SettleCall(call_id=call.id, state="completed"),)
        case Failed(outcome="unknown"):
            return (SettleCall(call_id=call.id, state="unknown"),)
        case _:
            return (SettleCall(call_id=call.id, state="released"),)
