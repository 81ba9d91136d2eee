from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from roost.supervisor.backoff import Backoff


def test_the_first_restart_after_a_long_life_is_immediate() -> None:
    assert Backoff().delay(0, 10.0, 0.5) == 0.0


def test_the_first_restart_after_a_short_life_waits() -> None:
    assert Backoff().delay(0, 9.9, 0.0) == 0.1


@pytest.mark.parametrize(
    ("restarts", "delay"),
    [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.6), (6, 3.2), (7, 5.0), (8, 5.0), (10_000, 5.0)],
)
def test_each_further_one_waits_twice_as_long_up_to_a_limit(restarts: int, delay: float) -> None:
    assert Backoff().delay(restarts, 100.0, 0.0) == pytest.approx(delay)


@given(
    restarts=st.integers(0, 1000),
    lived=st.floats(0.0, 1e6),
    chance=st.floats(0.0, 1.0, exclude_max=True),
)
def test_the_jitter_shortens_a_delay_by_a_quarter_at_most(
    restarts: int, lived: float, chance: float
) -> None:
    backoff = Backoff()
    longest = backoff.delay(restarts, lived, 0.0)
    assert 0.75 * longest <= backoff.delay(restarts, lived, chance) <= longest <= 5.0
