"""Which calls of a batch may run: judged one at a time in order, those that need a person wait; pure.

The log decides about a wait: a time limit or a cancel writes its own end, and if a client was first the call goes on
from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.agent.calls import STOPPED, Call, Logged, Stage, StopCode, rejected
from roost.actors.agent.effects import (
    Allow,
    AskApproval,
    AskQuestion,
    Emit,
    LimitWait,
    Policy,
    Refuse,
    Stamps,
)
from roost.schemas.approval import PendingRow
from roost.schemas.turn import OpenPending, SettlePending

if TYPE_CHECKING:
    from roost.actors.agent.emitter import Emitter
    from roost.actors.agent.events import EventMaker
    from roost.schemas.event import RejectionCode


class Decisions:
    """The calls of a batch until each may run or has its end. `stopping` says why the turn stops them, if it does."""

    def __init__(
        self,
        calls: list[Call],
        emitter: Emitter,
        events: EventMaker,
        stamps: Stamps,
        policy: Policy,
    ) -> None:
        self.calls = calls
        self.stopping: StopCode | None = None
        self._emitter = emitter
        self._events = events
        self._stamps = stamps
        self._policy = policy

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing happens until a person decides."""
        return any(call.stage is Stage.WAITING for call in self.calls)

    @property
    def awaits_approval(self) -> bool:
        """Return whether an approval has been asked for, and its end is not on disk."""
        waiting = (Stage.WAITING, Stage.SETTLING)
        return any(call.stage in waiting and not call.asks_question for call in self.calls)

    def decide(self) -> bool:
        """Judge what can be judged; return whether all calls are decided, otherwise one of them waits."""
        for call in self.calls:
            if call.stage is Stage.UNDECIDED:
                self._judge(call)
            if call.stage in (Stage.WAITING, Stage.SETTLING):
                return False
        return True

    def wait_again(self) -> None:
        """Limit the waits that another process has begun."""
        for call in self.calls:
            if call.stage is Stage.WAITING and not call.asks_question:
                self._emitter.want(LimitWait(call.id))

    def decided(self, row: PendingRow) -> None:
        """A pending row was settled by a client."""
        call = find(self.calls, row.request_id, Stage.WAITING, Stage.SETTLING)
        if call is None or row.state == "open":
            return
        if call.logged is Logged.REJECTED:
            if row.state not in ("approved", "denied"):
                return  # it may be our own end, which is still to be answered
            call.unlog()  # our own end will be refused
        if call.logged is Logged.WAITING:
            verdict = "approved" if row.state == "approved" else "rejected"
            self._emitter.last = f"tool.approval.{verdict}"
            call.log(self._emitter.last)
        self._apply(call, row)

    def wait_expired(self, call_id: str) -> None:
        """Nobody decided in time."""
        call = find(self.calls, call_id, Stage.WAITING)
        if call is not None:
            self.end_wait(call, "APPROVAL_TIMEOUT")

    def settled(self, call_id: str) -> None:
        """Our own end of a wait is on disk."""
        call = find(self.calls, call_id, Stage.SETTLING)
        if call is not None:
            call.settle(rejected(call.why))

    def settle_refused(self, call_id: str) -> None:
        """A client was first: the log holds its decision, which comes as `decided`."""
        call = find(self.calls, call_id, Stage.SETTLING)
        if call is not None and not call.asks_question:
            call.unlog()
            self._emitter.last = "tool.approval.requested"

    def end_wait(self, call: Call, why: RejectionCode) -> None:
        """End a wait ourselves; whether that counts is known when the draft is answered."""
        call.stage = Stage.SETTLING
        call.why = why
        reason = rejected(why).error
        change = SettlePending(
            request_id=call.id,
            state="cancelled" if why == "TOOL_CANCELLED" else "timeout",
            reason=reason,
        )
        if call.asks_question:
            self._emitter.want(Emit(None, (change,), "settled", call.id))
        else:
            event = self._events.approval_rejected(call, why, reason)
            self._emitter.emit(event, change, mark="settled", call=call)

    def _judge(self, call: Call) -> None:
        match self._policy.judge(call.tool, call.args, call.fault):
            case Allow():
                call.stage = Stage.READY
            case Refuse(end=end):
                call.settle(end)
            case AskApproval() as ask:
                call.stage = Stage.WAITING
                event = self._events.approval_requested(call, ask)
                opened = OpenPending(row=self._row(call, ask, event.id))
                self._emitter.emit(event, opened, call=call)
                self._emitter.want(LimitWait(call.id))
            case AskQuestion() as question:
                call.asks_question = True
                call.stage = Stage.WAITING
                self._emitter.want(Emit(None, (OpenPending(row=self._row(call, question)),)))

    def _row(self, call: Call, ask: AskApproval | AskQuestion, event_id: str = "") -> PendingRow:
        approval = ask if isinstance(ask, AskApproval) else None
        return PendingRow(
            request_id=call.id,
            kind="approval" if approval else "question",
            turn_id=self._events.turn_id,
            tool_name=call.tool,
            body=ask.body,
            opened_at=int(self._stamps.now() * 1000),
            event_id=event_id,
            risk=approval.risk if approval else "",
            grant_keys=approval.keys if approval else (),
        )

    def _apply(self, call: Call, row: PendingRow) -> None:
        match row.state:
            case "approved" | "answered" if self.stopping is not None:
                call.settle(STOPPED[self.stopping][0])
            case "approved" | "answered":
                call.answer = msgspec.json.decode(row.answer) if row.answer else None
                call.stage = Stage.READY
            case "denied":
                call.settle(rejected("APPROVAL_REJECTED", row.reason))
            case "cancelled" if call.asks_question and self.stopping is None:
                call.answer = {"action": "cancel"}
                call.stage = Stage.READY
            case "timeout":
                call.settle(rejected("APPROVAL_TIMEOUT"))
            case "unavailable":
                call.settle(rejected("APPROVAL_UNAVAILABLE"))
            case _:
                call.settle(rejected("TOOL_CANCELLED"))


def find(calls: list[Call], call_id: str, *stages: Stage) -> Call | None:
    """Return the call of this id if it is in one of these stages."""
    for call in calls:
        if call.id == call_id and call.stage in stages:
            return call
    return None
