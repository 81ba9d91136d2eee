"""approval/resolve over the real daemon, from this door and from the other (T 3.11)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.turn_client import brief, id_in, inside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WRITE = script.calls("write_file", json.dumps({"path": "note.txt", "content": "x"}))


def asked(client: TurnClient, model: ScriptedModel, folder: Path) -> Json:
    """Start a turn whose first call waits for a decision; return what the request for it names."""
    model.play(WRITE, script.says("done"))
    thread = client.thread(cwd=str(folder))
    turn = client.begin(thread)
    told = client.wait("approval/requested", lambda p: p["turnId"] == turn)
    assert told["toolName"] == "write_file"
    assert told["choices"] == ["allow", "deny"]
    return {key: told[key] for key in ("threadId", "turnId", "requestId")}


def outcome(client: TurnClient, request: Json, folder: Path) -> tuple[object, bool, str]:
    """Wait for the end of the turn; return what was decided, whether the call ran, and the status of its item."""
    turn = str(request["turnId"])
    client.wait("turn/completed", lambda p: id_in(p) == turn)
    told = client.wait("approval/resolved", lambda p: p["requestId"] == request["requestId"])
    (call,) = [
        item for item in client.items(str(request["threadId"])) if item["type"] == "toolCall"
    ]
    return told["decision"], (folder / "note.txt").exists(), str(call["status"])


@pytest.mark.parametrize(
    ("decision", "ran", "status"), [("allow", True, "completed"), ("deny", False, "failed")]
)
def test_a_decision_is_carried_out_and_told(
    client: TurnClient,
    model: ScriptedModel,
    tmp_path: Path,
    decision: str,
    ran: bool,
    status: str,
) -> None:
    request = asked(client, model, tmp_path)
    assert client.call("approval/resolve", **request, decision=decision) == {}
    assert outcome(client, request, tmp_path) == (decision, ran, status)
    again = client.call("approval/resolve", **request, decision=decision)
    assert again == {"alreadyResolved": True}
    other = "deny" if decision == "allow" else "allow"
    error = client.refused("approval/resolve", **request, decision=other)
    assert brief(error) == (-32602, "approvalAlreadyResolved")
    assert inside(error, "data")["decision"] == decision


def test_a_decision_must_name_the_request_it_is_for(
    client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    for name in ("turnId", "requestId"):
        wrong = {**request, name: "apr_none"}
        error = client.refused("approval/resolve", **wrong, decision="allow")
        assert brief(error) == (-32602, "approvalNotFound")
        assert error["message"] == "Unknown approval request"
    error = client.refused("approval/resolve", **{**request, "threadId": "none"}, decision="deny")
    assert brief(error) == (-32020, "threadNotFound")
    for odd in ("yes", "approved", None, True):
        assert client.refused("approval/resolve", **request, decision=odd)["code"] == -32602
    assert client.call("approval/resolve", **request, decision="deny") == {}
    assert outcome(client, request, tmp_path) == ("deny", False, "failed")


def test_who_does_not_follow_the_thread_may_decide_too(
    connect: Connect, model: ScriptedModel, tmp_path: Path
) -> None:
    client, other = connect(), connect()
    request = asked(client, model, tmp_path)
    assert other.call("approval/resolve", **request, decision="allow") == {}
    assert outcome(client, request, tmp_path) == ("allow", True, "completed")
    assert other.heard == []


def test_what_the_other_door_decides_is_told_at_this_one(
    client: TurnClient, model: ScriptedModel, daemon: RunningDaemon, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    other = daemon.client()
    (told,) = [note for note in client.heard if note["method"] == "approval/requested"]
    call = inside(told, "params")["toolCallId"]
    other.call("tool.deny", sessionId=request["threadId"], requestId=call)
    assert outcome(client, request, tmp_path) == ("deny", False, "failed")
    error = client.refused("approval/resolve", **request, decision="allow")
    assert brief(error) == (-32602, "approvalAlreadyResolved")


@pytest.mark.parametrize(
    ("method", "decided"),
    [
        ("tool.approve", ("allow", True, "completed")),
        ("tool.deny", ("deny", False, "failed")),
        ("tool.cancel", ("deny", False, "interrupted")),
    ],
)
def test_the_other_door_takes_the_name_that_a_request_has_here(
    client: TurnClient,
    model: ScriptedModel,
    daemon: RunningDaemon,
    tmp_path: Path,
    method: str,
    decided: tuple[str, bool, str],
) -> None:
    request = asked(client, model, tmp_path)
    names = {"sessionId": request["threadId"], "requestId": request["requestId"]}
    other = daemon.client()
    other.call(method, **names)
    assert outcome(client, request, tmp_path) == decided
    with pytest.raises(Exception, match="not pending"):
        other.call(method, **names)
    with pytest.raises(Exception, match="not pending"):
        other.call(method, **{**names, "requestId": "apr_none"})


def test_an_answer_to_the_request_decides_and_one_that_cannot_answer_decides_nothing(
    client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    sent = client.wait_asked()
    assert sent["id"] == request["requestId"]
    client.write({"id": sent["id"], "error": {"code": -32601, "message": "no handler"}})
    client.call("thread/list", limit=0)
    assert not [note for note in client.heard if note["method"] == "approval/resolved"]
    client.write({"id": sent["id"], "result": {"decision": "allow"}})
    assert outcome(client, request, tmp_path) == ("allow", True, "completed")


def test_an_interrupt_denies_what_waits(
    client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    client.call("turn/interrupt", threadId=request["threadId"], turnId=request["turnId"])
    assert outcome(client, request, tmp_path)[:2] == ("deny", False)


def test_a_steer_while_a_decision_is_waited_for_is_read_after_the_call(
    client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    said = {"threadId": request["threadId"], "turnId": request["turnId"]}
    client.call("turn/steer", **said, input=[{"text": "and then"}])
    client.call("approval/resolve", **request, decision="allow")
    assert outcome(client, request, tmp_path) == ("allow", True, "completed")
    kinds = [item["type"] for item in client.items(str(request["threadId"]))]
    assert kinds == [
        "userMessage",
        "toolCall",
        "approvalRequest",
        "approvalResolved",
        "userMessage",
        "agentMessage",
    ]
