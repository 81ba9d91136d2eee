"""The state machine of a turn; pure: things that happened go in, events to write and things to do come out.

Rules (L 9, 11, 13; T 6.5):
- A turn has exactly one terminal event, and each requested call exactly one.
- A step's calls are a batch: all are requested, then decided one at a time in order, then run; their terminal events
  are written in request order once all have ended. Neighbouring parallel calls run at most four at once, any other
  alone.
- A handler runs only when its start is on disk.
- A message that steers the turn is written when no call is open, before the next step. A turn with one to read does not
  end as completed: the store, which knows them all, refuses that end, and the turn takes one more step.
- A cancelled turn ends with `cancellation.completed`, never with a failure, even if it fails or its time limit passes
  just then. One whose time limit has passed ends with `agent.turn.failed` when all has unwound.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from roost.actors.agent.batch import Batch
from roost.actors.agent.effects import AskSteers, Effect, Policy, Stamps, StopThinking, Think
from roost.actors.agent.emitter import Emitter
from roost.actors.agent.failures import calls_timed_out, output_limit, timed_out
from roost.schemas.event import JsonObject, Phase, TokenUsage
from roost.schemas.said import said_with
from roost.schemas.turn import (
    AddUsage,
    BeginTurn,
    Change,
    EndTurn,
    QueuedMessage,
    SetRunnerState,
    TurnOutcome,
)

if TYPE_CHECKING:
    from roost.actors.agent.calls import Call, End, StopCode
    from roost.actors.agent.effects import Mark
    from roost.actors.agent.events import EventMaker
    from roost.actors.agent.runner import CallResult, RunnerFailed, Thought
    from roost.schemas.approval import PendingRow
    from roost.schemas.event import AnyEvent

MAX_TEXT_BYTES = 262_144


class State(enum.Enum):
    """Where a turn is."""

    NEW = "new"
    THINKING = "thinking"
    CALLING = "calling"
    STEERED = "steered"
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
        self._emitter = Emitter()
        self._batch = self._new_batch([])
        self._text_bytes = 0
        self._touched = False
        self._fault: RunnerFailed | None = None
        self._late: Phase | None = None
        self._unread: deque[QueuedMessage] = deque()
        self._read: set[str] = set()
        self._last: Thought | None = None
        self._usage: tuple[AddUsage, ...] = ()
        # What has come after an end that the store may still refuse.
        self._too_late: Literal["", "cancel", "limit"] = ""

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing happens until a person decides."""
        return self.state is State.CALLING and self._batch.decisions.is_waiting

    def begin(self, message: QueuedMessage, metadata: JsonObject) -> list[Effect]:
        """Open the turn with the user's message."""
        begin = BeginTurn(turn_id=self._events.turn_id, message_id=message.message_id)
        self._read.add(message.message_id)
        self._emitter.emit(self._events.user_message(message.text, metadata), begin, mark="begun")
        self._think(())
        return self._emitter.take()

    def steer(self, message: QueuedMessage) -> list[Effect]:
        """Take a message for this turn, once; the store tells of all that are unread, in order, again and again."""
        if message.message_id not in self._read:
            self._read.add(message.message_id)
            self._unread.append(message)
        if self.state is State.STEERED and self._unread:
            self._think(())
        return self._emitter.take()

    def end_refused(self) -> list[Effect]:
        """The store has a message that the turn has to read before it is completed."""
        if self.state is not State.ENDED or self._last is None:
            return []
        thought, self._last = self._last, None
        self.state = State.STEERED
        self._emitter.last = "agent.reasoning.started"
        self._complete_step(thought)
        match self._too_late:
            case "cancel":
                self.cancelling = True
                self._finish_cancel()
            case "limit":
                self._fail(timed_out("provider_open", touched=True))
            case _ if self._unread:
                self._think(())
            case _:
                self._emitter.want(AskSteers())
        return self._emitter.take()

    def expire(self, message: QueuedMessage) -> list[Effect]:
        """End the turn before it has begun: its time limit has passed while the message waited for its turn."""
        begin = BeginTurn(turn_id=self._events.turn_id, message_id=message.message_id)
        self._fail(timed_out("queue", touched=False), begin, mark="only")
        return self._emitter.take()

    def resume(self, iteration: int, calls: list[Call]) -> list[Effect]:
        """Go on with a turn that waited when its process ended; `calls` is its last batch."""
        self.state = State.CALLING
        self._touched = True
        self._iteration = iteration
        self._batch = self._new_batch(calls)
        waits = self._batch.decisions.awaits_approval
        self._emitter.last = "tool.approval.requested" if waits else "tool.call.requested"
        self._batch.decisions.wait_again()
        return self._advance()

    def sent(self) -> None:
        """The runner has handed a request to somebody outside."""
        self._touched = True

    def text(self, size: int) -> list[Effect]:
        """Take note of streamed text of this many bytes; past the bound the runner is stopped and the turn fails."""
        self._text_bytes += size
        if self._text_bytes <= MAX_TEXT_BYTES or self._fault is not None or self.cancelling:
            return []
        self._fault = output_limit(MAX_TEXT_BYTES)
        return [StopThinking()]

    def thought(self, thought: Thought) -> list[Effect]:
        """Take a finished step."""
        if self.state is not State.THINKING:
            return []
        if self.cancelling:
            if thought.text and self._fault is None:
                self._complete(thought)
            self._finish_cancel()
        elif self._fault is not None:
            self._fail(self._fault)
        elif thought.calls:
            self._open_batch(thought)
            return self._advance()
        elif self._unread:
            self._complete_step(thought)
            self._think(())
        else:
            self._last = thought
            self._complete(thought, final=True)
        return self._emitter.take()

    def runner_failed(self, failure: RunnerFailed) -> list[Effect]:
        """What thinks cannot go on."""
        if self.state is State.THINKING:
            if self.cancelling:
                self._finish_cancel()
            else:
                self._fail(self._fault or failure)
        return self._emitter.take()

    def runner_stopped(self) -> list[Effect]:
        """The runner has unwound after `StopThinking`."""
        if self.state is State.THINKING:
            if self.cancelling:
                self._finish_cancel()
            elif self._fault is not None:
                self._fail(self._fault)
        return self._emitter.take()

    def decided(self, row: PendingRow) -> list[Effect]:
        """A pending row was settled by a client; later and repeated decisions have no effect."""
        self._batch.decisions.decided(row)
        return self._advance()

    def wait_expired(self, call_id: str) -> list[Effect]:
        """Nobody decided in time."""
        self._batch.decisions.wait_expired(call_id)
        return self._emitter.take()

    def settled(self, call_id: str) -> list[Effect]:
        """The machine's own end of a wait is on disk."""
        self._batch.decisions.settled(call_id)
        return self._advance()

    def settle_refused(self, call_id: str) -> list[Effect]:
        """A client was first: the log holds its decision, which comes as `decided`."""
        self._batch.decisions.settle_refused(call_id)
        return self._emitter.take()

    def queue_expired(self, call_id: str) -> list[Effect]:
        """A call's time limit has passed while it waited for a permit."""
        self._batch.queue_expired(call_id)
        return self._advance()

    def permitted(self, call_id: str) -> list[Effect]:
        """A call has got its permit."""
        self._batch.permitted(call_id)
        return self._emitter.take()

    def started(self, call_id: str) -> list[Effect]:
        """The start of a call is on disk."""
        self._touched = True
        self._batch.started(call_id)
        return self._advance()

    def start_refused(self, call_id: str, code: str) -> list[Effect]:
        """The store does not let a call start: it has been started before, or cannot be kept account of."""
        self._batch.start_refused(call_id, code)
        return self._advance()

    def recalled(self, call_id: str, end: End) -> list[Effect]:
        """It is known how a call ended that had been started before."""
        self._batch.recalled(call_id, end)
        return self._advance()

    def tool_ended(self, call_id: str, end: End) -> list[Effect]:
        """A handler has returned or failed."""
        self._batch.tool_ended(call_id, end)
        return self._advance()

    def tool_stopped(self, call_id: str) -> list[Effect]:
        """A handler has unwound after `StopTool`."""
        self._batch.tool_ended(call_id, None)
        return self._advance()

    def can_stop(self, call_id: str) -> bool:
        """Return whether a call runs or is about to, and has not been asked to stop."""
        return self.state is State.CALLING and self._batch.can_stop(call_id)

    def cancel_call(self, call_id: str) -> list[Effect]:
        """Stop one call; its end comes as `tool_stopped`, and the turn goes on with it."""
        if self.can_stop(call_id):
            self._batch.stop_call(call_id)
        return self._advance()

    def cancel(self) -> list[Effect]:
        """Stop whatever goes on; the turn ends with `cancellation.completed` when all has unwound."""
        if self.state is State.ENDED:
            self._too_late = "cancel"
        if self.cancelling or self.state in (State.NEW, State.ENDED):
            return []
        self.cancelling = True
        return self._stop("TOOL_CANCELLED")

    def limit_passed(self) -> list[Effect]:
        """Stop whatever goes on; the turn fails when all has unwound, unless it is cancelled before."""
        stopping = self.cancelling or self._fault is not None or self._late is not None
        if self.state is State.ENDED:
            self._too_late = self._too_late or "limit"
        if stopping or self.state in (State.NEW, State.ENDED):
            return []
        if self.state is State.STEERED:
            self._fail(timed_out("provider_open", touched=True))
            return self._emitter.take()
        if self.state is State.THINKING:
            phase: Phase = "provider_stream" if self._text_bytes else "provider_open"
            self._fault = timed_out(phase, touched=self._touched or self._text_bytes > 0)
        else:
            self._late = "approval" if self._batch.decisions.awaits_approval else "tool"
        return self._stop("TURN_TIMEOUT")

    def _stop(self, why: StopCode) -> list[Effect]:
        if self.state is State.STEERED:
            self._finish_cancel()
            return self._emitter.take()
        if self.state is State.THINKING:
            self._emitter.want(StopThinking())
            return self._emitter.take()
        self._batch.stop(why)
        return self._advance()

    def _new_batch(self, calls: list[Call]) -> Batch:
        return Batch(calls, self._emitter, self._events, self._stamps, self._policy)

    def _think(self, results: tuple[CallResult, ...]) -> None:
        steers = tuple(self._unread)
        self._unread.clear()
        for message in steers:
            read = BeginTurn(turn_id=self._events.turn_id, message_id=message.message_id)
            metadata = said_with(message, steering=True)
            usage, self._usage = self._usage, ()
            self._emitter.emit(self._events.user_message(message.text, metadata), read, *usage)
        if steers:
            # Whoever steers a turn has its answer, whatever number of steps it has made.
            self._max_iterations = max(self._max_iterations, self._iteration + 1)
        self._iteration += 1
        self._text_bytes = 0
        self.state = State.THINKING
        self._emitter.emit(self._events.reasoning_started())
        self._emitter.want(Think(results, steers))

    def _open_batch(self, thought: Thought) -> None:
        state = SetRunnerState(turn_id=self._events.turn_id, state=thought.state)
        changes: tuple[Change, ...] = (state,)
        if thought.text:
            self._complete(thought)
        else:
            changes += thought.usage
        self.state = State.CALLING
        self._batch = self._new_batch([])
        self._batch.request(thought.calls, changes)

    def _complete_step(self, thought: Thought) -> None:
        """Write the text of a step that is not the last one; what it has used without a word is added with what comes next."""
        if thought.text:
            self._complete(thought)
        else:
            self._usage = thought.usage

    def _complete(self, thought: Thought, *, final: bool = False) -> None:
        usage = thought.usage
        tokens: TokenUsage | UnsetType = UNSET
        for used in usage:
            tokens = TokenUsage(input=used.input_tokens, output=used.output_tokens)
        event = self._events.message_completed(thought.text, tokens, final=final)
        if final:
            self._end(event, "completed", "", *usage)
        else:
            self._emitter.emit(event, *usage)

    def _advance(self) -> list[Effect]:
        """Take the batch as far as it goes, and what comes after it; return what is to be done."""
        if self.state is State.CALLING:
            self._batch.advance()
            if self._batch.has_ended:
                self._close_batch()
        return self._emitter.take()

    def _close_batch(self) -> None:
        self._batch.close()
        if self.cancelling:
            self._finish_cancel()
        elif self._late is not None:
            self._fail(calls_timed_out(self._late, self._batch.calls))
        elif self._iteration >= self._max_iterations:
            event = self._events.exhausted(self._batch.requested, self._max_iterations)
            self._end(event, "failed", f"The turn has used its {self._max_iterations} steps")
        else:
            self._think(tuple(call.outcome() for call in self._batch.calls))

    def _fail(self, failure: RunnerFailed, *changes: Change, mark: Mark = "ended") -> None:
        event = self._events.failed(failure)
        self._end(event, "failed", event.error, *changes, mark=mark)

    def _finish_cancel(self) -> None:
        self._end(self._events.cancelled(), "interrupted", "")

    def _end(
        self,
        event: AnyEvent,
        outcome: TurnOutcome,
        error: str,
        *changes: Change,
        mark: Mark = "ended",
    ) -> None:
        end = EndTurn(turn_id=self._events.turn_id, outcome=outcome, error=error)
        self._emitter.emit(event, *changes, end, mark=mark)
        self.state = State.ENDED
