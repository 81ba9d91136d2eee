"""The state machine of a turn; pure: things that happened go in, events to write and things to do come out.

Rules (L 9, 11, 13; T 6.5):
- A turn has exactly one terminal event, and each requested call exactly one.
- A step's calls are a batch: all are requested, then decided one at a time in order, then run; their terminal events
  are written in request order once all have ended. Neighbouring parallel calls run at most four at once, any other
  alone.
- A handler runs only when its start is on disk. The log decides about an approval: a time limit or a cancel writes its
  own rejection, and if a client was first the call goes on from there.
- A cancelled turn ends with `cancellation.completed`, never with a failure.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from roost.actors.agent.calls import (
    CANCELLED_AFTER,
    CANCELLED_BEFORE,
    Call,
    Completed,
    End,
    Failed,
    Logged,
    Stage,
    rejected,
)
from roost.actors.agent.effects import (
    Allow,
    AskApproval,
    AskQuestion,
    Effect,
    Emit,
    LimitWait,
    Mark,
    Policy,
    Refuse,
    RunTool,
    Stamps,
    StopThinking,
    StopTool,
    Think,
)
from roost.actors.agent.order import check_order
from roost.actors.agent.runner import CallResult, RunnerFailed, Thought
from roost.schemas.approval import PendingRow
from roost.schemas.event import AnyEvent, JsonObject, RejectionCode, TokenUsage
from roost.schemas.turn import (
    AddUsage,
    BeginTurn,
    Change,
    EndTurn,
    OpenPending,
    QueuedMessage,
    SetRunnerState,
    SettlePending,
    TurnOutcome,
)

if TYPE_CHECKING:
    from roost.actors.agent.events import EventMaker

PARALLEL_CALLS = 4
MAX_TEXT_BYTES = 262_144


class State(enum.Enum):
    """Where a turn is."""

    NEW = "new"
    THINKING = "thinking"
    CALLING = "calling"
    ENDED = "ended"


class TurnMachine:
    """One turn. Every method returns what is to be done because of it, in order."""

    def __init__(
        self, events: EventMaker, stamps: Stamps, policy: Policy, *, max_iterations: int
    ) -> None:
        self.state = State.NEW
        self.cancelling = False
        self._events = events
        self._stamps = stamps
        self._policy = policy
        self._max_iterations = max_iterations
        self._iteration = 0
        self._calls: list[Call] = []
        self._last = ""
        self._text_bytes = 0
        self._fault: RunnerFailed | None = None
        self._effects: list[Effect] = []

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing happens until a person decides."""
        return self.state is State.CALLING and any(c.stage is Stage.WAITING for c in self._calls)

    def begin(self, message: QueuedMessage, metadata: JsonObject) -> list[Effect]:
        """Open the turn with the user's message."""
        begin = BeginTurn(turn_id=self._events.turn_id, message_id=message.message_id)
        self._emit(self._events.user_message(message.text, metadata), begin, mark="begun")
        self._think(())
        return self._done()

    def resume(self, iteration: int, calls: list[Call]) -> list[Effect]:
        """Go on with a turn that waited when its process ended; `calls` is its last batch."""
        self.state = State.CALLING
        self._iteration = iteration
        self._calls = calls
        self._last = "tool.call.requested"
        for call in calls:
            if call.stage is Stage.WAITING and not call.asks_question:
                self._last = "tool.approval.requested"
                self._effects.append(LimitWait(call.id))
        self._advance()
        return self._done()

    def text(self, size: int) -> list[Effect]:
        """Take note of streamed text of this many bytes; past the bound the runner is stopped and the turn fails."""
        self._text_bytes += size
        if self._text_bytes <= MAX_TEXT_BYTES or self._fault is not None or self.cancelling:
            return []
        self._fault = RunnerFailed(
            f"The answer is longer than {MAX_TEXT_BYTES} bytes",
            code="PROVIDER_OUTPUT_LIMIT",
            phase="provider_stream",
            outcome="unknown",
        )
        return [StopThinking()]

    def thought(self, thought: Thought) -> list[Effect]:
        """Take a finished step."""
        if self.state is not State.THINKING:
            return []
        if self._fault is not None:
            self._fail(self._fault)
        elif self.cancelling:
            if thought.text:
                self._complete(thought)
            self._finish_cancel()
        elif thought.calls:
            self._open_batch(thought)
        else:
            self._complete(thought, final=True)
        return self._done()

    def runner_failed(self, failure: RunnerFailed) -> list[Effect]:
        """What thinks cannot go on."""
        if self.state is State.THINKING:
            if self.cancelling:
                self._finish_cancel()
            else:
                self._fail(self._fault or failure)
        return self._done()

    def runner_stopped(self) -> list[Effect]:
        """The runner has unwound after `StopThinking`."""
        if self.state is State.THINKING:
            if self.cancelling:
                self._finish_cancel()
            elif self._fault is not None:
                self._fail(self._fault)
        return self._done()

    def decided(self, row: PendingRow) -> list[Effect]:
        """A pending row was settled by a client; later and repeated decisions have no effect."""
        call = self._find(row.request_id, Stage.WAITING, Stage.SETTLING)
        if call is not None and row.state != "open":
            self._apply(call, row)
            self._advance()
        return self._done()

    def wait_expired(self, call_id: str) -> list[Effect]:
        """Nobody decided in time."""
        call = self._find(call_id, Stage.WAITING)
        if call is not None:
            self._settle_wait(call, "APPROVAL_TIMEOUT")
        return self._done()

    def settled(self, call_id: str) -> list[Effect]:
        """The machine's own end of a wait is on disk."""
        call = self._find(call_id, Stage.SETTLING)
        if call is not None:
            call.settle(rejected(call.why))
            self._advance()
        return self._done()

    def settle_refused(self, call_id: str) -> list[Effect]:
        """A client was first: the log holds its decision, which comes as `decided`."""
        call = self._find(call_id, Stage.SETTLING)
        if call is not None and not call.asks_question:
            call.logged = Logged.WAITING
            self._last = "tool.approval.requested"
        return self._done()

    def started(self, call_id: str) -> list[Effect]:
        """The start of a call is on disk."""
        call = self._find(call_id, Stage.STARTING)
        if call is None:
            return []
        if self.cancelling:
            call.settle(CANCELLED_AFTER)
        elif call.asks_question:
            call.settle(Completed(call.answer))
        else:
            call.stage = Stage.RUNNING
            self._effects.append(RunTool(call.id, call.tool, call.args))
        self._advance()
        return self._done()

    def tool_ended(self, call_id: str, end: End) -> list[Effect]:
        """A handler has returned, failed or unwound."""
        call = self._find(call_id, Stage.RUNNING)
        if call is not None:
            call.settle(end)
            self._advance()
        return self._done()

    def cancel(self) -> list[Effect]:
        """Stop whatever goes on; the turn ends with `cancellation.completed` when all has unwound."""
        if self.cancelling or self.state in (State.NEW, State.ENDED):
            return []
        self.cancelling = True
        if self.state is State.THINKING:
            self._effects.append(StopThinking())
        for call in self._calls:
            self._cancel_call(call)
        self._advance()
        return self._done()

    def _cancel_call(self, call: Call) -> None:
        match call.stage:
            case Stage.UNDECIDED | Stage.READY:
                call.settle(CANCELLED_BEFORE)
            case Stage.WAITING:
                self._settle_wait(call, "TOOL_CANCELLED")
            case Stage.RUNNING:
                self._effects.append(StopTool(call.id))
            case Stage.SETTLING | Stage.STARTING | Stage.SETTLED:
                pass  # their drafts are on the way; what comes back is judged then

    def _think(self, results: tuple[CallResult, ...]) -> None:
        self._iteration += 1
        self._text_bytes = 0
        self._calls = []
        self.state = State.THINKING
        self._emit(self._events.reasoning_started())
        self._effects.append(Think(results))

    def _open_batch(self, thought: Thought) -> None:
        state = SetRunnerState(turn_id=self._events.turn_id, state=thought.state)
        changes: tuple[Change, ...] = (state,)
        if thought.text:
            self._complete(thought)
        else:
            changes += _usage(thought)
        self.state = State.CALLING
        for request in thought.calls:
            plan = self._policy.plan(request)
            call = Call(
                self._stamps.call(),
                plan.tool,
                request.args,
                parallel=plan.parallel,
                fault=request.fault,
            )
            self._calls.append(call)
            self._emit(self._events.call_requested(call), *changes, call=call)
            changes = ()
        self._advance()

    def _complete(self, thought: Thought, *, final: bool = False) -> None:
        changes = _usage(thought)
        tokens = (
            TokenUsage(input=changes[0].input_tokens, output=changes[0].output_tokens)
            if changes
            else msgspec.UNSET
        )
        event = self._events.message_completed(thought.text, tokens, final=final)
        if final:
            self._end(event, "completed", "", *changes)
        else:
            self._emit(event, *changes)

    def _advance(self) -> None:
        """Take the batch as far as it goes: decide, run, close."""
        if self.state is not State.CALLING or not self._decide():
            return
        self._run()
        if all(call.stage is Stage.SETTLED for call in self._calls):
            self._close_batch()

    def _decide(self) -> bool:
        """Return whether all calls are decided; otherwise one of them waits."""
        for call in self._calls:
            if call.stage is Stage.UNDECIDED:
                self._judge(call)
            if call.stage in (Stage.WAITING, Stage.SETTLING):
                return False
        return True

    def _judge(self, call: Call) -> None:
        match self._policy.judge(call.tool, call.args, call.fault):
            case Allow():
                call.stage = Stage.READY
            case Refuse(end=end):
                call.settle(end)
            case AskApproval() as ask:
                call.stage = Stage.WAITING
                event = self._events.approval_requested(call, ask)
                self._emit(event, OpenPending(row=self._row(call, ask, event.id)), call=call)
                self._effects.append(LimitWait(call.id))
            case AskQuestion() as question:
                call.asks_question = True
                call.stage = Stage.WAITING
                self._effects.append(Emit(None, (OpenPending(row=self._row(call, question)),)))

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
        if call.logged is Logged.WAITING:
            approved = row.state == "approved"
            self._last = "tool.approval.approved" if approved else "tool.approval.rejected"
            call.log(self._last)
        match row.state:
            case "approved" | "answered" if self.cancelling:
                call.settle(CANCELLED_BEFORE)
            case "approved" | "answered":
                call.answer = msgspec.json.decode(row.answer) if row.answer else None
                call.stage = Stage.READY
            case "denied":
                call.settle(rejected("APPROVAL_REJECTED", row.reason))
            case "cancelled" if call.asks_question and not self.cancelling:
                call.answer = {"action": "cancel"}
                call.stage = Stage.READY
            case "timeout":
                call.settle(rejected("APPROVAL_TIMEOUT"))
            case "unavailable":
                call.settle(rejected("APPROVAL_UNAVAILABLE"))
            case _:
                call.settle(rejected("TOOL_CANCELLED"))

    def _settle_wait(self, call: Call, why: RejectionCode) -> None:
        """End a wait ourselves; whether that counts is known when the draft is answered."""
        call.stage = Stage.SETTLING
        call.why = why
        reason = rejected(why).error
        change = SettlePending(
            request_id=call.id,
            state="timeout" if why == "APPROVAL_TIMEOUT" else "cancelled",
            reason=reason,
        )
        if call.asks_question:
            self._effects.append(Emit(None, (change,), "settled", call.id))
        else:
            event = self._events.approval_rejected(call, why, reason)
            self._emit(event, change, mark="settled", call=call)

    def _run(self) -> None:
        """Start what may start now: neighbours that run side by side, or one call alone."""
        running = 0
        for call in self._calls:
            if call.stage in (Stage.STARTING, Stage.RUNNING):
                if not call.parallel:
                    return
                running += 1
            elif call.stage is Stage.READY:
                if running and (not call.parallel or running >= PARALLEL_CALLS):
                    return
                call.stage = Stage.STARTING
                self._emit(self._events.call_started(call), mark="started", call=call)
                if not call.parallel:
                    return
                running += 1

    def _close_batch(self) -> None:
        for call in self._calls:
            match call.end:
                case _ if call.logged is Logged.ENDED:
                    continue  # written before the process that ran this turn ended
                case Completed(result=result):
                    self._emit(self._events.call_completed(call, result), call=call)
                case Failed() as end:
                    self._emit(self._events.call_failed(call, end), call=call)
                case None:
                    raise ValueError("a call of a closed batch has no end")
        if self.cancelling:
            self._finish_cancel()
        elif self._iteration >= self._max_iterations:
            self._exhaust()
        else:
            self._think(tuple(call.outcome() for call in self._calls))

    def _exhaust(self) -> None:
        calls: list[JsonObject] = [
            {"id": call.id, "name": call.tool, "arguments": call.args} for call in self._calls
        ]
        error = f"The turn has used its {self._max_iterations} steps"
        self._end(self._events.exhausted(calls, self._max_iterations), "failed", error)

    def _fail(self, failure: RunnerFailed) -> None:
        event = self._events.failed(failure)
        self._end(event, "failed", event.error)

    def _finish_cancel(self) -> None:
        self._end(self._events.cancelled(), "interrupted", "")

    def _end(self, event: AnyEvent, outcome: TurnOutcome, error: str, *changes: Change) -> None:
        end = EndTurn(turn_id=self._events.turn_id, outcome=outcome, error=error)
        self._emit(event, *changes, end, mark="ended")
        self.state = State.ENDED

    def _emit(
        self, event: AnyEvent, *changes: Change, mark: Mark = "", call: Call | None = None
    ) -> None:
        kind = str(event.__struct_config__.tag)
        check_order(self._last, kind)
        if call is not None:
            call.log(kind)
        self._last = kind
        self._effects.append(Emit(event, changes, mark, call.id if call is not None else ""))

    def _find(self, call_id: str, *stages: Stage) -> Call | None:
        for call in self._calls:
            if call.id == call_id and call.stage in stages:
                return call
        return None

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _usage(thought: Thought) -> tuple[AddUsage, ...]:
    if thought.input_tokens < 0 and thought.output_tokens < 0:
        return ()
    return (
        AddUsage(
            input_tokens=max(thought.input_tokens, 0), output_tokens=max(thought.output_tokens, 0)
        ),
    )
