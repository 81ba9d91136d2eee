"""A parked turn is rebuilt from its events and rows, and goes on to the same trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.agent.effects import Emit
from roost.actors.agent.resume import rebuild
from roost.schemas.event import AnyEvent, ToolApprovalApproved
from roost.schemas.turn import OpenPending
from tests.unit.actors.agent.machine import ASK, QUESTION, SESSION, TURN, Driven

if TYPE_CHECKING:
    from roost.schemas.approval import PendingRow, PendingState


def approved(call_id: str) -> AnyEvent:
    return ToolApprovalApproved(
        id="a", timestamp=1.0, session_id=SESSION, turn_id=TURN, tool_name="x", tool_call_id=call_id
    )


def rows(turn: Driven) -> list[PendingRow]:
    return [c.row for emit in turn.emitted for c in emit.changes if isinstance(c, OpenPending)]


def resumed(before: Driven, events: list[AnyEvent], pending: list[PendingRow]) -> Driven:
    after = Driven(before.policy.verdicts, max_iterations=2)
    after.stamps.calls = 10
    after.take(after.machine.resume(*rebuild(TURN, events, pending, after.policy)))
    return after


def settled(row: PendingRow, state: PendingState, answer: object = None) -> PendingRow:
    data = b"" if answer is None else msgspec.json.encode(answer)
    return msgspec.structs.replace(row, state=state, answer=data)


def test_it_waits_again_for_the_same_decision() -> None:
    before = Driven({"x": ASK}).begin()
    before.think("x", "b")
    after = resumed(before, before.events, rows(before))
    assert after.machine.is_waiting
    assert after.trace == ""
    after.emitted = [*before.emitted]
    after.decide("c1", "approved")
    assert after.running == ["c1"]


def test_a_decision_that_came_meanwhile_is_acted_on() -> None:
    before = Driven({"x": ASK}).begin()
    before.think("x", "b")
    events = [*before.events, approved("c1")]
    after = resumed(before, events, [settled(rows(before)[0], "approved")])
    assert after.running == ["c1"]
    after.end("c1")
    after.end("c2")
    assert after.trace == "started-c1 started-c2 done-c1 done-c2 reasoning"


def test_the_steps_made_before_count() -> None:
    before = Driven({"x": ASK}).begin()
    before.think("b")
    before.end("c1")
    before.think("x")
    events = [*before.events, approved("c2")]
    after = resumed(before, events, [settled(rows(before)[0], "approved")])
    after.end("c2")
    assert after.trace == "started-c2 done-c2 exhausted"


@pytest.mark.parametrize(
    ("state", "result"), [("answered", {"a": 1}), ("cancelled", {"action": "cancel"})]
)
def test_a_question_answered_meanwhile(state: PendingState, result: object) -> None:
    before = Driven({"q": QUESTION}).begin()
    before.think("q")
    row = settled(rows(before)[0], state, {"a": 1} if state == "answered" else None)
    after = resumed(before, before.events, [row])
    assert after.trace == "started-c1 done-c1 reasoning"
    assert getattr(after.results[0], "result", None) == result


def test_a_question_whose_start_was_written_is_not_started_again() -> None:
    before = Driven({"q": QUESTION}, slow=True).begin()
    before.think("q")
    before.decide("c1", "answered", answer={"a": 1})
    assert before.trace.endswith("started-c1")
    after = resumed(before, before.events, [settled(rows(before)[0], "answered", {"a": 1})])
    assert after.trace == "done-c1 reasoning"


def test_events_of_other_turns_do_not_count() -> None:
    before = Driven({"x": ASK}).begin()
    before.think("x")
    other = [msgspec.structs.replace(event, turn_id="other") for event in before.events]
    iteration, calls = rebuild(TURN, [*other, *before.events], rows(before), before.policy)
    assert (iteration, [call.id for call in calls]) == (1, ["c1"])


def test_a_resumed_wait_can_be_cancelled() -> None:
    before = Driven({"x": ASK}).begin()
    before.think("x")
    after = resumed(before, before.events, rows(before))
    after.cancel()
    assert after.trace == "rejected-c1 failed-c1 cancelled"
    assert all(isinstance(effect, Emit) for effect in after.effects[1:])
