from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from roost.supervisor.errors import SpecError
from roost.supervisor.intensity import Intensity, Window


def test_as_many_restarts_as_are_allowed_are_allowed() -> None:
    window = Window(Intensity(3, 60.0))
    assert [window.add(now) for now in (0.0, 1.0, 2.0)] == [True, True, True]
    assert not window.add(3.0)


def test_a_restart_leaves_the_window_after_its_period() -> None:
    window = Window(Intensity(1, 60.0))
    assert window.add(0.0)
    assert not Window(Intensity(0, 60.0)).add(0.0)
    assert window.add(60.0)
    assert not window.add(119.9)


def test_a_cleared_window_allows_everything_again() -> None:
    window = Window(Intensity(1, 60.0))
    window.add(0.0)
    window.clear()
    assert window.count(0.0) == 0
    assert window.add(0.0)


@pytest.mark.parametrize(("restarts", "period"), [(-1, 1.0), (1, 0.0), (1, -1.0)])
def test_a_wrong_intensity_is_refused(restarts: int, period: float) -> None:
    with pytest.raises(SpecError):
        Intensity(restarts, period)


@given(
    limit=st.integers(0, 5),
    steps=st.lists(st.floats(0.0, 30.0, allow_nan=False), max_size=40),
)
def test_the_window_agrees_with_counting_all_restarts(limit: int, steps: list[float]) -> None:
    window = Window(Intensity(limit, 60.0))
    times: list[float] = []
    now = 0.0
    for step in steps:
        now += step
        times.append(now)
        within = [time for time in times if time > now - 60.0]
        assert window.add(now) is (len(within) <= limit)
        assert window.count(now) == min(len(within), limit + 1)
