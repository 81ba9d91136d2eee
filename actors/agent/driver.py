"""Runs one turn: feeds the machine with what happens and does what it says; all waiting is here, no rule is."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.agent.arguments import storable
from roost.actors.agent.calls import ALREADY_STARTED, NOT_CLAIMED, ended_as
from roost.actors.agent.effects import (
    AskSteers,
    Effect,
    Emit,
    LimitQueue,
    LimitWait,
    Recall,
    Release,
    RunTool,
    Stamps,
    StopThinking,
    StopTool,
    TakePermit,
    Think,
)
from roost.actors.agent.handlers import Handlers
from roost.actors.agent.runner import CallResult, Runner, RunnerFailed, Thought
from roost.actors.agent.turn import State, TurnMachine
from roost.schemas.event import MAX_EVENT_BYTES
from roost.schemas.turn import CallRecalled, RecallCall
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.agent.tools.tool import Surroundings
    from roost.actors.session.turns import Session
    from roost.schemas.approval import PendingRow
    from roost.schemas.base import CallId, TurnId
    from roost.schemas.turn import QueuedMessage

ROOM_FOR_THE_REST = 4096

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class TurnDriver:
    """A turn that runs; also the sink of its runner."""

    def __init__(
        self,
        session: Session,
        turn_id: TurnId,
        *,
        machine: TurnMachine,
        runner: Runner,
        around: Surroundings,
        stamps: Stamps,
        permits: trio.CapacityLimiter,
        wait_timeout: float,
        limit: float,
    ) -> None:
        self.turn_id = turn_id
        self._session = session
        self._machine = machine
        self._runner = runner
        self._stamps = stamps
        self._wait_timeout = wait_timeout
        self._limit = limit
        self._handlers = Handlers(session, machine, around, permits, self.perform)
        self._effects: deque[Effect] = deque()
        self._performing = False
        self._waited = False
        self._dropped = False
        self._lost = ""
        self._nursery: trio.Nursery | None = None
        self._finished = trio.Event()
        self._thinking = trio.CancelScope()

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing happens until a person decides."""
        return self._machine.is_waiting

    @property
    def has_ended(self) -> bool:
        """Return whether the last event has been handed over."""
        return self._machine.state is State.ENDED

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the machine wants, in order; before `run` it is kept for then."""
        if self._dropped:
            return
        self._effects.extend(effects)
        if self._performing or self._nursery is None:
            return
        self._performing = True
        try:
            while self._effects:
                self._do(self._effects.popleft(), self._nursery)
        finally:
            self._performing = False
        if self._waited is not self._machine.is_waiting:
            self._waited = not self._waited
            self._session.turn_changed()

    async def run(self) -> None:
        """Run until the last event is on disk, or the store says that the turn was never to begin.

        Raises:
            DraftLost: the store refused a draft; the session has to start anew and repair the turn.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.perform(())
                if self._limit < math.inf and not self.has_ended:
                    nursery.start_soon(self._limit_turn)
                await self._finished.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._handlers.release_all()
        if self._lost:
            raise DraftLost(f"a draft of turn {self.turn_id} was refused: {self._lost}")

    def decide(self, row: PendingRow) -> None:
        """Take a settled pending row."""
        self.perform(self._machine.decided(row))

    def steer(self, message: QueuedMessage) -> None:
        """Take a message for this turn."""
        self.perform(self._machine.steer(message))

    def cancel_call(self, call_id: CallId) -> None:
        """Stop one call that runs, or is about to; the turn goes on."""
        if self._nursery is None or not self._machine.can_stop(call_id):
            return
        self.perform(self._machine.cancel_call(call_id))
        runs = self._handlers.runs
        self._nursery.start_soon(
            self._session.watch_unwind, lambda: not runs(call_id), "a cancelled call"
        )

    def cancel(self) -> None:
        """Interrupt the turn."""
        self.perform(self._machine.cancel())

    def text(self, piece: str) -> None:
        """Stream a piece of the runner's text."""
        if self._dropped or not piece or self._machine.state is not State.THINKING:
            return
        effects = self._machine.text(len(piece) if piece.isascii() else len(piece.encode()))
        self._session.outbox.text(piece)
        if effects:
            self.perform(effects)

    def sent(self) -> None:
        """Take note that a request has gone out."""
        self._machine.sent()

    async def room(self) -> None:
        """Let others run, and wait while too much is unanswered."""
        await trio.lowlevel.checkpoint()
        await self._session.outbox.room()

    async def settled(self) -> None:
        """Wait until everything written so far is on disk."""
        await self._session.outbox.settled()

    def _do(self, effect: Effect, nursery: trio.Nursery) -> None:
        match effect:
            case Emit():
                self._emit(effect)
            case Think(results=results, steers=steers):
                for message in steers:
                    self._runner.steer(message)
                self._thinking = trio.CancelScope()
                nursery.start_soon(self._think, results, self._thinking)
            case AskSteers():
                self._session.pull()
            case StopThinking():
                self._thinking.cancel()
            case LimitQueue():
                self._handlers.limit_queue(effect, nursery)
            case TakePermit():
                self._handlers.take_permit(effect, nursery)
            case Release(call_id=call_id):
                self._handlers.release(call_id)
            case Recall(call_id=call_id):
                nursery.start_soon(self._recall, call_id)
            case RunTool():
                self._handlers.run(effect, nursery)
            case StopTool(call_id=call_id):
                self._handlers.stop(call_id)
            case LimitWait(call_id=call_id):
                if self._wait_timeout:
                    nursery.start_soon(self._limit_wait, call_id)

    def _emit(self, emit: Emit) -> None:
        self._session.outbox.push(
            emit.event,
            emit.changes,
            event_id="" if emit.event is not None else self._stamps.event(),
            turn_id=self.turn_id,
            on_answer=self._on_answer(emit),
            opens=emit.mark == "begun",
        )

    def _on_answer(self, emit: Emit) -> Callable[[str], None]:
        def take(code: str) -> None:
            match emit.mark, code:
                case "started", "":
                    self.perform(self._machine.started(emit.call_id))
                case "started", code if code == ALREADY_STARTED or code in NOT_CLAIMED:
                    self.perform(self._machine.start_refused(emit.call_id, code))
                case "settled", "":
                    self.perform(self._machine.settled(emit.call_id))
                case "settled", "ALREADY_SETTLED":
                    self.perform(self._machine.settle_refused(emit.call_id))
                    self._session.pull()
                case "ended" | "only", "":
                    self._finished.set()
                case "ended", "TURN_STEERED":
                    self.perform(self._machine.end_refused())
                case "begun" | "only", "ALREADY_SETTLED":
                    self._drop("")
                case _, "" | "TIED":
                    pass
                case _:
                    self._drop(code)

        return take

    def _drop(self, code: str) -> None:
        """Write nothing more: the message was withdrawn, or the store refused what the turn cannot do without."""
        self._dropped = True
        self._lost = self._lost or code
        self._effects.clear()
        self._session.outbox.drop_text()
        self._finished.set()

    async def _think(self, results: tuple[CallResult, ...], scope: trio.CancelScope) -> None:
        effects: Sequence[Effect] = ()
        with scope:
            try:
                thought = _checked(await self._runner.think(results, self))
                effects = self._machine.thought(thought)
            except RunnerFailed as failure:
                effects = self._machine.runner_failed(failure)
            except Exception:  # noqa: BLE001 - a fault of a runner fails its turn, not its session
                _log.exception("the runner of turn %s crashed", self.turn_id)
                crashed = RunnerFailed("Agent turn failed", code="RUNNER_CRASHED")
                effects = self._machine.runner_failed(crashed)
        if scope.cancelled_caught:
            effects = self._machine.runner_stopped()
        self.perform(effects)

    async def _limit_turn(self) -> None:
        await self._session.clock.until(self._limit)
        self.perform(self._machine.limit_passed())
        await self._session.watch_unwind(lambda: self.has_ended, "a turn past its limit")

    async def _limit_wait(self, call_id: CallId) -> None:
        uptime = self._session.uptime
        await uptime.until(uptime.now() + self._wait_timeout)
        if self._session.clock.now() >= self._limit:
            self.perform(self._machine.limit_passed())
        self.perform(self._machine.wait_expired(call_id))

    async def _recall(self, call_id: CallId) -> None:
        request = RecallCall(session_id=self._session.session_id, call_id=call_id)
        answer = await self._session.ask_store(request)
        body = answer.body if isinstance(answer, CallRecalled) else b""
        end = ended_as(event_decoder.decode(body) if body else None)
        self.perform(self._machine.recalled(call_id, end))


class DraftLost(Exception):
    """The store refused something without which the turn cannot go on."""


def _checked(thought: Thought) -> Thought:
    """Return the step with arguments that can be stored.

    Raises:
        RunnerFailed: its text does not fit one event.
    """
    if len(_encode(thought.text)) > MAX_EVENT_BYTES - ROOM_FOR_THE_REST:
        raise RunnerFailed(
            "The answer does not fit one event",
            code="PROVIDER_OUTPUT_LIMIT",
            phase="provider_stream",
            outcome="unknown",
        )
    if not thought.calls:
        return thought
    return msgspec.structs.replace(thought, calls=tuple(map(storable, thought.calls)))
