"""The turn machine: the traces of L 11.4, every way a call ends, and every moment of a cancel."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.agent.calls import (
    EXECUTION_FAILED,
    NEXT,
    NOT_ALLOWED,
    TIMED_OUT,
    Call,
    Failed,
    Logged,
)
from roost.actors.agent.effects import Refuse, StopThinking, Verdict
from roost.actors.agent.order import FOLLOWS, check_order
from roost.actors.agent.runner import CallRequest, RunnerFailed, Thought
from roost.actors.agent.turn import MAX_TEXT_BYTES
from roost.schemas.base import CallId
from roost.schemas.event import AgentMessageCompleted, AgentTurnFailed, ToolCallFailed, is_final
from roost.schemas.turn import AddUsage, OpenPending, SetRunnerState
from tests.unit.actors.agent.machine import ASK, QUESTION, Driven


def failure(turn: Driven) -> ToolCallFailed:
    (found,) = [e for e in turn.events if isinstance(e, ToolCallFailed)]
    return found


def test_one_text_turn() -> None:
    turn = Driven().begin()
    turn.think(text="hi")
    assert turn.trace == "user reasoning completed"
    assert [end.outcome for end in turn.ends] == ["completed"]
    last = turn.events[-1]
    assert isinstance(last, AgentMessageCompleted)
    assert last.metadata == {"final": True}


def test_a_turn_without_a_word_still_has_its_final_event() -> None:
    turn = Driven().begin()
    turn.think()
    assert turn.trace == "user reasoning completed"
    assert is_final(turn.events[-1])


def test_one_tool() -> None:
    turn = Driven().begin()
    turn.think("x", text="let me see")
    assert turn.running == ["c1"]
    turn.end("c1")
    turn.think(text="done")
    assert turn.trace == (
        "user reasoning completed requested-c1 started-c1 done-c1 reasoning completed"
    )
    assert [is_final(event) for event in turn.events].count(True) == 1


def test_the_runner_gets_the_results_in_the_order_of_its_requests() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    turn.end("c2", Failed("no", "CODE"))
    turn.end("c1")
    first, second = turn.results
    assert (getattr(first, "result", None), getattr(second, "code", None)) == ("ok", "CODE")


def test_two_parallel_tools_that_finish_in_the_other_order() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2")
    assert turn.running == ["c1", "c2"]
    turn.end("c2")
    turn.end("c1")
    turn.think(text="done")
    assert turn.trace == (
        "user reasoning requested-c1 requested-c2 started-c1 started-c2 done-c1 done-c2 "
        "reasoning completed"
    )


def test_tools_that_are_not_parallel_run_alone_and_in_order() -> None:
    turn = Driven().begin()
    turn.think("a", "b")
    assert turn.running == ["c1"]
    turn.end("c1")
    assert turn.running == ["c2"]
    turn.end("c2")
    turn.think()
    assert "started-c1 started-c2 done-c1 done-c2" in turn.trace


def test_a_call_that_is_not_parallel_is_a_barrier() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2", "x", "p3", "p4")
    assert turn.running == ["c1", "c2"]
    turn.end("c1")
    assert turn.running == ["c2"]
    turn.end("c2")
    assert turn.running == ["c3"]
    turn.end("c3")
    assert turn.running == ["c4", "c5"]


def test_at_most_four_calls_run_at_once() -> None:
    turn = Driven().begin()
    turn.think(*(f"p{number}" for number in range(6)))
    assert turn.running == ["c1", "c2", "c3", "c4"]
    turn.end("c3")
    assert turn.running == ["c1", "c2", "c4", "c5"]


def test_denied_by_policy() -> None:
    turn = Driven({"x": Refuse(NOT_ALLOWED)}).begin()
    turn.think("x")
    turn.think(text="well")
    assert turn.trace == "user reasoning requested-c1 failed-c1 reasoning completed"
    assert failure(turn).error_code == "TOOL_NOT_ALLOWED"


def test_a_refused_call_does_not_stop_its_neighbours() -> None:
    turn = Driven({"x": Refuse(NOT_ALLOWED)}).begin()
    turn.think("x", "b")
    turn.end("c2")
    assert turn.trace == (
        "user reasoning requested-c1 requested-c2 started-c2 failed-c1 done-c2 reasoning"
    )


def test_approval_granted_from_outside() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x")
    assert turn.machine.is_waiting
    turn.decide("c1", "approved")
    assert not turn.machine.is_waiting
    turn.end("c1")
    turn.think(text="done")
    assert turn.trace == "user reasoning requested-c1 ask-c1 started-c1 done-c1 reasoning completed"


@pytest.mark.parametrize(
    ("state", "code", "retryable"),
    [
        ("denied", "APPROVAL_REJECTED", False),
        ("timeout", "APPROVAL_TIMEOUT", True),
        ("unavailable", "APPROVAL_UNAVAILABLE", False),
        ("cancelled", "TOOL_CANCELLED", True),
    ],
)
def test_approval_refused(state: str, code: str, retryable: bool) -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x")
    turn.decide("c1", state)  # type: ignore[arg-type] # one of its values
    turn.think(text="well")
    assert turn.trace == "user reasoning requested-c1 ask-c1 failed-c1 reasoning completed"
    found = failure(turn)
    assert (found.error_code, found.retryable, found.outcome) == (code, retryable, "not_started")


def test_the_reason_of_a_denial_reaches_the_runner() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x")
    turn.decide("c1", "denied", reason="too risky" * 100)
    assert failure(turn).error.startswith("The call was denied: too risky")
    assert len(failure(turn).error) == 200


def test_approvals_are_asked_for_one_at_a_time_and_before_anything_runs() -> None:
    turn = Driven({"x": ASK, "y": ASK}).begin()
    turn.think("a", "x", "y")
    assert turn.trace.endswith("requested-c1 requested-c2 requested-c3 ask-c2")
    assert turn.running == []
    turn.decide("c2", "approved")
    assert turn.trace.endswith("ask-c3")
    turn.decide("c3", "denied")
    assert turn.running == ["c1"]


def test_a_grant_from_the_first_approval_counts_for_the_second_call() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x", "x")
    turn.policy.verdicts.clear()
    turn.decide("c1", "approved")
    assert turn.running == ["c1"]
    turn.end("c1")
    assert turn.running == ["c2"]


def test_nobody_decides_in_time() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x")
    turn.take(turn.machine.wait_expired("c1"))
    assert turn.trace == "user reasoning requested-c1 ask-c1 rejected-c1 failed-c1 reasoning"
    assert failure(turn).error_code == "APPROVAL_TIMEOUT"


def test_an_approval_that_was_first_wins_over_the_time_limit() -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.take(turn.machine.wait_expired("c1"))
    turn.take(turn.machine.settle_refused("c1"))
    turn.decide("c1", "approved")
    turn.slow = False
    turn.unanswered = [emit for emit in turn.unanswered if emit.mark != "settled"]
    turn.record()
    assert turn.running == ["c1"]


def test_a_decision_that_is_heard_before_the_refusal_counts_once() -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.take(turn.machine.wait_expired("c1"))
    turn.decide("c1", "denied")
    before = turn.trace
    turn.take(turn.machine.settle_refused("c1"))
    turn.decide("c1", "denied")
    assert turn.trace == before
    assert turn.trace.count("failed-c1") == 1


def test_a_question_is_asked_without_an_event_and_its_answer_is_the_result() -> None:
    turn = Driven({"q": QUESTION}).begin()
    turn.think("q")
    assert turn.machine.is_waiting
    assert turn.row("c1").kind == "question"
    turn.decide("c1", "answered", answer={"answers": {}})
    assert turn.trace == "user reasoning requested-c1 started-c1 done-c1 reasoning"
    assert turn.running == []
    assert getattr(turn.results[0], "result", None) == {"answers": {}}


def test_a_question_that_the_user_declines_has_a_result() -> None:
    turn = Driven({"q": QUESTION}).begin()
    turn.think("q")
    turn.decide("c1", "cancelled")
    assert getattr(turn.results[0], "result", None) == {"action": "cancel"}


@pytest.mark.parametrize("end", [EXECUTION_FAILED, TIMED_OUT])
def test_a_handler_that_fails_leaves_the_effect_unknown(end: Failed) -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.end("c1", end)
    assert turn.trace == "user reasoning requested-c1 started-c1 failed-c1 reasoning"
    assert (failure(turn).outcome, failure(turn).retryable) == ("unknown", False)


def test_no_handler_runs_before_its_start_is_on_disk() -> None:
    turn = Driven(slow=True).begin()
    turn.think("x")
    assert turn.trace.endswith("started-c1")
    assert turn.running == []
    turn.record()
    assert turn.running == ["c1"]


def test_two_iterations_allowed_and_both_ask_for_tools() -> None:
    turn = Driven(max_iterations=2).begin()
    for call_id in ("c1", "c2"):
        turn.think("x")
        turn.end(call_id)
    assert turn.trace == (
        "user reasoning requested-c1 started-c1 done-c1 reasoning requested-c2 started-c2 done-c2 "
        "exhausted"
    )
    assert [end.outcome for end in turn.ends] == ["failed"]
    assert turn.thinks == 2


def test_a_runner_that_fails_ends_the_turn() -> None:
    turn = Driven().begin()
    failed = RunnerFailed(
        "gone", code="PROVIDER_NETWORK_ERROR", phase="provider_open", retryable=True
    )
    turn.take(turn.machine.runner_failed(failed))
    assert turn.trace == "user reasoning turn-failed"
    last = turn.events[-1]
    assert isinstance(last, AgentTurnFailed)
    assert (last.error, last.error_code, last.phase, last.retryable) == (
        "gone",
        "PROVIDER_NETWORK_ERROR",
        "provider_open",
        True,
    )
    assert turn.ends[0].error == "gone"


def test_an_answer_over_the_bound_stops_the_runner_and_fails_the_turn() -> None:
    turn = Driven().begin()
    assert turn.machine.text(MAX_TEXT_BYTES) == []
    assert turn.machine.text(1) == [StopThinking()]
    assert turn.machine.text(1) == []
    turn.take(turn.machine.runner_stopped())
    last = turn.events[-1]
    assert isinstance(last, AgentTurnFailed)
    assert (last.error_code, last.outcome) == ("PROVIDER_OUTPUT_LIMIT", "unknown")


def test_each_step_has_the_bound_for_itself() -> None:
    turn = Driven().begin()
    assert turn.machine.text(MAX_TEXT_BYTES) == []
    turn.think("x")
    turn.end("c1")
    assert turn.machine.text(MAX_TEXT_BYTES) == []


def test_cancelled_while_thinking() -> None:
    turn = Driven().begin()
    turn.cancel()
    assert turn.effects[-1] == StopThinking()
    turn.take(turn.machine.runner_stopped())
    assert turn.trace == "user reasoning cancelled"
    assert [end.outcome for end in turn.ends] == ["interrupted"]


def test_cancelled_just_as_the_runner_is_done_keeps_its_text() -> None:
    turn = Driven().begin()
    turn.cancel()
    turn.think("x", text="said")
    assert turn.trace == "user reasoning completed cancelled"
    assert not is_final(turn.events[-2])


def test_cancelled_and_failed_at_once_is_cancelled() -> None:
    turn = Driven().begin()
    turn.cancel()
    turn.take(turn.machine.runner_failed(RunnerFailed("x")))
    assert turn.trace == "user reasoning cancelled"


def test_cancelled_while_waiting_for_a_decision() -> None:
    turn = Driven({"x": ASK}).begin()
    turn.think("x", "b")
    turn.cancel()
    assert turn.trace == (
        "user reasoning requested-c1 requested-c2 ask-c1 rejected-c1 failed-c1 failed-c2 cancelled"
    )
    failures = [e for e in turn.events if isinstance(e, ToolCallFailed)]
    assert {(e.error_code, e.outcome, e.retryable) for e in failures} == {
        ("TOOL_CANCELLED", "not_started", True)
    }


def test_an_approval_that_came_before_the_cancel_does_not_run_its_call() -> None:
    turn = Driven({"x": ASK}, slow=True).begin()
    turn.think("x")
    turn.cancel()
    turn.take(turn.machine.settle_refused("c1"))
    turn.decide("c1", "approved")
    assert turn.trace.endswith("rejected-c1 failed-c1 cancelled")
    assert (failure(turn).outcome, turn.running) == ("not_started", [])


def test_cancelled_while_a_question_is_open() -> None:
    turn = Driven({"q": QUESTION}).begin()
    turn.think("q")
    turn.cancel()
    assert turn.trace == "user reasoning requested-c1 failed-c1 cancelled"


def test_cancelled_while_a_start_is_on_its_way() -> None:
    turn = Driven(slow=True).begin()
    turn.think("x")
    turn.cancel()
    turn.record()
    assert turn.running == []
    assert turn.trace == "user reasoning requested-c1 started-c1 failed-c1 cancelled"
    assert (failure(turn).outcome, failure(turn).retryable) == ("unknown", False)


def test_cancelled_while_tools_run() -> None:
    turn = Driven().begin()
    turn.think("p1", "p2", "x")
    turn.end("c1")
    turn.cancel()
    assert turn.stopped == ["c2"]
    turn.end("c2", Failed("The call was cancelled", "TOOL_CANCELLED", outcome="unknown"))
    assert turn.trace.endswith("done-c1 failed-c2 failed-c3 cancelled")


def test_a_tool_that_finishes_in_spite_of_the_cancel_has_its_result() -> None:
    turn = Driven().begin()
    turn.think("x")
    turn.cancel()
    turn.end("c1")
    assert turn.trace.endswith("done-c1 cancelled")


def test_a_second_cancel_and_a_cancel_after_the_end_do_nothing() -> None:
    turn = Driven().begin()
    turn.cancel()
    assert turn.machine.cancel() == []
    turn.take(turn.machine.runner_stopped())
    assert turn.machine.cancel() == []
    assert len(turn.ends) == 1


def test_the_state_of_the_runner_goes_with_the_first_request() -> None:
    turn = Driven().begin()
    turn.think("x", "y")
    changes = [c for emit in turn.emitted for c in emit.changes if isinstance(c, SetRunnerState)]
    assert [change.state for change in changes] == [b"state"]


def test_tokens_are_counted_once_with_or_without_text() -> None:
    turn = Driven().begin()
    request = CallRequest("x", {})
    turn.take(turn.machine.thought(Thought("", (request,), b"", 3, 4)))
    turn.end("c1")
    turn.take(turn.machine.thought(Thought("t", (), b"", 5, 6)))
    usage = [c for emit in turn.emitted for c in emit.changes if isinstance(c, AddUsage)]
    assert [(u.input_tokens, u.output_tokens) for u in usage] == [(3, 4), (5, 6)]


def test_what_comes_after_the_end_is_ignored() -> None:
    turn = Driven().begin()
    turn.think(text="done")
    turn.think("x")
    turn.take(turn.machine.runner_failed(RunnerFailed("x")))
    turn.take(turn.machine.tool_ended("c1", EXECUTION_FAILED))
    assert turn.trace == "user reasoning completed"


def test_the_table_of_a_call_refuses_a_second_end() -> None:
    call = Call(CallId("c"), "x", {}, parallel=False)
    call.log("tool.call.requested")
    call.log("tool.call.failed")
    with pytest.raises(ValueError, match="ended"):
        call.log("tool.call.completed")
    assert NEXT[Logged.ENDED] == {}


def test_the_tables_know_every_event_that_a_turn_writes() -> None:
    named = {kind for follows in FOLLOWS.values() for kind in follows}
    assert named <= FOLLOWS.keys()
    assert {kind for steps in NEXT.values() for kind in steps} <= FOLLOWS.keys()


def test_an_event_out_of_order_is_a_fault() -> None:
    check_order("", "user.message")
    with pytest.raises(ValueError, match="after agent"):
        check_order("agent.turn.failed", "agent.reasoning.started")


ACTIONS = st.lists(
    st.sampled_from(
        ["think", "calls", "end", "approve", "deny", "expire", "cancel", "stop", "fail"]
    ),
    max_size=30,
)
VERDICTS: dict[str, Verdict] = {"x": ASK, "q": QUESTION, "no": Refuse(NOT_ALLOWED)}


@settings(max_examples=200, deadline=None)
@given(ACTIONS, st.booleans())
def test_whatever_happens_a_turn_and_each_call_end_exactly_once(
    actions: list[str], slow: bool
) -> None:
    turn = Driven(VERDICTS, max_iterations=4, slow=slow).begin()
    for number, action in enumerate(actions):
        act(turn, action, number)
    turn.slow = False
    turn.record()
    turn.cancel()
    turn.take(turn.machine.runner_stopped())
    for call_id in list(turn.running):
        turn.end(call_id)
    assert len(turn.ends) == 1
    assert [is_final(event) for event in turn.events].count(True) == 1
    assert is_final(turn.events[-1])
    requested = [e for e in turn.trace.split() if e.startswith("requested-")]
    ended = [e for e in turn.trace.split() if e.startswith(("done-", "failed-"))]
    assert [e.partition("-")[2] for e in requested] == [e.partition("-")[2] for e in ended]
    for event in turn.events:
        msgspec.json.encode(event)


def act(turn: Driven, action: str, number: int) -> None:
    match action:
        case "think":
            turn.think(text="t")
        case "calls":
            turn.think(*[("p", "x", "q", "no", "b")[(number + n) % 5] for n in range(3)])
        case "end" if turn.running:
            turn.end(turn.running[-1])
        case "approve" | "deny":
            for call_id in asked(turn):
                if turn.row(call_id).kind == "question":
                    turn.decide(call_id, "answered")
                else:
                    turn.decide(call_id, "approved" if action == "approve" else "denied")
        case "expire":
            for call_id in asked(turn):
                turn.take(turn.machine.wait_expired(call_id))
        case "cancel":
            turn.cancel()
        case "stop" if turn.machine.cancelling:
            turn.take(turn.machine.runner_stopped())
        case "fail":
            turn.take(turn.machine.runner_failed(RunnerFailed("x")))
        case _:
            turn.record()


def asked(turn: Driven) -> list[CallId]:
    changes = [change for emit in turn.emitted for change in emit.changes]
    return [c.row.request_id for c in changes if isinstance(c, OpenPending)][-1:]
