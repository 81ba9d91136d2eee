"""The rate of a connection: what a refused client is told is true."""

from __future__ import annotations

from hypothesis import given, strategies as st

from roost.actors.front.limits import TokenBucket, make_bucket

RATES = st.integers(1, 100_000)
TIMES = st.floats(0, 1e9, allow_nan=False)
PAUSES = st.lists(st.floats(0, 0.01, allow_nan=False), max_size=50)


@given(rate=RATES, burst=st.integers(1, 50), start=TIMES, pauses=PAUSES)
def test_a_refused_request_passes_after_the_time_that_its_refusal_names(
    rate: int, burst: int, start: float, pauses: list[float]
) -> None:
    bucket, now = TokenBucket(rate, burst, start), start
    for pause in pauses:
        now += pause
        if not bucket.take(now):
            now += bucket.retry_after_ms / 1000
            assert bucket.take(now)


@given(rate=RATES, burst=st.integers(1, 50), pauses=PAUSES)
def test_no_more_pass_than_the_burst_and_what_has_come_since(
    rate: int, burst: int, pauses: list[float]
) -> None:
    bucket, now, passed = TokenBucket(rate, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
        assert passed <= burst + now * rate + 0.001


def test_the_time_that_a_refusal_names_is_enough_however_it_is_rounded() -> None:
    for rate in range(1, 2_000):
        bucket = TokenBucket(rate, 1, 1.1)
        assert bucket.take(1.1)
        assert not bucket.take(1.1)
        assert bucket.take(1.1 + bucket.retry_after_ms / 1000)


def test_a_clock_that_stands_still_gives_no_token() -> None:
    bucket = TokenBucket(1000, 2, 5.0)
    assert [bucket.take(5.0) for _ in range(4)] == [True, True, False, False]


def test_a_burst_of_none_is_one_request_at_a_time() -> None:
    bucket = make_bucket(10, 0, 0.0)
    assert bucket is not None
    assert [bucket.take(0.0), bucket.take(0.0), bucket.take(0.1)] == [True, False, True]
