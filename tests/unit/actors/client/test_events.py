from __future__ import annotations

import json

import msgspec
import pytest

from roost.actors.client.connection import Notification
from roost.actors.client.events import (
    ApprovalAsked,
    Cleared,
    Closed,
    Event,
    Lost,
    QuestionAsked,
    Settled,
    StatusChanged,
    Text,
    ToolEnded,
    ToolRequested,
    UserSaid,
    clean,
    describe_call,
    read_event,
)


def read(method: str, **params: object) -> Event | None:
    body = {"sessionId": "s", "agentId": "a", "eventId": "e", **params}
    return read_event(
        Notification(method=f"event.{method}", params=msgspec.Raw(json.dumps(body).encode()))
    )


def read_inner(kind: str, **payload: object) -> Event | None:
    return read("session_event", event={"id": "e", "type": kind, "payload": payload})


def test_text_is_read() -> None:
    assert read("message_chunk", delta="ab", sequence=3) == Text("ab")


def test_a_tool_call_is_read() -> None:
    event = read("tool_request", requestId="c", toolName="shell", input={"command": "ls"})
    assert event == ToolRequested("c", "shell", {"command": "ls"})


def test_an_approval_says_what_may_happen_and_by_which_policy() -> None:
    event = read(
        "permission_request",
        requestId="c",
        toolName="shell",
        input={"command": "ls"},
        permissions=["tool.use"],
        reason="policy dangerFullAccess",
        metadata={"risk": "external_effect", "redelivered": True},
    )
    assert event == ApprovalAsked(
        "s",
        "c",
        "shell",
        {"command": "ls"},
        risk="external_effect",
        reason="policy dangerFullAccess",
    )


def test_questions_are_read_with_their_options() -> None:
    question = {"id": "q", "header": "h", "question": "Which?", "options": [{"label": "a"}]}
    event = read("user_input_request", requestId="c", questions=[question])
    assert isinstance(event, QuestionAsked)
    assert event.questions[0].text == "Which?"
    assert event.questions[0].options == ("a",)


@pytest.mark.parametrize(
    ("status", "metadata", "code"),
    [
        ("idle", {}, 0),
        ("idle", {"outcome": "interrupted"}, 130),
        ("error", {}, 1),
        ("stopped", {}, 130),
    ],
)
def test_the_end_of_a_turn_is_an_exit_status(
    status: str, metadata: dict[str, object], code: int
) -> None:
    event = read("agent_status", status=status, runStatus="x", metadata=metadata)
    assert isinstance(event, StatusChanged)
    assert event.over
    assert event.exit_status == code


@pytest.mark.parametrize("status", ["running", "stopping"])
def test_a_turn_that_goes_on_is_not_over(status: str) -> None:
    event = read("agent_status", status=status, runStatus="running")
    assert isinstance(event, StatusChanged)
    assert not event.over


def test_session_events_are_read_by_their_type() -> None:
    assert read_inner("user_message", displayText="hi", messageId="m") == UserSaid("hi", "m")
    assert read_inner("tool_call_completed", callId="c", result="x", isError=True) == ToolEnded(
        "c", "x", failed=True
    )
    assert read_inner("permission_resolved", requestId="c", decision="denied") == Settled(
        "c", "denied"
    )
    assert read_inner("elicitation_resolved", requestId="c") == Settled("c", "answered")
    assert read_inner("event_gap", reason="retention", retiredCount=4) == Lost(4, "retention")
    assert read_inner("history_cleared", timestamp=1) == Cleared()
    assert read_inner("session_closed", reason="done") == Closed("done")


def test_what_is_not_known_is_left_out() -> None:
    assert read_inner("turn_checkpoint", a=1) is None
    assert read("something_new") is None
    assert read("message_chunk", delta=7) is None


def test_control_characters_and_reversed_text_are_made_visible() -> None:
    assert clean("a\x1b[31m\x07b\u202e\tc\n") == "a\ufffd[31m\ufffdb\ufffd\tc\n"


def test_a_call_is_one_line() -> None:
    assert describe_call("shell", {"command": "a\nb"}) == "shell: a\u23ce b"
    assert describe_call("write_file", {"path": "x"}) == 'write_file {"path": "x"}'
    assert describe_call("list_files", {}) == "list_files"


def test_a_call_that_is_cut_says_so() -> None:
    assert describe_call("shell", {"command": "x" * 50}, 10) == "shell: xxx… (57 characters)"
