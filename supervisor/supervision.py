"""A supervisor: starts children in order, restarts them by strategy, stops them in reverse order.

It decides nothing itself: `decision` says what the end of a child means, `intensity` whether a restart is still
allowed, `backoff` when. A child is any async function that takes a `Run`; a supervisor can be one (`serve`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import trio

from roost.supervisor.errors import (
    StartError,
    TooManyChildren,
)
from roost.supervisor.keeper import Keeper
from roost.supervisor.kept import Kept
from roost.supervisor.spec import (
    ChildSpec,
    Restart,
    Run,
    check_spec,
    check_specs,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roost.supervisor.decision import Plan

How = Literal["normal", "shutdown", "crash"]


class Supervisor(Keeper):
    """Children, and what keeps them.

    A dynamic supervisor counts restarts for each child alone, and gives up that child alone; any other counts them
    together and ends with `RestartLimitReached`.
    """

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the children in order, keep them, and stop them in reverse order when asked to, or cancelled.

        Raises:
            StartError: a child did not get ready at the first start, or the stop came before that.
            RestartLimitReached: children crashed too often.
        """
        ready = False
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                with self._work:
                    if await self._start_all():
                        ready = True
                        task_status.started()
                        await self._carry_out_plans()
            finally:
                self._closing = True
                with trio.CancelScope(shield=True):
                    await self._stop_all()
                nursery.cancel_scope.cancel()
                self.over.set()
        if self._failure is not None:
            raise self._failure
        if not ready:
            raise StartError(f"{self.name} was stopped before it was ready: {self._reason}")

    async def serve(self, run: Run) -> None:
        """Be a child of another supervisor."""
        run.on_stop(lambda reason, _: self.stop(reason))
        run.on_kill(lambda reason: self.hurry(reason))
        await self.run(task_status=run)

    def hurry(self, reason: str) -> None:
        """End by force: every stop, one under way too, becomes a kill."""
        self._hurried = True
        for child in self:
            if child.state == "stopping" and child.run is not None:
                child.run.kill(reason)
        self.stop(reason)

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child and return when it is ready. Cancelled, there is no such child.

        Raises:
            SpecError: the spec is wrong, or its id is taken.
            TooManyChildren: there are as many as there may be.
            StartError: it did not get ready; it is not kept.
        """
        child = self._add(spec)
        try:
            await self._start(child)
        finally:
            if child.run is None or not child.run.reached:
                self._children.pop(spec.id, None)

    def ensure_child(self, spec: ChildSpec, *, fresh: bool = False) -> bool:
        """Make sure that a child runs; one that runs is left alone, one that is ending is started again after its end.

        `fresh` empties its restart budget. A start that fails counts as a crash. Return False if it had been given
        up, and stays so.

        Raises:
            SpecError, TooManyChildren: as for `start_child`.
        """
        child = self._children.get(spec.id)
        if child is None:
            child = self._add(spec)
        if fresh:
            child.forgive()
        match child.state:
            case "stopped":
                self._schedule(child, 0.0)
            case "waiting" | "gave_up" if fresh:
                self._schedule(child, 0.0)
            case "stopping" | "running":
                child.again = True
            case _:
                pass
        return child.state != "gave_up"

    async def stop_child(self, child_id: str, reason: str, grace: float | None = None) -> None:
        """Stop a child and return when it has ended; one that does not run is just forgotten.

        It is not started again by itself. Cancelled, the stop goes on.
        """
        child = self._children.get(child_id)
        if child is not None:
            child.again = False
            await self._in_nursery(child, self._stop_for_good, reason, grace)

    async def restart_child(self, child_id: str, reason: str) -> None:
        """Stop a child and start it again; return when it is ready, or its first start has failed."""
        child = self._children.get(child_id)
        if child is not None:
            await self._in_nursery(child, self._stop_and_start, reason, None)

    def respec(self, spec: ChildSpec) -> None:
        """Keep a child by this spec from now on; nothing if it is not known."""
        child = self._children.get(spec.id)
        if child is not None:
            child.spec = spec

    def kill_child(self, child_id: str, generation: int, reason: str) -> bool:
        """Kill one incarnation of a child, which is a crash; return False if it does not run any more."""
        child = self._children.get(child_id)
        if child is None or child.run is None or not child.alive:
            return False
        if child.generation != generation:
            return False
        child.run.kill(reason)
        return True

    def _add(self, spec: ChildSpec) -> Kept:
        check_spec(spec)
        if self._nursery is None or self._closing:
            raise StartError(f"{self.name} does not run")
        if spec.id in self._children:
            check_specs(self.strategy, [spec, spec])
        if (
            len(self._children)
            >= self.max_children
            <= sum(child.state != "gave_up" for child in self)
        ):
            raise TooManyChildren(f"{self.name} has {self.max_children} children")
        child = self._children[spec.id] = Kept(spec, self._intensity)
        return child

    async def _start_all(self) -> bool:
        for child in self:
            try:
                await self._start(child)
            except StartError as error:
                self._failure = type(error)(f"{child.id}: {error}", error.last_words)
                return False
        return True

    async def _carry_out_plans(self) -> None:
        """Carry out the plans of the strategies that stop and start groups, one after the other."""
        while True:
            while self._plans:
                child, generation, plan, delay = self._plans.popleft()
                if child.generation == generation and child.state == "waiting":
                    await self._carry_out(plan, delay)
            await self._wanted.wait()
            self._wanted = trio.Event()

    async def _carry_out(self, plan: Plan, delay: float) -> None:
        for child_id in plan.stop:
            child = self._children[child_id]
            await self._stop(child, "a sibling has ended", None)
            if child.spec.restart is Restart.TEMPORARY:
                self._forget(child)
        await trio.sleep(delay)
        for child_id in plan.start:
            if not await self._try_start(self._children[child_id]):
                return

    async def _stop_all(self) -> None:
        children = list(self)[::-1]
        if not self._dynamic:
            for child in children:
                await self._stop(child, self._reason, None)
            return
        async with trio.open_nursery() as nursery:
            for child in children:
                nursery.start_soon(self._stop, child, self._reason, None)

    async def _stop_for_good(self, child: Kept, reason: str, grace: float | None) -> None:
        if not child.alive:
            self._report(child, "exit", how="shutdown", reason=reason)
        await self._stop(child, reason, grace)
        if child.again:
            self._schedule(child, 0.0)
        else:
            self._forget(child)

    async def _stop_and_start(self, child: Kept, reason: str, grace: float | None) -> None:
        await self._stop(child, reason, grace)
        child.forgive()
        await self._try_start(child)

    async def _in_nursery(
        self,
        child: Kept,
        action: Callable[[Kept, str, float | None], Awaitable[None]],
        reason: str,
        grace: float | None,
    ) -> None:
        """Run an action that goes on when the caller is cancelled."""
        if self._nursery is None or self._closing:
            if child.run is not None:
                await child.run.ended.wait()
            return
        done = trio.Event()

        async def act() -> None:
            try:
                await action(child, reason, grace)
            finally:
                done.set()

        self._nursery.start_soon(act)
        await done.wait()
