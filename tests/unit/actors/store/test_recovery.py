from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store.recovery import Plan, plan_recovery, repair_drafts
from roost.schemas import event
from roost.schemas.approval import PendingRow
from roost.schemas.base import CallId, SessionId, TurnId
from roost.schemas.turn import EndTurn, SettlePending
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.schemas.event import AnyEvent

SESSION = SessionId("s")
TURN = TurnId("t")


def log(*words: str) -> list[AnyEvent]:
    """`asked c` requests call c, `wants c` asks for approval, `may c` approves it, and so on."""
    return [_event(number, *word.split()) for number, word in enumerate(words, 1)]


def _event(number: int, word: str, call: str = "") -> AnyEvent:
    head = {"id": f"e{number}", "timestamp": 1.0, "session_id": SESSION, "turn_id": TURN}
    tool = {**head, "tool_name": "shell", "tool_call_id": call}
    bodies: dict[str, dict[str, object]] = {
        "user": {"type": "user.message", "content": "", **head},
        "asked": {"type": "tool.call.requested", "tool_args": {}, **tool},
        "wants": {"type": "tool.approval.requested", "tool_args": {}, "risk": "write", **tool},
        "may": {"type": "tool.approval.approved", **tool},
        "started": {"type": "tool.call.started", **tool},
        "ended": {"type": "tool.call.completed", "result": None, **tool},
        "unknown": {"type": "tool.call.failed", "error": "x", "outcome": "unknown", **tool},
        "done": {
            "type": "agent.message.completed",
            "content": "",
            "metadata": {"final": True},
            **head,
        },
        "cancelled": {"type": "cancellation.completed", **head},
    }
    return event_decoder.decode(msgspec.json.encode(bodies[word]))


def row(call: str, state: str = "open", kind: str = "approval") -> PendingRow:
    return PendingRow(
        request_id=CallId(call),
        kind=kind,  # type: ignore[arg-type]
        turn_id=TURN,
        tool_name="shell",
        body=b"{}",
        opened_at=1,
        state=state,  # type: ignore[arg-type]
    )


def plan(
    events: list[AnyEvent],
    *pending: PendingRow,
    cancelled: bool = False,
    may_park: bool = True,
) -> Plan:
    return plan_recovery(
        SESSION,
        TURN,
        events,
        pending,
        cancelled=cancelled,
        timestamp=2.0,
        may_park=may_park,
    )


def told(found: Plan) -> list[str]:
    words: list[str] = []
    for step in found.steps:
        match step.event:
            case event.ToolApprovalRejected(tool_call_id=call, error_code=code):
                words.append(f"rejected {call} {code}")
            case event.ToolCallFailed(tool_call_id=call, outcome=outcome, retryable=again):
                words.append(f"failed {call} {outcome} {again}")
            case event.AgentTurnFailed(error_code=code, retryable=again, outcome=outcome):
                words.append(f"turn {code} {again} {outcome}")
            case event.CancellationCompleted():
                words.append("cancelled")
            case other:
                raise AssertionError(other)
    return words


FAILED = "turn TURN_INTERRUPTED True failed"
UNKNOWN = "turn TURN_INTERRUPTED False unknown"


@pytest.mark.parametrize(
    ("words", "repaired"),
    [
        (["user"], [FAILED]),
        (["user", "asked a", "started a", "ended a"], [FAILED]),
        (["user", "asked a"], ["failed a not_started True", FAILED]),
        (["user", "asked a", "started a"], ["failed a unknown False", UNKNOWN]),
        (
            ["user", "asked a", "asked b", "asked c", "started b", "ended a"],
            ["failed b unknown False", "failed c not_started True", UNKNOWN],
        ),
        (["user", "asked a", "started a", "unknown a"], [UNKNOWN]),
        (
            ["user", "asked a", "asked b", "wants a", "may a", "started a", "wants b"],
            [
                "failed a unknown False",
                "rejected b TOOL_CANCELLED",
                "failed b not_started True",
                UNKNOWN,
            ],
        ),
    ],
)
def test_an_open_turn_is_closed_call_by_call(words: list[str], repaired: list[str]) -> None:
    found = plan(log(*words), row("b"))
    assert not found.parked
    assert told(found) == repaired
    assert found.outcome == "failed"


@pytest.mark.parametrize("state", ["open", "approved", "denied"])
def test_a_turn_that_only_waits_for_a_decision_is_parked(state: str) -> None:
    found = plan(log("user", "asked a", "wants a"), row("a", state))
    assert found.parked
    assert repair_drafts(found, SESSION, TURN, 2, [row("a", state)]) == ()


def test_a_turn_with_a_call_that_runs_is_not_parked() -> None:
    found = plan(log("user", "asked a", "asked b", "started a", "wants b"), row("b"))
    assert not found.parked


def test_a_call_that_only_asks_a_question_does_not_keep_a_turn_from_being_parked() -> None:
    events = log("user", "asked a", "started a")
    assert plan(events, row("a", kind="question")).parked
    closed = plan(events, row("a", kind="question"), may_park=False)
    assert told(closed) == ["failed a not_started True", FAILED]


def test_a_cancelled_turn_ends_with_its_cancellation() -> None:
    found = plan(log("user", "asked a", "wants a"), row("a"), cancelled=True)
    assert told(found) == [
        "rejected a TOOL_CANCELLED",
        "failed a not_started True",
        "cancelled",
    ]
    assert found.outcome == "interrupted"


@pytest.mark.parametrize(("last", "outcome"), [("done", "completed"), ("cancelled", "interrupted")])
def test_a_turn_whose_last_event_is_written_only_ends(last: str, outcome: str) -> None:
    found = plan(log("user", last))
    assert (found.steps, found.outcome) == ((), outcome)
    (draft,) = repair_drafts(found, SESSION, TURN, 2, [])
    assert (draft.body, draft.changes) == (b"", (EndTurn(turn_id=TURN, outcome=outcome),))  # type: ignore[arg-type]


def test_events_of_other_turns_count_for_nothing() -> None:
    other = msgspec.structs.replace(log("asked a")[0], turn_id="other")
    assert told(plan([*log("user"), other])) == [FAILED]


def test_a_second_repair_makes_the_same_ids() -> None:
    events = log("user", "asked a", "wants a", "asked b")
    first, second = (
        [step.event.id for step in plan(events, row("a"), may_park=False).steps] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 4


def test_a_repair_cut_short_goes_on_where_it_was() -> None:
    events = log("user", "asked a", "asked b", "started a")
    whole = plan(events)
    half = plan([*events, whole.steps[0].event])
    assert [step.event.id for step in half.steps] == [step.event.id for step in whole.steps[1:]]
    assert told(half)[-1] == UNKNOWN


def test_drafts_of_a_repair_settle_and_end_with_their_events() -> None:
    found = plan(log("user", "asked a", "wants a"), row("a"), may_park=False)
    drafts = repair_drafts(found, SESSION, TURN, 3, [row("a")])
    assert [draft.type for draft in drafts] == [
        "tool.approval.rejected",
        "tool.call.failed",
        "agent.turn.failed",
    ]
    assert isinstance(drafts[0].changes[0], SettlePending)
    assert not drafts[1].changes
    assert isinstance(drafts[2].changes[0], EndTurn)
    assert {draft.generation for draft in drafts} == {3}
    assert all(event_decoder.decode(draft.body).id == draft.event_id for draft in drafts)
