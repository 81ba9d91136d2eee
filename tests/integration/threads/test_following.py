"""What late, returning and many clients of one thread see (T 3.4, 4.3, 9)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from bench.daemon import Client
from tests.support import scripted_model as script
from tests.support.turn_client import TurnClient, inside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_client import Json

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WRITE = script.calls("write_file", json.dumps({"path": "note.txt", "content": "x"}))


def asked(client: TurnClient, model: ScriptedModel, folder: Path) -> Json:
    model.play(WRITE, script.says("done"))
    thread = client.thread(cwd=str(folder))
    turn = client.begin(thread)
    return client.wait("approval/requested", lambda p: p["turnId"] == turn)


def test_everyone_who_follows_is_asked_and_learns_the_decision(
    connect: Connect, client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    late = connect()
    number = late.send("thread/resume", threadId=request["threadId"])
    page = late.result(number)
    question = late.wait_asked()

    assert late.order[-3:] == [f"#{number}", "approval/requested", "approval/request"]
    assert question["id"] == request["requestId"]
    assert question["params"] == request
    assert inside(page, "thread")["activeFlags"] == ["waitingOnApproval"]
    assert client.wait_asked()["id"] == request["requestId"]
    late.write({"id": request["requestId"], "result": {"decision": "approved"}})
    client.write({"id": request["requestId"], "result": {"decision": "deny"}})
    for one in (client, late):
        told = one.wait("approval/resolved")
        assert told["decision"] == "allow"
        assert inside(one.wait("turn/completed"), "turn")["status"] == "completed"
        at = told["sequence"]
        changed = [m for m in one.heard if m["method"] == "thread/status/changed"]
        assert "activeFlags" not in next(
            inside(m, "params") for m in changed if inside(m, "params")["sequence"] == at
        )
    assert (tmp_path / "note.txt").exists()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"result": {"decision": "deny", "message": "not that"}}, "not that"),
        ({"result": {}}, None),
        ({"error": {"code": -32000, "message": "no"}}, None),
    ],
)
def test_an_answer_without_a_decision_denies(
    client: TurnClient, model: ScriptedModel, tmp_path: Path, answer: Json, reason: str | None
) -> None:
    request = asked(client, model, tmp_path)
    client.wait_asked()
    client.write({"id": request["requestId"], **answer})
    told = client.wait("approval/resolved")
    client.wait("turn/completed")

    assert told["decision"] == "deny"
    if reason is not None:
        assert told["reason"] == reason
    assert not (tmp_path / "note.txt").exists()


def test_who_was_not_asked_decides_nothing_by_an_answer(
    connect: Connect, client: TurnClient, model: ScriptedModel, tmp_path: Path
) -> None:
    request = asked(client, model, tmp_path)
    stranger = connect()
    stranger.write({"id": request["requestId"], "result": {"decision": "allow"}})
    stranger.write({"id": "apr_unknown", "result": {"decision": "allow"}})
    stranger.call("thread/list", limit=0)
    page = client.call("thread/read", threadId=request["threadId"])

    assert inside(page, "thread")["activeFlags"] == ["waitingOnApproval"]
    client.call("turn/interrupt", threadId=request["threadId"], turnId=request["turnId"])
    told = client.wait("approval/resolved")
    assert (told["decision"], told["reason"]) == ("deny", "interrupted")


def test_what_waits_for_a_decision_waits_over_a_restart(
    daemon: RunningDaemon, model: ScriptedModel, tmp_path: Path
) -> None:
    client = TurnClient(daemon.socket)
    request = asked(client, model, tmp_path)
    client.close()
    daemon.stop()
    daemon.start()
    client = TurnClient(daemon.socket)
    page = client.call("thread/resume", threadId=request["threadId"])
    question = client.wait_asked()
    assert question["params"] == request
    assert inside(page, "activeTurn")["id"] == request["turnId"]
    names = {key: request[key] for key in ("threadId", "turnId", "requestId")}
    assert client.call("approval/resolve", **names, decision="allow") == {}
    ended = client.completed(str(request["turnId"]))
    client.close()

    assert ended["status"] == "completed"
    assert (tmp_path / "note.txt").exists()


def test_a_turn_of_the_other_door_is_seen_from_its_beginning(
    daemon: RunningDaemon, connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hel", "lo"))
    thread = client.thread()
    watcher = connect()
    watcher.call("thread/resume", threadId=thread)
    other = Client(daemon.socket)
    other.call("message.send", sessionId=thread, content="from there")
    for one in (client, watcher):
        turn = inside(one.wait("turn/completed"), "turn")
        assert (turn["status"], turn["input"]) == ("completed", [{"text": "from there"}])
        assert one.of_turn(str(turn["id"]))[:2] == ["thread/status/changed", "turn/started"]
    other.close()


def test_a_thread_of_a_cleared_session_begins_anew(
    daemon: RunningDaemon, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    thread = client.thread()
    client.turn(thread, "before")
    old = client.items(thread)
    other = Client(daemon.socket)
    other.call("session.clear", sessionId=thread)
    client.turn(thread, "after")
    other.close()
    page = client.call("thread/read", threadId=thread, afterItemId=old[0]["id"])

    items = cast("list[Json]", page["items"])
    assert [inside(item, "content")["text"] for item in items] == ["after", "Hi"]
    assert page["reset"] is True


def test_pages_are_as_small_as_a_client_asks(connect: Connect, model: ScriptedModel) -> None:
    model.play(script.says("x" * 3_000))
    small = connect(**{"roost.lineBytes": 16_384})
    thread = small.thread()
    for number in range(12):
        small.turn(thread, f"turn {number}")
    page = small.call("thread/read", threadId=thread)
    whole = connect().items(thread)

    assert page["hasMore"] is True
    assert len(json.dumps(page)) < 16_384
    assert small.items(thread) == whole
    assert len(whole) == 24
