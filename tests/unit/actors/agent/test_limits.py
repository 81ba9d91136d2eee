"""Time limits of turns and tools, and the ledger, in the turn machine: the rows of L 9.3 and 11.2, the traces of L 11.4."""

from __future__ import annotations

import pytest

from roost.actors.agent.calls import (
    ALREADY_STARTED,
    EXECUTION_FAILED,
    INVALID_RESULT,
    NOT_ALLOWED,
    STARTED_BEFORE,
    TIMED_OUT,
    Completed,
    Failed,
    ended_as,
)
from roost.actors.agent.effects import LimitQueue, Refuse, StopThinking
from roost.actors.agent.failures import TIMED_OUT_TEXT
from roost.actors.agent.runner import RunnerFailed, Thought
from roost.schemas import event
from roost.schemas.base import MessageId
from roost.schemas.turn import BeginTurn, ClaimCall, EndTurn, QueuedMessage, SettleCall
from tests.support.store import tool_event
from tests.unit.actors.agent.machine import ASK, QUESTION, Driven


def call_end(turn: Driven, call_id: str = "c1") -> tuple[object, object, object]:
    (found,) = [
        e for e in turn.events if isinstance(e, event.ToolCallFailed) and e.tool_call_id == call_id
    ]
    return found.error_code, found.retryable, found.outcome


def turn_end(turn: Driven) -> tuple[object, object, object, object]:
    last = turn.events[-1]
    assert isinstance(last, event.AgentTurnFailed)
    assert last.error == TIMED_OUT_TEXT
    return last.error_code, last.phase, last.retryable, last.outcome


def settlements(turn: Driven) -> list[SettleCall]:
    return [c for emit in turn.emitted for c in emit.changes if isinstance(c, SettleCall)]


def test_turn_limit_in_the_queue() -> None:
    turn = Driven()
    message = QueuedMessage(message_id=MessageId("m"), stream_id="", accepted_at=1, text="hello")
    turn.take(turn.machine.expire(message))
    assert turn.trace == "turn-failed"
    assert turn_end(turn) == ("TURN_TIMEOUT", "queue", True, "not_started")
    (emit,) = turn.emitted
    assert [type(change) for change in emit.changes] == [BeginTurn, EndTurn]
    assert (turn.ends[0].outcome, emit.mark) == ("failed", "only")


@pytest.mark.parametrize(("sent", "outcome"), [(False, "not_started"), (True, "unknown")])
def test_turn_limit_before_the_first_chunk(sent: bool, outcome: str) -> None:
    turn = Driven().begin()
    if sent:
        turn.machine.sent()
    turn.limit()
    assert isinstance(turn.effects[-1], StopThinking)
    turn.take(turn.machine.runner_stopped())
    assert turn.trace == "user reasoning turn-failed"
    assert turn_end(turn) == ("TURN_TIMEOUT", "provider_open", True, outcome)


def test_turn_limit_in_the_stream() -> None:
    turn = Driven().begin()
    turn.take(turn.machine.text(3))
    turn.limit()
    turn.take(turn.machine.runner_stopped())
    assert turn.trace == "user reasoning turn-failed"
    assert turn_end(turn) == ("TURN_TIMEOUT", "provider_stream", True, "unknown")


def test_turn_limit_before_the_first_chunk_of_a_later_step_may_have_had_effects() -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.end("c1")
    turn.limit()
    turn.take(turn.machine.runner_stopped())
    assert turn_end(turn) == ("TURN_TIMEOUT", "provider_open", True, "unknown")


@pytest.mark.parametrize("late", ["done", "failed"])
def test_a_runner_that_ends_just_after_the_limit_does_not_save_its_turn(late: str) -> None:
    turn = Driven().begin()
    turn.limit()
    if late == "done":
        turn.think(text="done")
    else:
        turn.take(turn.machine.runner_failed(RunnerFailed("x")))
    assert turn.trace == "user reasoning turn-failed"
    assert turn_end(turn)[0] == "TURN_TIMEOUT"


def test_turn_limit_while_waiting_for_approval() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x", "b")
    turn.limit()
    assert turn.trace == (
        "user reasoning requested-c1 requested-c2 ask-c1 rejected-c1 failed-c1 failed-c2 turn-failed"
    )
    assert call_end(turn) == call_end(turn, "c2") == ("TURN_TIMEOUT", True, "not_started")
    assert turn_end(turn) == ("TURN_TIMEOUT", "approval", True, "not_started")
    (rejected,) = [e for e in turn.events if isinstance(e, event.ToolApprovalRejected)]
    assert rejected.error_code == "TURN_TIMEOUT"


def test_an_approval_that_was_first_does_not_save_a_call_of_a_late_turn() -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.limit()
    turn.take(turn.machine.settle_refused("c1"))
    turn.decide("c1", "approved")
    assert turn.running == []
    assert call_end(turn) == ("TURN_TIMEOUT", True, "not_started")
    assert turn_end(turn) == ("TURN_TIMEOUT", "approval", True, "not_started")


def test_turn_limit_while_a_question_is_open() -> None:
    turn = Driven({"q": QUESTION}).begin()
    turn.think("q")
    turn.limit()
    assert turn.trace == "user reasoning requested-c1 failed-c1 turn-failed"
    assert turn_end(turn) == ("TURN_TIMEOUT", "tool", True, "not_started")


def test_turn_limit_before_the_start_of_a_call() -> None:
    turn = Driven(permits=False).begin()
    turn.think("x")
    turn.limit()
    assert turn.trace == "user reasoning requested-c1 failed-c1 turn-failed"
    assert call_end(turn) == ("TURN_TIMEOUT", True, "not_started")
    assert turn_end(turn) == ("TURN_TIMEOUT", "tool", True, "not_started")
    assert turn.released == ["c1"]


def test_turn_limit_after_the_start_of_a_call() -> None:
    turn = Driven().begin()
    turn.think("x", "b")
    turn.limit()
    assert turn.stopped == ["c1"]
    turn.stop("c1")
    assert turn.trace == (
        "user reasoning requested-c1 requested-c2 started-c1 failed-c1 failed-c2 turn-failed"
    )
    assert call_end(turn) == ("TURN_TIMEOUT", False, "unknown")
    assert call_end(turn, "c2") == ("TURN_TIMEOUT", True, "not_started")
    assert turn_end(turn) == ("TURN_TIMEOUT", "tool", False, "unknown")


def test_turn_limit_while_a_start_is_on_its_way() -> None:
    turn = Driven(slow=True).begin()
    turn.think("x")
    turn.limit()
    turn.record()
    assert turn.running == []
    assert call_end(turn) == ("TURN_TIMEOUT", False, "unknown")


def test_a_tool_that_ends_in_spite_of_the_limit_has_its_result_and_the_turn_fails() -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.limit()
    turn.end("c1")
    assert turn.trace == "user reasoning requested-c1 started-c1 done-c1 turn-failed"
    assert turn_end(turn) == ("TURN_TIMEOUT", "tool", False, "unknown")


@pytest.mark.parametrize("first", ["cancel", "limit"])
def test_cancelled_and_timed_out_at_once(first: str) -> None:
    turn = Driven().begin()
    for action in (first, "limit", "cancel"):
        turn.cancel() if action == "cancel" else turn.limit()
    turn.take(turn.machine.runner_stopped())
    assert turn.trace == "user reasoning cancelled"


@pytest.mark.parametrize("first", ["cancel", "limit"])
def test_cancelled_and_timed_out_while_tools_run(first: str) -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    for action in (first, "limit", "cancel"):
        turn.cancel() if action == "cancel" else turn.limit()
    assert turn.stopped == ["c1", "c2"]
    turn.stop("c2")
    turn.stop("c1")
    assert turn.trace.endswith("failed-c1 failed-c2 cancelled")
    assert call_end(turn) == ("TOOL_CANCELLED", False, "unknown")


def test_a_turn_past_its_bound_of_text_that_is_cancelled_is_cancelled() -> None:
    turn = Driven().begin()
    turn.take(turn.machine.text(10_000_000))
    turn.cancel()
    turn.take(turn.machine.thought(Thought("much")))
    assert turn.trace == "user reasoning cancelled"


def test_a_limit_before_the_beginning_and_after_the_end_does_nothing() -> None:
    turn = Driven()
    turn.limit()
    turn.begin()
    turn.think(text="done")
    turn.limit()
    assert turn.trace == "user reasoning completed"


def test_the_limit_of_an_approval_on_its_way_and_then_that_of_the_turn() -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.take(turn.machine.wait_expired("c1"))
    turn.limit()
    turn.record()
    assert turn.trace == "user reasoning requested-c1 ask-c1 rejected-c1 failed-c1 turn-failed"
    assert call_end(turn)[0] == "APPROVAL_TIMEOUT"
    assert turn_end(turn) == ("TURN_TIMEOUT", "approval", True, "not_started")


def test_tool_limit_in_the_queue() -> None:
    turn = Driven(permits=False).begin()
    turn.think("x")
    turn.take(turn.machine.queue_expired("c1"))
    assert turn.trace == "user reasoning requested-c1 failed-c1 reasoning"
    assert call_end(turn) == ("TOOL_TIMEOUT", True, "not_started")
    assert turn.released == ["c1"]
    turn.take(turn.machine.permitted("c1"))
    assert turn.running == []
    assert turn.released == ["c1", "c1"]


def test_the_limit_of_a_fifth_parallel_call_runs_while_it_waits_for_the_others() -> None:
    turn = Driven().begin()
    turn.think(*(f"p{number}" for number in range(5)))
    assert [e.call_id for e in turn.effects if isinstance(e, LimitQueue)] == ["c5"]
    turn.take(turn.machine.queue_expired("c5"))
    for number in range(1, 5):
        turn.end(f"c{number}")
    assert call_end(turn, "c5") == ("TOOL_TIMEOUT", True, "not_started")
    assert "started-c5" not in turn.trace


def test_the_limit_of_a_call_behind_a_barrier_does_not_run() -> None:
    turn = Driven().begin()
    turn.think("a", "b")
    turn.take(turn.machine.queue_expired("c2"))
    turn.end("c1")
    assert turn.running == ["c2"]


def test_a_permit_is_kept_until_the_handler_has_ended() -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.limit()
    assert turn.released == []
    turn.stop("c1")
    assert turn.released == ["c1"]


NOT_STARTED = [
    ("no", Refuse(NOT_ALLOWED), ("TOOL_NOT_ALLOWED", False, "not_started")),
    (
        "bad",
        Refuse(Failed("no", "INVALID_TOOL_ARGUMENTS", path="/x")),
        ("INVALID_TOOL_ARGUMENTS", False, "not_started"),
    ),
]


@pytest.mark.parametrize(("tool", "verdict", "end"), NOT_STARTED)
def test_a_call_that_policy_or_its_arguments_refuse(
    tool: str, verdict: Refuse, end: tuple[object, ...]
) -> None:
    turn = Driven({tool: verdict}).begin()
    turn.think(tool)
    assert turn.trace == "user reasoning requested-c1 failed-c1 reasoning"
    assert call_end(turn) == end
    assert settlements(turn) == []


@pytest.mark.parametrize(
    ("end", "said", "state"),
    [
        (TIMED_OUT, ("TOOL_TIMEOUT", False, "unknown"), "unknown"),
        (EXECUTION_FAILED, ("TOOL_EXECUTION_FAILED", False, "unknown"), "unknown"),
        (INVALID_RESULT, ("INVALID_TOOL_RESULT", False, "unknown"), "unknown"),
        (Failed("no", "X", outcome="failed"), ("X", False, "failed"), "released"),
    ],
)
def test_a_call_that_fails_after_its_start_settles_its_claim(
    end: Failed, said: tuple[object, ...], state: str
) -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.end("c1", end)
    assert turn.trace == "user reasoning requested-c1 started-c1 failed-c1 reasoning"
    assert call_end(turn) == said
    assert [change.state for change in settlements(turn)] == [state]


def test_a_start_claims_its_call_and_the_end_settles_it() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    turn.end("c2")
    turn.end("c1")
    claims = [c for emit in turn.emitted for c in emit.changes if isinstance(c, ClaimCall)]
    assert [claim.call_id for claim in claims] == ["c1", "c2"]
    assert len({claim.fingerprint for claim in claims}) == 2
    assert [(c.call_id, c.state) for c in settlements(turn)] == [
        ("c1", "completed"),
        ("c2", "completed"),
    ]


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("IDEMPOTENCY_CAPACITY_EXCEEDED", True), ("IDEMPOTENCY_CONFLICT", False)],
)
def test_a_call_that_cannot_be_claimed_does_not_run(code: str, retryable: bool) -> None:
    turn = Driven(slow=True).begin()
    turn.think("x")
    turn.take(turn.machine.start_refused("c1", code))
    assert turn.running == []
    assert call_end(turn) == (code, retryable, "not_started")
    assert settlements(turn) == []
    assert turn.released == ["c1"]


@pytest.mark.parametrize("end", [Completed("before"), STARTED_BEFORE])
def test_a_call_that_was_started_before_is_answered_from_the_log(end: Completed | Failed) -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.decide("c1", "approved")
    turn.take(turn.machine.start_refused("c1", ALREADY_STARTED))
    assert turn.recalls == ["c1"]
    turn.take(turn.machine.recalled("c1", end))
    assert turn.running == []
    assert settlements(turn) == []
    (result,) = turn.results
    if isinstance(end, Completed):
        assert getattr(result, "result", None) == "before"
    else:
        assert call_end(turn) == ("TOOL_EXECUTION_FAILED", False, "unknown")


def test_what_a_call_is_remembered_by() -> None:
    completed = tool_event(event.ToolCallCompleted, "s", "t", "c", result=[1])
    unknown = tool_event(
        event.ToolCallFailed,
        "s",
        "t",
        "c",
        error="late",
        error_code="TOOL_TIMEOUT",
        outcome="unknown",
    )
    assert ended_as(completed) == Completed([1])
    assert ended_as(unknown) == Failed("late", "TOOL_TIMEOUT", outcome="unknown")
    assert ended_as(None) == STARTED_BEFORE
