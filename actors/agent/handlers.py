"""The calls of one turn that wait for a permit or run: permits, time limits, and what a handler's end means.

A call's time limit covers the wait for its permit. A handler keeps its permit until it has really ended; one that does
not end after its limit gets the whole process killed.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from roost.actors.agent.arguments import is_storable_result
from roost.actors.agent.calls import EXECUTION_FAILED, INVALID_RESULT, Completed, End, Failed
from roost.actors.agent.tools.tool import Prepared, Surroundings, ToolFailed
from roost.actors.agent.tools.toolbox import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.agent.effects import Effect, LimitQueue, RunTool, TakePermit
    from roost.actors.agent.turn import TurnMachine
    from roost.actors.session.turns import Session
    from roost.schemas.base import CallId

_log = logging.getLogger(__name__)


class Handlers:
    """What runs for a turn. `perform` gets what the machine wants because of it."""

    def __init__(
        self,
        session: Session,
        machine: TurnMachine,
        around: Surroundings,
        permits: trio.CapacityLimiter,
        perform: Callable[[Sequence[Effect]], None],
    ) -> None:
        self._session = session
        self._machine = machine
        self._around = around
        self._permits = permits
        self._perform = perform
        self._limits: dict[CallId, float] = {}
        self._waiting: dict[CallId, trio.CancelScope] = {}
        self._running: dict[CallId, trio.CancelScope] = {}
        self._held: set[CallId] = set()

    def limit_queue(self, call: LimitQueue, nursery: trio.Nursery) -> None:
        """Begin the time limit of a call that cannot have a permit yet."""
        scope = self._waiting[call.call_id] = trio.CancelScope(deadline=self._limit(call))
        nursery.start_soon(self._wait, call.call_id, scope, False)

    def take_permit(self, call: TakePermit, nursery: trio.Nursery) -> None:
        """Get a permit at once, or when one of another session's calls gives it up."""
        waited = self._waiting.pop(call.call_id, None)
        if waited is not None:
            waited.cancel()
        try:
            self._permits.acquire_on_behalf_of_nowait(call.call_id)
        except trio.WouldBlock:
            scope = self._waiting[call.call_id] = trio.CancelScope(deadline=self._limit(call))
            nursery.start_soon(self._wait, call.call_id, scope, True)
        else:
            self._permitted(call.call_id)

    def release(self, call_id: CallId) -> None:
        """Give up a permit, or the wait for one."""
        self._limits.pop(call_id, None)
        waiting = self._waiting.pop(call_id, None)
        if waiting is not None:
            waiting.cancel()
        if call_id in self._held:
            self._held.discard(call_id)
            self._permits.release_on_behalf_of(call_id)

    def release_all(self) -> None:
        """Give up every permit; nothing runs any more."""
        for call_id in list(self._held):
            self.release(call_id)

    def run(self, call: RunTool, nursery: trio.Nursery) -> None:
        """Run the handler of a call."""
        scope = self._running[call.call_id] = trio.CancelScope()
        nursery.start_soon(self._run, call, scope)

    def runs(self, call_id: CallId) -> bool:
        """Return whether the handler of a call has not ended."""
        return call_id in self._running

    def stop(self, call_id: CallId) -> None:
        """Have a handler unwind."""
        self._running[call_id].cancel()

    def _permitted(self, call_id: CallId) -> None:
        self._held.add(call_id)
        self._perform(self._machine.permitted(call_id))

    def _limit(self, call: LimitQueue | TakePermit) -> float:
        """Return until when the call may wait and run."""
        known = self._limits.get(call.call_id)
        if known is None:
            prepared = BY_NAME[call.tool].prepare(call.args, self._around)
            seconds = prepared.timeout if isinstance(prepared, Prepared) else 0.0
            known = self._limits[call.call_id] = trio.current_time() + (seconds or math.inf)
        return known

    async def _wait(self, call_id: CallId, scope: trio.CancelScope, for_permit: bool) -> None:
        """Wait for a permit (or only for the limit); a scope that is not kept any more was given up by `release`."""
        with scope:
            if for_permit:
                await self._permits.acquire_on_behalf_of(call_id)
            else:
                await trio.sleep_forever()
        if self._waiting.get(call_id) is not scope:
            if not scope.cancelled_caught:
                self._permits.release_on_behalf_of(call_id)
            return
        del self._waiting[call_id]
        if scope.cancelled_caught:
            self._perform(self._machine.queue_expired(call_id))
        else:
            self._permitted(call_id)

    async def _run(self, call: RunTool, scope: trio.CancelScope) -> None:
        end: End | None = None
        with scope:
            end = await self._call(call)
        del self._running[call.call_id]
        if end is None:
            self._perform(self._machine.tool_stopped(call.call_id))
        else:
            self._perform(self._machine.tool_ended(call.call_id, end))

    async def _call(self, call: RunTool) -> End:
        prepared = BY_NAME[call.tool].prepare(call.args, self._around)
        if isinstance(prepared, Failed):
            return prepared
        seconds = prepared.timeout or math.inf
        limit = self._limits.pop(call.call_id, trio.current_time() + seconds)
        end: End = EXECUTION_FAILED
        async with trio.open_nursery() as nursery:
            if limit < math.inf:
                nursery.start_soon(self._watch, call.call_id, limit)
            with trio.move_on_at(limit) as timer:
                end = await self._handle(prepared, call)
            nursery.cancel_scope.cancel()
        if timer.cancelled_caught:
            text = f"The tool took longer than {seconds:g} s and was stopped"
            return Failed(text, "TOOL_TIMEOUT", outcome="unknown")
        return end

    async def _watch(self, call_id: CallId, limit: float) -> None:
        """Have the process killed if the handler has not ended a while after its limit."""
        await trio.sleep_until(limit)
        await self._session.watch_unwind(lambda: call_id not in self._running, "a tool")

    async def _handle(self, prepared: Prepared, call: RunTool) -> End:
        try:
            result = await prepared.run(call.call_id)
        except ToolFailed as failure:
            # Something has run by now, whatever the tool says.
            outcome = "unknown" if failure.outcome == "not_started" else failure.outcome
            return Failed(failure.message, failure.code, outcome=outcome)
        except Exception:  # noqa: BLE001 - a fault of a tool fails its call
            _log.exception("tool %s failed", call.tool)
            return EXECUTION_FAILED
        return Completed(result) if is_storable_result(result) else INVALID_RESULT
