from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from roost.supervisor.errors import (
    RestartLimitReached,
    SpecError,
    StartError,
    StartRefused,
    TooManyChildren,
)
from roost.supervisor.intensity import Intensity
from roost.supervisor.spec import ChildSpec, Grace, Kill, Restart, Run, Shutdown, Strategy
from roost.supervisor.supervision import Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

    from roost.supervisor.reports import Report

KILL = Kill()
PERMANENT, TRANSIENT, TEMPORARY = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY


class Stage:
    """Children that a test ends as it likes, and what was reported of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.reports: list[Report] = []
        self.ends: dict[str, trio.Event] = {}
        self.errors: dict[str, Exception | None] = {}
        self.fail_starts: dict[str, list[Exception]] = {}

    def spec(
        self,
        name: str,
        restart: Restart = PERMANENT,
        *,
        shutdown: Shutdown = KILL,
        significant: bool = False,
    ) -> ChildSpec:
        async def main(run: Run) -> None:
            self.log.append(f"+{name}")
            failures = self.fail_starts.get(name)
            if failures:
                raise failures.pop(0)
            end = self.ends[name] = trio.Event()
            self.errors[name] = None
            run.started()
            try:
                await end.wait()
            finally:
                self.log.append(f"-{name}")
            error = self.errors[name]
            if error is not None:
                raise error

        return ChildSpec(
            id=name, start=main, restart=restart, shutdown=shutdown, significant=significant
        )

    async def end(self, name: str, error: Exception | None = None) -> None:
        """End a child, and wait until everything that follows at once has happened."""
        self.errors[name] = error
        self.ends[name].set()
        await wait_all_tasks_blocked()

    async def crash(self, name: str) -> None:
        await self.end(name, ValueError("broken"))

    def events(self, name: str) -> list[str]:
        return [report.event for report in self.reports if report.child_id == name]

    def take(self) -> str:
        """Return what started (+) and ended (-) since the last look."""
        text, self.log = " ".join(self.log), []
        return text


@asynccontextmanager
async def running(
    stage: Stage, strategy: Strategy, *specs: ChildSpec, intensity: Intensity | None = None
) -> AsyncGenerator[Supervisor]:
    supervisor = Supervisor(
        "test",
        strategy,
        specs,
        on_report=stage.reports.append,
        intensity=intensity,
        max_children=40,
        chance=lambda: 0.0,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        yield supervisor
        supervisor.stop("the test ends")


async def test_children_start_in_order_and_stop_in_reverse(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, *map(stage.spec, "abc")):
        assert stage.take() == "+a +b +c"
    assert stage.take() == "-c -b -a"


async def test_cancelling_a_supervisor_stops_in_the_same_order(autojump_clock: MockClock) -> None:
    stage = Stage()
    with trio.CancelScope() as scope:
        async with running(stage, Strategy.ONE_FOR_ONE, *map(stage.spec, "abc")):
            stage.take()
            scope.cancel()
    assert stage.take() == "-c -b -a"


async def test_one_for_one_restarts_only_who_crashed(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, *map(stage.spec, "abc")):
        await trio.sleep(20)
        stage.take()
        await stage.crash("b")
        await trio.lowlevel.checkpoint()
        assert stage.take() == "-b +b"
    assert stage.events("b") == ["start", "ready", "exit", "restart", "start", "ready", "exit"]


async def test_rest_for_one_restarts_the_later_ones_too(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.REST_FOR_ONE, *map(stage.spec, "abcd")):
        stage.take()
        await stage.crash("b")
        await trio.sleep(1)
        assert stage.take() == "-b -d -c +b +c +d"


async def test_one_for_all_restarts_all_but_the_temporary(autojump_clock: MockClock) -> None:
    stage = Stage()
    specs = [stage.spec("a"), stage.spec("b", TEMPORARY), stage.spec("c", TRANSIENT)]
    async with running(stage, Strategy.ONE_FOR_ALL, *specs) as supervisor:
        stage.take()
        await stage.crash("c")
        await trio.sleep(1)
        assert stage.take() == "-c -b -a +a +c"
        assert supervisor.find("b") is None


async def test_two_crashes_at_once_in_a_group_are_one_restart_of_it(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    async with running(stage, Strategy.REST_FOR_ONE, *map(stage.spec, "abc")) as supervisor:
        stage.take()
        stage.errors["c"] = ValueError("broken")
        stage.ends["c"].set()
        await stage.crash("b")
        await trio.sleep(5)
        assert all(child.state == "running" for child in supervisor)
        assert stage.take().endswith("+b +c")


async def test_a_transient_child_that_ends_normally_is_not_restarted(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, stage.spec("a", TRANSIENT)):
        stage.take()
        await stage.end("a")
        await trio.sleep(60)
        assert stage.take() == "-a"
    assert stage.events("a") == ["start", "ready", "exit"]
    assert stage.reports[-1].how == "normal"


async def test_the_delays_of_restarts_grow(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, stage.spec("a")):
        await trio.sleep(10)
        for _ in range(5):
            await stage.crash("a")
            await trio.sleep(2)
    delays = [report.delay for report in stage.reports if report.event == "restart"]
    assert delays == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8])


async def test_too_many_restarts_end_the_supervisor_in_order(autojump_clock: MockClock) -> None:
    stage = Stage()
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the life of the tree
        async with running(
            stage, Strategy.ONE_FOR_ONE, *map(stage.spec, "ab"), intensity=Intensity(2, 60.0)
        ):
            for _ in range(3):
                stage.take()
                await stage.crash("a")
                await trio.sleep(2)
    assert stage.take() == "-a -b"
    assert caught.group_contains(RestartLimitReached, match="a: more than 2 restarts in 60 s: Val")
    assert stage.events("a")[-1] == "give_up"


async def test_restarts_that_lie_apart_are_allowed_for_ever(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(
        stage, Strategy.ONE_FOR_ONE, stage.spec("a"), intensity=Intensity(1, 60.0)
    ) as supervisor:
        for _ in range(10):
            await stage.crash("a")
            await trio.sleep(60)
        child = supervisor.find("a")
        assert child is not None
        assert child.state == "running"
        assert (child.restarts, child.generation) == (10, 11)


async def test_a_failed_first_start_stops_what_had_started(autojump_clock: MockClock) -> None:
    stage = Stage()
    stage.fail_starts["b"] = [StartError("no socket", "its last words")]
    supervisor = Supervisor(
        "test", Strategy.ONE_FOR_ONE, [*map(stage.spec, "abc")], on_report=stage.reports.append
    )
    with pytest.raises(StartError, match="b: no socket") as caught:
        await supervisor.run()
    assert caught.value.last_words == "its last words"
    assert stage.take() == "+a +b -a"


async def test_a_child_that_does_not_get_ready_in_time_has_not_started(
    autojump_clock: MockClock,
) -> None:
    async def never(run: Run) -> None:
        await trio.sleep_forever()

    supervisor = Supervisor(
        "test",
        Strategy.ONE_FOR_ONE,
        [ChildSpec(id="a", start=never, ready_timeout=3.0)],
        on_report=lambda _: None,
    )
    with pytest.raises(StartError, match=r"a: not ready within 3\.0 s"):
        await supervisor.run()
    assert trio.current_time() == 3


async def test_a_restart_that_fails_counts_as_a_crash(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, stage.spec("a")) as supervisor:
        stage.fail_starts["a"] = [StartError("no"), StartError("no")]
        await stage.crash("a")
        await trio.sleep(5)
        child = supervisor.find("a")
        assert child is not None
        assert (child.state, child.restarts) == ("running", 3)


async def test_a_restart_that_fails_in_a_group_starts_over(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ALL, *map(stage.spec, "ab")) as supervisor:
        stage.take()
        stage.fail_starts["b"] = [StartError("no")]
        await stage.crash("b")
        await trio.sleep(5)
        assert stage.take() == "-b -a +a +b -a +a +b"
        assert all(child.state == "running" for child in supervisor)


async def test_a_significant_child_takes_its_supervisor_along(autojump_clock: MockClock) -> None:
    stage = Stage()
    specs = [stage.spec("a"), stage.spec("b", TRANSIENT, significant=True)]
    async with running(stage, Strategy.ONE_FOR_ONE, *specs) as supervisor:
        stage.take()
        await stage.end("b")
        await supervisor.over.wait()
        assert stage.take() == "-b -a"


async def test_dynamic_children_have_a_budget_each(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.DYNAMIC, intensity=Intensity(5, 60.0)) as supervisor:
        for number in range(30):
            await supervisor.start_child(stage.spec(f"c{number}", TRANSIENT))
        await supervisor.start_child(stage.spec("calm", TRANSIENT))
        for _ in range(6):
            for number in range(30):
                await stage.crash(f"c{number}")
            await trio.sleep(6)
        assert {child.state for child in supervisor if child.id != "calm"} == {"gave_up"}
        calm = supervisor.find("calm")
        assert calm is not None
        assert calm.state == "running"
    assert stage.events("calm") == ["start", "ready", "exit"]
    assert stage.events("c0").count("give_up") == 1


async def test_a_child_given_up_starts_again_when_it_is_asked_for_afresh(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    spec = stage.spec("a", TRANSIENT)
    async with running(stage, Strategy.DYNAMIC, intensity=Intensity(0, 60.0)) as supervisor:
        await supervisor.start_child(spec)
        await stage.crash("a")
        assert not supervisor.ensure_child(spec)
        assert supervisor.ensure_child(spec, fresh=True)
        await trio.sleep(1)
        child = supervisor.find("a")
        assert child is not None
        assert (child.state, child.generation) == ("running", 2)


async def test_asking_for_a_child_that_runs_or_starts_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    spec = stage.spec("a", TRANSIENT)
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        supervisor.ensure_child(spec)
        supervisor.ensure_child(spec)
        await trio.sleep(1)
        supervisor.ensure_child(spec)
        await trio.sleep(1)
        assert stage.take() == "+a"


async def test_a_child_asked_for_before_it_ends_by_itself_is_started_again(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    spec = stage.spec("a", TRANSIENT)
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        await supervisor.start_child(spec)
        supervisor.ensure_child(spec)
        await stage.end("a")
        await trio.sleep(1)
        assert stage.take() == "+a -a +a"
        await stage.end("a")
        await trio.sleep(1)
        assert stage.take() == "-a"
        assert supervisor.find("a") is None


def slow_to_stop(log: list[str]) -> ChildSpec:
    async def main(run: Run) -> None:
        asked = trio.Event()

        def hear(reason: str, grace: float) -> None:
            log.append(f"asked {reason} {grace:g}")
            asked.set()

        run.on_stop(hear)
        run.started()
        log.append("up")
        try:
            await asked.wait()
            await trio.sleep(3)
            log.append("clean")
        finally:
            log.append("down")

    return ChildSpec(id="a", start=main, restart=TRANSIENT, shutdown=Grace(5.0))


async def test_a_child_asked_for_while_it_is_being_stopped_is_started_after_its_end(
    autojump_clock: MockClock,
) -> None:
    log: list[str] = []
    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        spec = slow_to_stop(log)
        await supervisor.start_child(spec)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.stop_child, "a", "enough")
            await wait_all_tasks_blocked()
            supervisor.ensure_child(spec)
        await trio.sleep(0.1)
        assert log == ["up", "asked enough 5", "clean", "down", "up"]


async def test_a_stop_waits_for_the_grace_and_no_longer(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        await supervisor.start_child(slow_to_stop(log))
        await supervisor.stop_child("a", "enough", 2.0)
        assert log == ["up", "asked enough 2", "down"]
        assert trio.current_time() == 2
        assert supervisor.find("a") is None


async def test_a_stop_goes_on_when_who_asked_is_cancelled(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        await supervisor.start_child(slow_to_stop(log))
        with trio.move_on_after(1):
            await supervisor.stop_child("a", "enough")
        assert log == ["up", "asked enough 5"]
        await trio.sleep(5)
        assert log[-2:] == ["clean", "down"]
        assert supervisor.find("a") is None


async def test_stopping_who_does_not_run_is_done_at_once(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.DYNAMIC, intensity=Intensity(1, 60.0)) as supervisor:
        await supervisor.stop_child("nobody", "enough")
        await supervisor.start_child(stage.spec("a", TRANSIENT))
        await stage.crash("a")
        waiting = supervisor.find("a")
        assert waiting is not None
        assert waiting.state == "waiting"
        await supervisor.stop_child("a", "enough")
        await trio.sleep(10)
        assert stage.take() == "+a -a"
        assert supervisor.find("a") is None
    assert trio.current_time() == 10


async def test_a_child_can_be_stopped_while_it_starts(autojump_clock: MockClock) -> None:
    async def never(run: Run) -> None:
        await trio.sleep_forever()

    stage = Stage()
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        supervisor.ensure_child(ChildSpec(id="a", start=never, restart=TRANSIENT))
        await trio.sleep(1)
        await supervisor.stop_child("a", "enough")
        assert supervisor.find("a") is None
        await trio.sleep(60)
    assert stage.events("a") == ["start", "exit"]
    assert stage.reports[-1].how == "shutdown"


async def test_a_killed_child_has_crashed_and_an_old_generation_is_left_alone(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        await supervisor.start_child(stage.spec("a", TRANSIENT))
        assert not supervisor.kill_child("a", 7, "wrong one")
        assert supervisor.kill_child("a", 1, "too large")
        await trio.sleep(1)
        assert stage.take() == "+a -a +a"
    exits = [report for report in stage.reports if report.event == "exit"]
    assert (exits[0].how, exits[0].reason) == ("crash", "killed: too large")


async def test_a_child_that_refuses_to_start_is_given_up_at_once(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    stage.fail_starts["a"] = [StartRefused("wrong configuration")]
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        supervisor.ensure_child(stage.spec("a", TRANSIENT))
        await trio.sleep(60)
        assert stage.take() == "+a"
    assert stage.events("a") == ["start", "exit", "give_up"]
    assert "wrong configuration" in stage.reports[-1].reason


async def test_a_failed_start_of_a_new_child_is_told_to_who_asked(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()
    stage.fail_starts["a"] = [StartError("no")]
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        with pytest.raises(StartError):
            await supervisor.start_child(stage.spec("a", TRANSIENT))
        assert supervisor.find("a") is None
        await supervisor.start_child(stage.spec("a", TRANSIENT))
        with pytest.raises(SpecError):
            await supervisor.start_child(stage.spec("a", TRANSIENT))


async def test_a_cancelled_start_leaves_no_child(autojump_clock: MockClock) -> None:
    async def never(run: Run) -> None:
        await trio.sleep_forever()

    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        with trio.move_on_after(1):
            await supervisor.start_child(ChildSpec(id="a", start=never, restart=TRANSIENT))
        assert supervisor.find("a") is None


async def test_a_dynamic_supervisor_has_a_maximum(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.DYNAMIC) as supervisor:
        for number in range(40):
            supervisor.ensure_child(stage.spec(f"c{number}", TRANSIENT))
        with pytest.raises(TooManyChildren):
            supervisor.ensure_child(stage.spec("one more", TRANSIENT))


async def test_dynamic_children_stop_beside_each_other(autojump_clock: MockClock) -> None:
    log: list[str] = []
    spec = slow_to_stop(log)
    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        for name in "abc":
            await supervisor.start_child(
                ChildSpec(id=name, start=spec.start, restart=TRANSIENT, shutdown=Grace(5.0))
            )
    assert trio.current_time() == 3
    assert log.count("clean") == 3


async def test_hurry_cuts_a_stop_short(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with running(Stage(), Strategy.DYNAMIC) as supervisor:
        await supervisor.start_child(slow_to_stop(log))
        supervisor.stop("slowly")
        await wait_all_tasks_blocked()
        supervisor.hurry("now")
    assert log == ["up", "asked slowly 5", "down"]
    assert trio.current_time() == 0


async def test_a_restart_on_request_has_an_empty_budget(autojump_clock: MockClock) -> None:
    stage = Stage()
    async with running(stage, Strategy.ONE_FOR_ONE, *map(stage.spec, "ab")) as supervisor:
        await supervisor.restart_child("a", "asked to")
        assert stage.take() == "+a +b -a +a"
        child = supervisor.find("a")
        assert child is not None
        assert (child.state, child.generation, child.restarts) == ("running", 2, 0)


async def test_a_supervisor_can_be_the_child_of_another(autojump_clock: MockClock) -> None:
    stage = Stage()
    inner = Supervisor(
        "inner",
        Strategy.ONE_FOR_ONE,
        [stage.spec("a")],
        on_report=stage.reports.append,
        intensity=Intensity(0, 60.0),
    )
    specs = [
        ChildSpec(id="inner", start=inner.serve, restart=TRANSIENT, ready_timeout=None),
        stage.spec("b"),
    ]
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the life of the tree
        async with running(stage, Strategy.ONE_FOR_ALL, *specs, intensity=Intensity(0, 60.0)):
            assert stage.take() == "+a +b"
            await stage.crash("a")
            await trio.sleep(1)
    assert stage.take() == "-a -b"
    assert caught.group_contains(RestartLimitReached, match="inner: a: ")


async def test_a_stop_before_all_are_ready_is_a_failed_start(autojump_clock: MockClock) -> None:
    stage = Stage()
    failures: list[str] = []

    async def never(run: Run) -> None:
        await trio.sleep_forever()

    async def run() -> None:
        try:
            await supervisor.run()
        except StartError as error:
            failures.append(str(error))

    specs = [stage.spec("a"), ChildSpec(id="b", start=never)]
    supervisor = Supervisor("test", Strategy.ONE_FOR_ONE, specs, on_report=stage.reports.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        supervisor.stop("SIGTERM")
    assert failures == ["test was stopped before it was ready: SIGTERM"]
    assert stage.take() == "+a -a"


async def test_a_stop_in_the_moment_in_which_a_child_gets_ready_ends_it(
    autojump_clock: MockClock,
) -> None:
    stage = Stage()

    def on_report(report: Report) -> None:
        if report.event == "ready":
            supervisor.stop("now")

    supervisor = Supervisor(
        "test", Strategy.ONE_FOR_ONE, [stage.spec("a"), stage.spec("b")], on_report=on_report
    )
    with trio.fail_after(60), pytest.raises(StartError, match="stopped before it was ready: now"):
        await supervisor.run()
    assert stage.take() == "+a -a"
    assert supervisor.over.is_set()
