"""Strategy × restart type × way to end, each cell by hand."""

from __future__ import annotations

import pytest

from roost.supervisor.decision import Plan, plan_restart
from roost.supervisor.spec import ChildSpec, Restart, Run, Strategy

PERMANENT, TRANSIENT, TEMPORARY = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY
ALONE = Plan(start=("b",))
NOTHING = Plan()
THE_REST = Plan(stop=("d", "c"), start=("b", "c"))
ALL = Plan(stop=("d", "c", "a"), start=("a", "b", "c"))


async def idle(run: Run) -> None:
    run.started()


def siblings(restart: Restart, *, significant: bool = False) -> list[ChildSpec]:
    return [
        ChildSpec(id="a", start=idle),
        ChildSpec(id="b", start=idle, restart=restart, significant=significant),
        ChildSpec(id="c", start=idle, restart=TRANSIENT),
        ChildSpec(id="d", start=idle, restart=TEMPORARY),
    ]


@pytest.mark.parametrize(
    ("strategy", "restart", "crashed", "plan"),
    [
        (Strategy.ONE_FOR_ONE, PERMANENT, True, ALONE),
        (Strategy.ONE_FOR_ONE, PERMANENT, False, ALONE),
        (Strategy.ONE_FOR_ONE, TRANSIENT, True, ALONE),
        (Strategy.ONE_FOR_ONE, TRANSIENT, False, NOTHING),
        (Strategy.ONE_FOR_ONE, TEMPORARY, True, NOTHING),
        (Strategy.ONE_FOR_ONE, TEMPORARY, False, NOTHING),
        (Strategy.DYNAMIC, PERMANENT, True, ALONE),
        (Strategy.DYNAMIC, PERMANENT, False, ALONE),
        (Strategy.DYNAMIC, TRANSIENT, True, ALONE),
        (Strategy.DYNAMIC, TRANSIENT, False, NOTHING),
        (Strategy.DYNAMIC, TEMPORARY, True, NOTHING),
        (Strategy.DYNAMIC, TEMPORARY, False, NOTHING),
        (Strategy.REST_FOR_ONE, PERMANENT, True, THE_REST),
        (Strategy.REST_FOR_ONE, PERMANENT, False, THE_REST),
        (Strategy.REST_FOR_ONE, TRANSIENT, True, THE_REST),
        (Strategy.REST_FOR_ONE, TRANSIENT, False, NOTHING),
        (Strategy.REST_FOR_ONE, TEMPORARY, True, NOTHING),
        (Strategy.REST_FOR_ONE, TEMPORARY, False, NOTHING),
        (Strategy.ONE_FOR_ALL, PERMANENT, True, ALL),
        (Strategy.ONE_FOR_ALL, PERMANENT, False, ALL),
        (Strategy.ONE_FOR_ALL, TRANSIENT, True, ALL),
        (Strategy.ONE_FOR_ALL, TRANSIENT, False, NOTHING),
        (Strategy.ONE_FOR_ALL, TEMPORARY, True, NOTHING),
        (Strategy.ONE_FOR_ALL, TEMPORARY, False, NOTHING),
    ],
)
def test_the_plan_for_each_strategy_restart_type_and_way_to_end(
    strategy: Strategy, restart: Restart, crashed: bool, plan: Plan
) -> None:
    assert plan_restart(strategy, siblings(restart), "b", crashed=crashed) == plan


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_last_child_takes_nobody_along_unless_all_go(strategy: Strategy) -> None:
    specs = siblings(PERMANENT)[:2]
    plan = plan_restart(strategy, specs, "b", crashed=True)
    assert plan.start[-1] == "b"
    assert plan.stop == (("a",) if strategy is Strategy.ONE_FOR_ALL else ())


@pytest.mark.parametrize(
    ("restart", "crashed", "ends"),
    [
        (TRANSIENT, False, True),
        (TRANSIENT, True, False),
        (TEMPORARY, False, True),
        (TEMPORARY, True, True),
    ],
)
def test_a_significant_child_that_is_not_restarted_ends_its_supervisor(
    restart: Restart, crashed: bool, ends: bool
) -> None:
    specs = siblings(restart, significant=True)
    assert plan_restart(Strategy.ONE_FOR_ONE, specs, "b", crashed=crashed).end is ends
