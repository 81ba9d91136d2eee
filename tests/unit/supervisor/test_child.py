from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from roost.supervisor.child import ChildRun, Exit, run_child
from roost.supervisor.errors import ChildCrashed, StartError


async def ready_then_fail(run: ChildRun) -> None:
    run.started()
    raise ChildCrashed("it broke", "last words")


async def fail_first(run: ChildRun) -> None:
    raise ValueError("too early")


async def return_first(run: ChildRun) -> None:
    await trio.lowlevel.checkpoint()


async def live(run: ChildRun) -> None:
    run.started()
    await trio.sleep_forever()


async def test_the_crash_of_a_ready_child_is_data() -> None:
    exits: list[Exit] = []
    async with trio.open_nursery() as nursery:
        run = ChildRun("a", 7)
        await nursery.start(run_child, run, ready_then_fail, exits.append)
    assert exits == [
        Exit(child="a", generation=7, error="it broke", asked=False, last_words="last words")
    ]
    assert run.ended.is_set()


async def test_an_error_before_it_is_ready_comes_out_of_the_start() -> None:
    exits: list[Exit] = []
    run = ChildRun("a", 1)
    async with trio.open_nursery() as nursery:
        with pytest.raises(StartError, match="ValueError: too early"):
            await nursery.start(run_child, run, fail_first, exits.append)
    assert not exits
    assert run.ended.is_set()


async def test_an_end_before_it_is_ready_is_an_error_too() -> None:
    async with trio.open_nursery() as nursery:
        with pytest.raises(StartError, match="before it was ready"):
            await nursery.start(run_child, ChildRun("a", 1), return_first, print)


async def test_a_ready_child_is_ended_by_its_own_scope_only() -> None:
    exits: list[Exit] = []
    run = ChildRun("a", 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_child, run, live, exits.append)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        assert not run.ended.is_set()
        run.scope.cancel()
    assert [exit_.asked for exit_ in exits] == [True]


async def test_what_a_child_raises_while_it_is_cancelled_does_not_escape() -> None:
    exits: list[Exit] = []

    async def untidy(run: ChildRun) -> None:
        run.started()
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("untidy")

    run = ChildRun("a", 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_child, run, untidy, exits.append)
        run.scope.cancel()
    assert exits[0].error == "ValueError: untidy"


async def test_a_child_that_listens_is_asked_and_any_other_is_cancelled() -> None:
    heard: list[tuple[str, float]] = []
    run = ChildRun("a", 1)
    run.on_stop(lambda reason, grace: heard.append((reason, grace)))
    assert not run.ask_stop("not ready yet", 1.0)
    assert run.scope.cancel_called
    run = ChildRun("a", 2)
    run.on_stop(lambda reason, grace: heard.append((reason, grace)))
    run.started()
    assert run.ask_stop("now", 1.0)
    assert heard == [("now", 1.0)]
