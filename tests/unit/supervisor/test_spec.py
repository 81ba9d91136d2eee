from __future__ import annotations

import pytest

from roost.supervisor.errors import SpecError
from roost.supervisor.spec import (
    ChildSpec,
    Grace,
    Kill,
    Restart,
    Run,
    Strategy,
    check_spec,
    check_specs,
)


async def idle(run: Run) -> None:
    run.started()


def test_the_defaults_are_a_permanent_child_with_a_grace_of_five_seconds() -> None:
    spec = ChildSpec(id="a", start=idle)
    check_spec(spec)
    assert spec.restart is Restart.PERMANENT
    assert spec.shutdown == Grace(5.0)
    assert not spec.significant


def test_a_child_needs_an_id() -> None:
    with pytest.raises(SpecError, match="id"):
        check_spec(ChildSpec(id="", start=idle))


def test_a_permanent_child_cannot_be_significant() -> None:
    with pytest.raises(SpecError, match="significant"):
        check_spec(ChildSpec(id="a", start=idle, significant=True))


@pytest.mark.parametrize("restart", [Restart.TRANSIENT, Restart.TEMPORARY])
def test_any_other_child_can_be_significant(restart: Restart) -> None:
    check_spec(ChildSpec(id="a", start=idle, restart=restart, significant=True))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_grace_is_more_than_nothing(seconds: float) -> None:
    with pytest.raises(SpecError, match="grace"):
        check_spec(ChildSpec(id="a", start=idle, shutdown=Grace(seconds)))
    check_spec(ChildSpec(id="a", start=idle, shutdown=Kill()))


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_time_limit_to_get_ready_is_more_than_nothing(seconds: float) -> None:
    with pytest.raises(SpecError, match="ready_timeout"):
        check_spec(ChildSpec(id="a", start=idle, ready_timeout=seconds))
    check_spec(ChildSpec(id="a", start=idle, ready_timeout=None))


def test_two_children_cannot_have_one_id() -> None:
    specs = [ChildSpec(id=name, start=idle) for name in ("a", "b", "a")]
    with pytest.raises(SpecError, match="must differ: a"):
        check_specs(Strategy.ONE_FOR_ALL, specs)


def test_a_dynamic_supervisor_has_no_significant_child() -> None:
    spec = ChildSpec(id="a", start=idle, restart=Restart.TRANSIENT, significant=True)
    check_specs(Strategy.ONE_FOR_ONE, [spec])
    with pytest.raises(SpecError, match="dynamic"):
        check_specs(Strategy.DYNAMIC, [spec])
