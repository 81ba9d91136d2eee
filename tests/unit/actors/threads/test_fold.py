from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.threads.fold import Fold
from roost.actors.threads.items import Item, event_of, item_id
from roost.schemas import event as e, thread_notifications as n
from roost.schemas.thread_events import SeenDelta, seen_decoder
from tests.support.thread_logs import LogMaker, bodies, random_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.thread_logs import Log

Json = dict[str, object]


def told_of(log: Log) -> list[n.Told]:
    fold = Fold("session_1")
    told: list[n.Told] = []
    for sequence, body in enumerate(bodies(log), 1):
        told += fold.take(sequence, seen_decoder.decode(body))
    return told


def items_of(log: Log, *, settle: bool = False) -> list[Json]:
    items: list[Item] = []
    fold = Fold("session_1", on_item=items.append, tells=False)
    for sequence, body in enumerate(bodies(log), 1):
        fold.take(sequence, seen_decoder.decode(body))
    if settle:
        fold.settle()
    return [shown(item) for item in items]


def shown(item: Item) -> Json:
    return cast("Json", json.loads(msgspec.json.encode(item.shown())))


def as_json(told: Sequence[n.Told]) -> list[tuple[str, Json]]:
    return [(n.METHODS[type(one)], json.loads(msgspec.json.encode(one))) for one in told]


def methods(told: Sequence[n.Told]) -> list[str]:
    return [n.METHODS[type(one)] for one in told]


def replayed(told: Sequence[n.Told]) -> list[Json]:
    """Return the items as a client has them that keeps what it is told."""
    items: dict[str, Json] = {}
    for method, params in as_json(told):
        if method in ("item/started", "item/completed"):
            item = cast("Json", params["item"])
            items[str(item["id"])] = item
        elif method == "item/agentMessage/delta":
            item = items[str(params["itemId"])]
            item["text"] = str(item["text"]) + str(params["delta"])
            item["content"] = {"text": item["text"]}
        elif method == "item/toolCall/delta":
            delta = cast("Json", params["delta"])
            items[str(params["itemId"])]["status"] = delta["status"]
    return list(items.values())


def without_events(items: Sequence[Json]) -> list[Json]:
    """Leave out the id of the last event: a delta moves it, and does not tell."""
    return [{key: value for key, value in item.items() if key != "runEventId"} for item in items]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000_000))
def test_what_is_told_live_makes_the_items_that_are_read_later(seed: int) -> None:
    log = random_log(seed)

    assert without_events(replayed(told_of(log))) == without_events(items_of(log))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000_000), st.data())
def test_a_fork_goes_on_from_the_same_state_and_leaves_the_other_alone(
    seed: int, data: st.DataObject
) -> None:
    log = bodies(random_log(seed))
    at = data.draw(st.integers(0, len(log)))
    fold, whole = Fold("session_1"), Fold("session_1")
    told: list[n.Told] = []
    for sequence, body in enumerate(log[:at], 1):
        fold.take(sequence, seen_decoder.decode(body))
        whole.take(sequence, seen_decoder.decode(body))
    fork = fold.fork()
    for sequence, body in enumerate(log[at:], at + 1):
        fork.take(sequence, seen_decoder.decode(body))
    for sequence, body in enumerate(log[at:], at + 1):
        told = fold.take(sequence, seen_decoder.decode(body))
        assert as_json(told) == as_json(whole.take(sequence, seen_decoder.decode(body)))
    assert [shown(i) for i in fork.open_items] == [shown(i) for i in fold.open_items]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000_000))
def test_runs_of_deltas_may_be_left_out_but_for_their_first(seed: int) -> None:
    log = bodies(random_log(seed))
    items: list[Item] = []
    fold = Fold("session_1", on_item=items.append, tells=False)
    before = False
    for sequence, body in enumerate(log, 1):
        event = seen_decoder.decode(body)
        if not (before and isinstance(event, SeenDelta)):
            fold.take(sequence, event)
        before = isinstance(event, SeenDelta)
    fold.reach(len(log))
    for item in items:
        for first, last in item.unread:
            pieces = [seen_decoder.decode(body) for body in log[first - 1 : last]]
            item.fill((first, last), "".join(p.delta for p in pieces if isinstance(p, SeenDelta)))

    found = [shown(item) for item in items]

    assert without_events(found) == without_events(items_of(random_log(seed)))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000_000))
def test_turns_and_items_are_told_in_frames(seed: int) -> None:
    turn = ""
    open_items: set[str] = set()
    texts: dict[str, str] = {}
    ended: set[str] = set()
    for method, params in as_json(told_of(random_log(seed))):
        match method:
            case "turn/started":
                turn = str(cast("Json", params["turn"])["id"])
                assert turn not in ended
            case "turn/completed":
                found = cast("Json", params["turn"])
                assert found["id"] == turn
                assert found["completedAtMs"]
                assert not open_items
                ended.add(turn)
                turn = ""
            case "item/started":
                item = cast("Json", params["item"])
                assert params["turnId"] == turn
                open_items.add(str(item["id"]))
            case "item/completed":
                item = cast("Json", params["item"])
                open_items.remove(str(item["id"]))
                assert item["status"] in ("completed", "failed", "interrupted")
                if item["type"] == "agentMessage":
                    assert cast("Json", item["content"])["text"] == texts[str(item["id"])]
            case "item/agentMessage/delta":
                assert params["itemId"] in open_items
                key = str(params["itemId"])
                texts[key] = texts.get(key, "") + str(params["delta"])
            case _:
                pass


def test_an_item_is_known_by_the_event_that_opened_it() -> None:
    assert item_id("e1") == "item_e1"
    assert event_of("item_e1") == "e1"
    assert event_of("e1") == ""


def test_a_turn_is_told_in_this_order() -> None:
    maker = LogMaker()
    maker.created()
    maker.begin("turn_1", "a\nb", input=["a", "b"])
    maker.say("Do", "ne.")
    maker.said("Done.", final=True)

    told = told_of(maker.log)

    assert methods(told) == [
        "thread/status/changed",
        "turn/started",
        "item/started",
        "item/completed",
        "item/started",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/completed",
        "thread/tokenUsage/updated",
        "thread/status/changed",
        "turn/completed",
    ]
    ended = as_json(told)[-1][1]["turn"]
    assert ended == {
        "id": "turn_1",
        "threadId": "session_1",
        "runId": "turn_1",
        "status": "completed",
        "input": [{"text": "a"}, {"text": "b"}],
        "startedAtMs": 1002000,
        "completedAtMs": 1006000,
        "tokenUsage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
    }


def test_an_approved_call_is_told_in_this_order() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.call(e.ToolCallRequested, "call_1", tool_args={"path": "a.md"})
    maker.call(e.ToolApprovalRequested, "call_1", tool_args={"path": "a.md"}, risk="write")
    maker.call(e.ToolApprovalApproved, "call_1")
    maker.call(e.ToolCallStarted, "call_1")
    maker.call(e.ToolCallCompleted, "call_1", result={"bytes": 12})

    found = as_json(told_of(maker.log))[4:]

    assert [method for method, _ in found] == [
        "item/started",
        "item/started",
        "approval/requested",
        "thread/status/changed",
        "item/completed",
        "item/started",
        "item/completed",
        "approval/resolved",
        "thread/status/changed",
        "item/toolCall/delta",
        "item/completed",
    ]
    assert found[2][1]["requestId"] == "apr_e3"
    assert found[2][1]["preview"] == 'write_file {"path":"a.md"}'
    assert found[3][1]["activeFlags"] == ["waitingOnApproval"]
    assert "activeFlags" not in found[8][1]
    last = cast("Json", found[-1][1]["item"])
    assert last["id"] == "item_e2"
    assert last["runEventId"] == "e6"
    assert last["content"] == {
        "toolCallId": "call_1",
        "toolName": "write_file",
        "arguments": {"path": "a.md"},
        "status": "success",
        "result": {"bytes": 12},
    }


def test_a_denied_call_never_runs_and_says_so() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.call(e.ToolCallRequested, "call_1", tool_args={})
    maker.call(e.ToolApprovalRequested, "call_1", tool_args={}, risk="write")
    maker.call(e.ToolApprovalRejected, "call_1", error_code="APPROVAL_TIMEOUT", reason="late")
    maker.call(e.ToolCallFailed, "call_1", error="denied", outcome="not_started")

    found = as_json(told_of(maker.log))

    assert "item/toolCall/delta" not in [method for method, _ in found]
    resolved = next(params for method, params in found if method == "approval/resolved")
    assert (resolved["decision"], resolved["reason"]) == ("deny", "timeout")
    last = cast("Json", found[-1][1]["item"])
    assert last["status"] == "failed"
    assert cast("Json", last["content"])["outcome"] == "not_started"


def test_an_interrupt_closes_everything_and_keeps_what_was_said() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.call(e.ToolCallRequested, "call_1", tool_args={})
    maker.call(e.ToolApprovalRequested, "call_1", tool_args={}, risk="write")
    maker.say("half a")
    maker.add(e.CancellationRequested, reason="interrupted")
    maker.add(e.CancellationCompleted)

    found = as_json(told_of(maker.log))

    ends = [params["item"] for method, params in found if method == "item/completed"][1:]
    assert {cast("Json", one)["status"] for one in ends} == {"interrupted"}
    assert cast("Json", ends[-1])["text"] == "half a"
    resolved = next(params for method, params in found if method == "approval/resolved")
    assert (resolved["decision"], resolved["reason"]) == ("deny", "interrupted")
    assert found[-2][1]["status"] == "idle"
    assert cast("Json", found[-1][1]["turn"])["status"] == "interrupted"


@pytest.mark.parametrize(
    ("code", "status", "has_error"),
    [("TURN_INTERRUPTED", "interrupted", False), ("MODEL_FAILED", "failed", True)],
)
def test_a_failed_turn_warns_and_one_that_a_crash_cut_off_is_interrupted(
    code: str, status: str, has_error: bool
) -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.add(e.AgentTurnFailed, error="gone", error_code=code, retryable=True)

    found = as_json(told_of(maker.log))

    assert [method for method, _ in found[-3:]] == [
        "error/warning",
        "thread/status/changed",
        "turn/completed",
    ]
    turn = cast("Json", found[-1][1]["turn"])
    assert turn["status"] == status
    assert ("error" in turn) is has_error


def test_a_turn_that_failed_before_it_began_is_told_all_the_same() -> None:
    maker = LogMaker()
    maker.turn_id = "turn_1"
    maker.add(e.AgentTurnFailed, error="too late", error_code="TURN_TIMEOUT", phase="queue")

    assert methods(told_of(maker.log)).count("turn/started") == 1
    assert methods(told_of(maker.log))[-1] == "turn/completed"


def test_a_text_without_deltas_is_told_as_one() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.said("all of it", final=True)

    found = as_json(told_of(maker.log))

    deltas = [params["delta"] for method, params in found if method == "item/agentMessage/delta"]
    assert deltas == ["all of it"]


def test_an_empty_last_message_is_no_item() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.said("", final=True)

    assert [item["type"] for item in items_of(maker.log)] == ["userMessage"]


def test_a_message_kept_from_clients_is_no_item_and_no_input() -> None:
    maker = LogMaker()
    maker.begin("turn_1", "secret", displayUserMessage=False)
    maker.steer("seen")

    told = as_json(told_of(maker.log))
    assert cast("Json", told[1][1]["turn"])["input"] == []
    assert [item["content"] for item in items_of(maker.log)] == [
        {"text": "seen", "source": "steer"}
    ]


def test_metadata_of_other_types_than_is_usual_is_taken_as_none() -> None:
    maker = LogMaker()
    maker.begin("turn_1", "go", model=5, input="go", further={"a": [1, None]})
    maker.add(
        e.AgentMessageCompleted, content="one", metadata={"final": "yes", "further": [1, "a"]}
    )
    maker.said("two", final=True)

    told = as_json(told_of(maker.log))
    turns = [cast("Json", params["turn"]) for _, params in told if "turn" in params]
    assert [(turn["status"], turn["input"]) for turn in turns] == [
        ("running", [{"text": "go"}]),
        ("completed", [{"text": "go"}]),
    ]
    assert "model" not in turns[0]
    assert [item["status"] for item in items_of(maker.log)] == ["completed"] * 3


def test_a_foreign_log_without_marks_has_ended_turns() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.said("one")
    maker.begin("turn_2")
    maker.say("two")

    found = as_json(told_of(maker.log))

    ended = [params["turn"] for method, params in found if method == "turn/completed"]
    assert [cast("Json", one)["status"] for one in ended] == ["completed"]
    assert items_of(maker.log)[-1]["status"] == "inProgress"
    assert items_of(maker.log, settle=True)[-1]["status"] == "interrupted"


def test_the_end_of_a_thread_is_told() -> None:
    maker = LogMaker()
    maker.add(e.SessionClosed, reason="archived")

    assert methods(told_of(maker.log)) == ["thread/archived", "thread/status/changed"]


def test_workflows_and_retrievals_are_items() -> None:
    maker = LogMaker()
    maker.begin("turn_1")
    maker.add(e.WorkflowStarted, workflow_name="w")
    maker.add(e.MemoryRetrievalStarted, query="q")
    maker.add(e.MemoryRetrievalCompleted, query="q", documents=[{"a": 1}])
    maker.add(e.WorkflowFailed, workflow_name="w", error="no")

    found = items_of(maker.log)[1:]

    assert [(one["type"], one["status"]) for one in found] == [
        ("subRun", "failed"),
        ("runStatus", "completed"),
    ]
