from __future__ import annotations

import math

from roost.supervisor.liveness import Liveness


def test_a_child_without_work_is_never_asked() -> None:
    child = Liveness(30.0)
    assert child.due == math.inf
    assert child.act(1e9) == ""


def test_a_child_without_a_limit_is_never_asked() -> None:
    child = Liveness(None)
    child.set_working(True, 0.0)
    assert child.due == math.inf
    assert child.act(1e9) == ""


def test_a_working_child_is_asked_every_third_of_the_limit() -> None:
    child = Liveness(30.0)
    child.set_working(True, 0.0)
    asked: list[int] = []
    for now in range(101):
        if child.act(float(now)) == "ping":
            asked.append(now)
            child.pong()
    assert asked == list(range(10, 101, 10))


def test_a_child_that_does_not_answer_is_hung_after_the_limit() -> None:
    child = Liveness(30.0)
    child.set_working(True, 0.0)
    assert child.act(10.0) == "ping"
    child.pong()
    assert child.act(20.0) == "ping"
    assert child.act(30.0) == "ping"
    assert child.act(49.9) == "ping"
    assert child.due == 50.0
    assert child.act(50.0) == "hung"
    assert child.due == math.inf


def test_a_child_that_says_that_it_has_no_work_left_is_let_alone() -> None:
    child = Liveness(30.0)
    child.set_working(True, 0.0)
    child.act(10.0)
    child.set_working(False, 15.0)
    assert child.act(100.0) == ""


def test_a_reset_gives_a_working_child_its_whole_time_again() -> None:
    child = Liveness(30.0)
    child.set_working(True, 0.0)
    child.act(10.0)
    child.reset(1000.0)
    assert child.act(1000.0) == ""
    assert child.due == 1010.0


def test_another_limit_begins_the_wait_anew() -> None:
    child = Liveness(30.0)
    child.set_working(True, 0.0)
    assert child.act(10.0) == "ping"
    assert child.silent(12.0) == 2.0
    child.set_timeout(30.0, 12.0)
    assert child.silent(12.0) == 2.0
    child.set_timeout(3.0, 12.0)
    assert (child.silent(12.0), child.due) == (0.0, 13.0)
    assert child.act(13.0) == "ping"
    child.pong()
    assert child.silent(13.5) == 0.0
    child.set_timeout(None, 14.0)
    assert child.due == math.inf


def test_a_limit_for_a_child_that_had_none_counts_from_now_on() -> None:
    child = Liveness(None)
    child.set_working(True, 0.0)
    child.set_timeout(3.0, 10.0)
    assert child.due == 11.0
