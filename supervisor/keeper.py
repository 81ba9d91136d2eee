"""How a supervisor starts one child, learns of its end, restarts it, gives it up, stops it."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Literal

import trio

from roost.supervisor.backoff import Backoff
from roost.supervisor.child import ChildRun, Exit, run_child
from roost.supervisor.decision import Plan, plan_restart
from roost.supervisor.errors import (
    RestartLimitReached,
    StartError,
    StartRefused,
    SupervisorError,
)
from roost.supervisor.intensity import Intensity, Window
from roost.supervisor.kept import Kept
from roost.supervisor.patience import wait_patiently
from roost.supervisor.reports import Report
from roost.supervisor.spec import (
    ChildSpec,
    Kill,
    Restart,
    Strategy,
    Wait,
    check_specs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

How = Literal["normal", "shutdown", "crash"]


class Keeper:
    """The children of one supervisor, and what is done with each of them."""

    def __init__(
        self,
        name: str,
        strategy: Strategy,
        specs: Sequence[ChildSpec] = (),
        *,
        on_report: Callable[[Report], None],
        intensity: Intensity | None = None,
        backoff: Backoff | None = None,
        max_children: int = 1024,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_specs(strategy, specs)
        self.name = name
        self.strategy = strategy
        self._dynamic = strategy is Strategy.DYNAMIC
        self._alone = strategy in (Strategy.ONE_FOR_ONE, Strategy.DYNAMIC)
        self._intensity = intensity or Intensity()
        self._backoff = backoff or Backoff()
        self.max_children = max_children
        self._chance = chance
        self._on_report = on_report
        self._children = {spec.id: Kept(spec, self._intensity) for spec in specs}
        self._window = Window(self._intensity)
        self._generations = 0
        self._plans: deque[tuple[Kept, int, Plan, float]] = deque()
        self._wanted = trio.Event()
        self._work = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._hurried = False
        self.grace: float | None = None  # takes the place of what the specs say
        self.over = trio.Event()
        self._reason = "the supervisor ends"
        self._failure: SupervisorError | None = None

    def __iter__(self) -> Iterator[Kept]:
        return iter(list(self._children.values()))

    def find(self, child_id: str) -> Kept | None:
        """Return what is known of a child."""
        return self._children.get(child_id)

    def stop(self, reason: str) -> None:
        """End in order: `run` stops all children and returns."""
        self._reason = reason
        self._closing = True
        self._work.cancel()

    async def _start(self, child: Kept) -> None:
        """Start a child and return when it is ready; `StartError` if it does not get ready."""
        assert self._nursery is not None
        self._generations = generation = (
            self._generations + 1 if self._dynamic else child.generation + 1
        )
        child.generation = generation
        child.run = run = ChildRun(child.id, generation, self._on_ready)
        child.state = "starting"
        child.again = False
        limit = child.spec.ready_timeout
        self._report(child, "start")
        try:
            with trio.move_on_after(float("inf") if limit is None else limit) as timer:
                await self._nursery.start(run_child, run, child.spec.start, self._on_exit)
            if timer.cancelled_caught and not run.reached:
                raise StartError(f"not ready within {limit} s")
        except StartError as error:
            if child.run is run and child.state in ("starting", "stopping"):
                child.state = "stopped"
            self._note_end(child, run, "crash", str(error), error.last_words)
            raise

    def _on_ready(self, run: ChildRun) -> None:
        child = self._children.get(run.child)
        if child is not None and child.run is run:
            if child.state == "starting":
                child.state = "running"
            child.again = False
            self._report(child, "ready")

    def _on_exit(self, exit_: Exit) -> None:
        child = self._children.get(exit_.child)
        if child is None or child.run is None or child.run.generation != exit_.generation:
            return
        crashed = exit_.error is not None
        child.state = "stopped"
        how: How = "crash" if crashed else "normal"
        self._note_end(child, child.run, how, exit_.error or "", exit_.last_words)
        if child.run.stop_asked or self._closing:
            return  # who asked goes on
        if child.again and not crashed:
            self._schedule(child, 0.0)
        else:
            self._after_end(child, crashed=crashed)

    def _after_end(self, child: Kept, *, crashed: bool) -> None:
        """Do what the end of a child means that nobody had asked for."""
        specs = [kept.spec for kept in self]
        plan = plan_restart(self.strategy, specs, child.id, crashed=crashed)
        if plan.end:
            self.stop(f"{child.id} has ended")
        elif not plan.start:
            self._forget(child)
        else:
            self._restart(child, plan)

    def _restart(self, child: Kept, plan: Plan) -> None:
        now = trio.current_time()
        before = child.recent.count(now)
        child.recent.add(now)
        if not (child.budget if self._dynamic else self._window).add(now):
            limit, period = self._intensity.max_restarts, self._intensity.period
            self._give_up(child, f"more than {limit} restarts in {period:g} s" if limit else "")
            return
        child.restarts += 1
        delay = self._backoff.delay(before, child.lived(), self._chance())
        self._report(child, "restart", delay=delay)
        if self._alone:
            self._schedule(child, delay)
        else:
            child.state = "waiting"
            self._plans.append((child, child.generation, plan, delay))
            self._wanted.set()

    def _give_up(self, child: Kept, reason: str) -> None:
        text = f"{reason}: {child.last_error}" if reason else child.last_error
        self._report(child, "give_up", reason=text)
        child.state = "gave_up"
        if not self._dynamic:
            self._failure = RestartLimitReached(f"{self.name}: {child.id}: {text}")
            self._closing = True
            self._work.cancel()

    def _schedule(self, child: Kept, delay: float) -> None:
        """Start a child after a delay, beside everything else."""
        if self._nursery is None or self._closing:
            return
        child.pause.cancel()
        child.pause = pause = trio.CancelScope()
        child.state = "waiting"
        self._nursery.start_soon(self._start_later, child, delay, pause)

    async def _start_later(self, child: Kept, delay: float, pause: trio.CancelScope) -> None:
        with pause:
            await trio.sleep(delay)
        if child.pause is pause and child.state == "waiting":
            await self._try_start(child)

    async def _try_start(self, child: Kept) -> bool:
        """Start a child; a failure is dealt with as a crash. Return whether it got ready."""
        try:
            await self._start(child)
        except StartRefused:
            self._give_up(child, "it refused to start")
        except StartError:
            asked = child.run is not None and child.run.stop_asked
            if not asked and not self._closing:
                self._after_end(child, crashed=True)
        else:
            return True
        return False

    async def _stop(self, child: Kept, reason: str, grace: float | None) -> None:
        """Stop the current run of a child, if there is one; return when it has ended."""
        child.pause.cancel()
        run = child.run
        if run is None or run.ended.is_set():
            child.state = "stopped"
            return
        child.state = "stopping"
        run.stop_asked = True
        run.stop_reason = run.stop_reason or reason
        shutdown = child.spec.shutdown
        if self._hurried or isinstance(shutdown, Kill):
            run.kill(reason)
        elif isinstance(shutdown, Wait):
            run.ask_stop(reason, float("inf"))
        else:
            given = self.grace if grace is None else grace
            seconds = shutdown.seconds if given is None else given
            if run.ask_stop(reason, seconds) and not await wait_patiently(run.ended, seconds):
                run.scope.cancel()
        await run.ended.wait()

    def _forget(self, child: Kept) -> None:
        """Drop a child that is not started again; where children are fixed it stays known."""
        if self._dynamic or child.spec.restart is Restart.TEMPORARY:
            self._children.pop(child.id, None)

    def _note_end(self, child: Kept, run: ChildRun, how: How, error: str, words: str) -> None:
        if run.stop_asked:
            how, error = "shutdown", run.stop_reason
        elif how == "crash":
            child.last_error, child.last_words = error, words
        self._report(child, "exit", how=how, reason=error, last_words=words)

    def _report(
        self,
        child: Kept,
        event: Literal["start", "ready", "exit", "restart", "give_up"],
        *,
        how: Literal["", "normal", "shutdown", "crash"] = "",
        reason: str = "",
        delay: float = 0.0,
        last_words: str = "",
    ) -> None:
        self._on_report(
            Report(
                event=event,
                child_id=child.id,
                parent=self.name,
                generation=child.generation,
                kind=child.spec.kind,
                pid=child.pid,
                how=how,
                reason=reason,
                lived=child.lived() if event == "exit" else 0.0,
                delay=delay,
                last_words=last_words,
            )
        )
