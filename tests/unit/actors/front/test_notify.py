from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import jsonschema
import msgspec
import pytest

from roost.actors.front import notices
from roost.actors.front.notify import Renderer
from roost.schemas import event as stored
from roost.schemas.approval import PendingRow
from roost.schemas.base import CallId, EventId, MessageId, TurnId
from roost.schemas.session import TurnRef
from roost.schemas.unions import event_encoder

WHERE = notices.Where(session_id="s", agent_id="a")
TURN = TurnRef(turn_id=TurnId("t"), message_id=MessageId("m"), stream_id="st", accepted_at=1_000)
Json = dict[str, Any]


def _validator() -> Any:
    root = os.environ.get("ROOST_CONTRACTS")
    path = Path(root or "/nonexistent") / "seeds" / "daemon-protocol.schema.json"
    if not path.exists():
        return None
    schema = cast("Json", msgspec.json.decode(path.read_bytes()))
    only = {"definitions": schema["definitions"], "$ref": "#/definitions/AgenCDaemonNotification"}
    return jsonschema.Draft7Validator(only)


VALIDATOR = _validator()


def _read(line: bytes) -> Json:
    assert line.endswith(b"}\n")
    message = cast("Json", msgspec.json.decode(line))
    if VALIDATOR is not None:
        errors = [error.message for error in VALIDATOR.iter_errors(message)]
        assert not errors, errors
    return message


def _renderer() -> Renderer:
    renderer = Renderer(WHERE)
    renderer.begin(TURN)
    return renderer


def _render(event: stored.AnyEvent, renderer: Renderer | None = None) -> list[Json]:
    lines = (renderer or _renderer()).render(5, event_encoder.encode(event))
    return [_read(line) for line in lines]


def _make(kind: type[stored.Event], **members: object) -> stored.AnyEvent:
    base = {"id": "e", "timestamp": 1.5, "session_id": "s", "turn_id": "t"}
    return cast("stored.AnyEvent", kind(**{**base, **members}))  # type: ignore[arg-type]


TOOL: Json = {"tool_name": "shell", "tool_call_id": "c"}
EVERY: list[stored.AnyEvent] = [
    _make(stored.SessionCreated),
    _make(stored.SessionClosed, reason="over"),
    _make(stored.UserMessage, content="hi"),
    _make(stored.UserAudioChunk, chunk_size_bytes=1),
    _make(stored.TranscriptPartial, text="x"),
    _make(stored.TranscriptFinal, text="x"),
    _make(stored.MemoryRetrievalStarted, query="q"),
    _make(stored.MemoryRetrievalCompleted, query="q", documents=cast("list[object]", [{}])),
    _make(stored.AgentReasoningStarted),
    _make(stored.AgentMessageDelta, delta="d"),
    _make(stored.AgentMessageCompleted, content="c", metadata={"final": True}),
    _make(stored.AgentTurnExhausted, max_iterations=3, pending_tool_calls=[]),
    _make(stored.AgentTurnFailed, error="broken", error_code="X", retryable=True),
    _make(stored.ToolCallRequested, **TOOL, tool_args={"command": "ls"}),
    _make(stored.ToolCallStarted, **TOOL),
    _make(stored.ToolCallCompleted, **TOOL, result={"a": 1}),
    _make(stored.ToolCallFailed, **TOOL, error="no", error_code="TOOL_CANCELLED"),
    _make(stored.ToolApprovalRequested, **TOOL, tool_args={}, risk="write"),
    _make(stored.ToolApprovalApproved, **TOOL),
    _make(stored.ToolApprovalRejected, **TOOL, error_code="APPROVAL_REJECTED", reason="no"),
    _make(stored.WorkflowStarted, workflow_name="w"),
    _make(stored.WorkflowCompleted, workflow_name="w", result=None),
    _make(stored.WorkflowFailed, workflow_name="w", error="e"),
    _make(stored.CancellationRequested, reason="stop"),
    _make(stored.CancellationCompleted),
]


@pytest.mark.parametrize("event", EVERY, ids=lambda e: type(e).__name__)
def test_each_stored_event_makes_one_carrier_and_marked_derived_ones(
    event: stored.AnyEvent,
) -> None:
    carrier, *derived = (message["params"] for message in _render(event))
    assert carrier["eventId"] == "e"
    assert carrier["sequence"] == 5
    assert "derived" not in carrier.get("metadata", {})
    for number, params in enumerate(derived, 1):
        assert params["eventId"] == f"e/{number}"
        assert params["sequence"] == 5
        assert params["metadata"]["derived"] is True


@pytest.mark.parametrize("event", EVERY, ids=lambda e: type(e).__name__)
def test_the_types_on_which_clients_stumble_are_never_used(event: stored.AnyEvent) -> None:
    types = [m["params"].get("event", {}).get("type") for m in _render(event)]
    assert not {"error", "turn_complete", "agent_message"} & set(types)


def test_the_table_holds_every_stored_type() -> None:
    assert {type(event) for event in EVERY} == set(stored.AnyEvent.__args__)


def test_a_users_message_comes_before_running() -> None:
    said, running = _render(_make(stored.UserMessage, content="hi"))
    assert said["params"]["event"]["type"] == "user_message"
    assert said["params"]["event"]["payload"]["messageId"] == "m"
    assert running["params"]["status"] == "running"
    assert running["params"]["turnId"] == "t"


def test_only_the_first_message_of_a_turn_says_running() -> None:
    renderer = _renderer()
    assert len(_render(_make(stored.UserMessage, content="one"), renderer)) == 2
    assert len(_render(_make(stored.UserMessage, content="two"), renderer)) == 1


def test_a_hidden_message_keeps_its_place_and_not_its_text() -> None:
    event = _make(stored.UserMessage, content="secret", metadata={"displayUserMessage": None})
    lines = _renderer().render(5, event_encoder.encode(event))
    assert b"secret" not in b"".join(lines)
    assert _read(lines[0])["params"]["event"]["type"] == "user_message_hidden"


def test_a_replaced_text_is_shown_instead() -> None:
    event = _make(stored.UserMessage, content="secret", metadata={"displayUserMessage": "shown"})
    lines = _renderer().render(5, event_encoder.encode(event))
    assert b"secret" not in b"".join(lines)
    assert _read(lines[0])["params"]["event"]["payload"]["displayText"] == "shown"


def test_chunks_say_which_message_they_answer() -> None:
    (chunk,) = _render(_make(stored.AgentMessageDelta, delta="x"))
    assert chunk["method"] == "event.message_chunk"
    assert chunk["params"]["messageId"] == "m"
    assert chunk["params"]["streamId"] == "st"
    assert chunk["params"]["metadata"] == {"turnId": "t"}


@pytest.mark.parametrize(
    ("event", "status", "run_status"),
    [
        (EVERY[10], "idle", "completed"),
        (EVERY[11], "error", "errored"),
        (EVERY[12], "error", "errored"),
        (EVERY[24], "idle", "completed"),
    ],
)
def test_each_end_of_a_turn_has_one_terminal_status(
    event: stored.AnyEvent, status: str, run_status: str
) -> None:
    found = [m["params"] for m in _render(event) if m["method"] == "event.agent_status"]
    assert [(p["status"], p["runStatus"]) for p in found] == [(status, run_status)]


def test_an_interrupted_turn_is_told_with_its_reason() -> None:
    renderer = _renderer()
    _render(_make(stored.CancellationRequested, reason="enough"), renderer)
    (status,) = _render(_make(stored.CancellationCompleted), renderer)
    assert status["params"]["message"] == "enough"
    assert status["params"]["metadata"]["outcome"] == "interrupted"


def test_a_decision_says_who_and_how_far() -> None:
    renderer = _renderer()
    _render(_make(stored.UserMessage, content="hi"), renderer)
    asked, blocked = _render(EVERY[17], renderer)
    assert asked["params"]["permissions"] == ["tool.use"]
    assert asked["params"]["metadata"]["risk"] == "write"
    assert blocked["params"]["runStatus"] == "blocked"
    event = _make(stored.ToolApprovalApproved, **TOOL, metadata={"scope": "agent", "by": "tui"})
    resolved, running = _render(event, renderer)
    assert resolved["params"]["event"]["payload"] == {
        "requestId": "c",
        "toolName": "shell",
        "decision": "approved",
        "scope": "agent",
        "clientId": "tui",
    }
    assert running["params"]["runStatus"] == "running"


def test_an_interrupted_call_is_told_as_such() -> None:
    (ended,) = _render(EVERY[16])
    payload = ended["params"]["event"]["payload"]
    assert payload["isError"] is True
    assert payload["metadata"]["cause"] == "user_interrupted"
    assert msgspec.json.decode(payload["result"])["tool_use_id"] == "c"


def _row(kind: str) -> PendingRow:
    return PendingRow(
        request_id=CallId("c"),
        kind=kind,  # type: ignore[arg-type]
        turn_id=TurnId("t"),
        tool_name="shell",
        body=b'{"input":{},"reason":"r","questions":[{"id":"q"}]}',
        opened_at=1,
        event_id="e" if kind == "approval" else "",
        sequence=7 if kind == "approval" else 0,
    )


def test_what_waits_is_sent_again_with_its_own_id_and_sequence() -> None:
    asked = _read(notices.pending_request(WHERE, _row("approval"), redelivered=True))["params"]
    assert (asked["eventId"], asked["sequence"]) == ("e", 7)
    assert asked["metadata"]["redelivered"] is True
    question = _read(notices.pending_request(WHERE, _row("question"), redelivered=True))["params"]
    assert question["questions"] == [{"id": "q"}]
    assert "sequence" not in question


def test_a_gap_has_the_sequence_of_the_last_lost_event() -> None:
    line = notices.event_gap(
        WHERE, EventId("g"), 0, reason="retention", first=7, last=18, available=19
    )
    params = _read(line)["params"]
    assert params["sequence"] == 18
    assert params["event"]["payload"] == {
        "reason": "retention",
        "retiredCount": 12,
        "firstLostSequence": 7,
        "lastLostSequence": 18,
        "firstAvailableSequence": 19,
    }


@pytest.mark.skipif(VALIDATOR is None, reason="ROOST_CONTRACTS names no folder with seeds/")
def test_the_published_schema_is_what_these_tests_hold_notifications_against() -> None:
    assert VALIDATOR is not None
    assert list(VALIDATOR.iter_errors({"jsonrpc": "2.0", "method": "event.nothing", "params": {}}))


def test_a_cleared_history_is_told_with_the_time_in_its_id() -> None:
    line = _read(notices.history_cleared(WHERE, 1_700_000_000_123))
    at = "2023-11-14T22:13:20.123Z"
    name = f"history-cleared-s-{at}"
    assert line["params"] == {
        "sessionId": "s",
        "eventId": name,
        "agentId": "a",
        "acceptedAt": at,
        "event": {
            "id": name,
            "type": "history_cleared",
            "acceptedAt": at,
            "payload": {"timestamp": 1_700_000_000_123},
        },
    }


def test_no_stored_type_is_one_by_which_clients_end_a_turn_or_double_its_text() -> None:
    types = {str(kind.__struct_config__.tag) for kind in stored.AnyEvent.__args__}
    assert not types & {"agent_message", "error", "turn_complete"}
