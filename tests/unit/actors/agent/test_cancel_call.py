"""One call is cancelled: it ends alone, and the turn goes on with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.agent.calls import Completed
from roost.schemas.base import CallId
from roost.schemas.event import ToolCallFailed
from roost.schemas.turn import EndCall
from tests.unit.actors.agent.machine import ASK, QUESTION, Driven

if TYPE_CHECKING:
    from roost.actors.agent.runner import CallResult


def failures(turn: Driven) -> dict[str, tuple[object, object]]:
    return {
        e.tool_call_id: (e.error_code, e.outcome)
        for e in turn.events
        if isinstance(e, ToolCallFailed)
    }


def cancel_call(turn: Driven, call_id: str) -> None:
    turn.take(turn.machine.cancel_call(call_id))


def test_a_call_that_runs_is_stopped_and_the_turn_goes_on() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    cancel_call(turn, "c1")
    assert turn.stopped == ["c1"]
    assert turn.machine.can_stop("c2")
    assert not turn.machine.can_stop("c1")
    cancel_call(turn, "c1")
    assert turn.stopped == ["c1"], "it is stopped once"
    turn.stop("c1")
    turn.end("c2")
    assert failures(turn) == {"c1": ("TOOL_CANCELLED", "unknown")}
    first: CallResult
    first, second = turn.results  # type: ignore[assignment]
    assert (first.code, getattr(second, "result", None)) == ("TOOL_CANCELLED", "ok")
    turn.think(text="went on")
    assert [end.outcome for end in turn.ends] == ["completed"]


def test_the_call_behind_a_cancelled_one_runs() -> None:
    turn = Driven().begin()
    turn.think("a", "b")
    cancel_call(turn, "c1")
    turn.stop("c1")
    assert turn.running == ["c2"]


def test_a_call_that_ends_in_spite_of_the_cancel_has_its_result() -> None:
    turn = Driven().begin()
    turn.think("a")
    cancel_call(turn, "c1")
    turn.end("c1", Completed("done"))
    assert not failures(turn)


def test_a_call_whose_start_is_on_its_way_does_not_run() -> None:
    turn = Driven(slow=True).begin()
    turn.think("a")
    cancel_call(turn, "c1")
    turn.record()
    assert turn.running == []
    assert failures(turn) == {"c1": ("TOOL_CANCELLED", "unknown")}


def test_a_call_that_waits_is_cancelled_by_its_row() -> None:
    turn = Driven({"a": ASK, "q": QUESTION}).begin()
    turn.think("a")
    assert not turn.machine.can_stop("c1")
    turn.decide("c1", "cancelled")
    assert failures(turn) == {"c1": ("TOOL_CANCELLED", "not_started")}
    turn.think("q")
    turn.decide("c2", "cancelled")
    (result,) = turn.results
    assert getattr(result, "result", None) == {"action": "cancel"}


def test_a_cancel_of_the_turn_does_not_stop_the_call_twice() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    cancel_call(turn, "c1")
    turn.cancel()
    assert turn.stopped == ["c1", "c2"]
    turn.stop("c1")
    turn.stop("c2")
    assert [end.outcome for end in turn.ends] == ["interrupted"]
    assert set(failures(turn)) == {"c1", "c2"}


def test_what_does_not_run_is_left_alone() -> None:
    turn = Driven().begin()
    cancel_call(turn, "c1")
    turn.think("a", "b")
    cancel_call(turn, "c2")
    cancel_call(turn, "none")
    turn.end("c1")
    turn.end("c2")
    turn.think()
    cancel_call(turn, "c1")
    assert not turn.stopped
    assert not failures(turn)


def test_the_store_hears_of_a_call_that_ends_before_its_batch() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    turn.end("c1")
    assert turn.emitted[-1].event is None
    assert turn.emitted[-1].changes == (EndCall(call_id=CallId("c1")),)
    turn.end("c2")
    told = [c for emit in turn.emitted for c in emit.changes if isinstance(c, EndCall)]
    assert len(told) == 1, "the last one's event comes at once"
