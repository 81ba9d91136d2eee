"""A turn that has been accepted and cannot begin yet: its agent's process waits for a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.turn_client import brief, inside

if TYPE_CHECKING:
    from bench.daemon import Json
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

pytestmark = pytest.mark.slow

SAID: list[Json] = [{"text": "later"}]


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return ("limits.agent_processes=1", "agents.idle_timeout=0.2")


def test_a_turn_that_has_not_begun_is_open_until_it_is_interrupted(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.silent_after())
    busy, waiting = client.thread(), client.thread()
    running = client.begin(busy)
    client.wait("turn/started")
    turn = inside(client.call("turn/start", threadId=waiting, input=SAID), "turn")
    assert (turn["status"], "startedAtMs" in turn) == ("queued", False)
    error = client.refused("turn/start", threadId=waiting, input=SAID)
    assert brief(error) == (-32602, "turnInProgress")
    assert inside(error, "data")["activeTurnId"] == turn["id"]
    for method in ("thread/read", "thread/resume"):
        answer = client.call(method, threadId=waiting)
        shown = inside(answer, "thread")
        assert (shown["status"], shown["activeTurnId"]) == ("running", turn["id"])
        assert answer["activeTurn"] == turn
    steered = client.call("turn/steer", threadId=waiting, turnId=turn["id"], input=SAID)
    assert steered["queued"] is True
    assert steered["turn"] == turn, "what it is to begin with is shown"
    for method, further in (("turn/interrupt", {}), ("turn/steer", {"input": SAID})):
        error = client.refused(method, threadId=waiting, turnId="turn_other", **further)
        assert brief(error) == (-32031, "turnIdMismatch")
        assert inside(error, "data")["active"] == turn["id"]
    before = len(client.order)
    number = client.send("turn/interrupt", threadId=waiting, turnId=turn["id"])
    assert client.result(number) == {}
    ended = client.completed(str(turn["id"]))
    assert client.order[before] == f"#{number}", "the answer is first"
    assert ended["status"] == "interrupted"
    assert "startedAtMs" not in ended
    error = client.refused("turn/interrupt", threadId=waiting, turnId=turn["id"])
    assert brief(error) == (-32030, "noActiveTurn")
    assert inside(error, "data")["turnStatus"] == "interrupted"
    assert client.methods().count("turn/completed") == 1
    assert client.items(waiting) == []
    shown = inside(client.call("thread/read", threadId=waiting), "thread")
    assert shown["status"] == "idle"
    client.call("turn/interrupt", threadId=busy, turnId=running)


def test_a_turn_that_waits_begins_when_there_is_a_place_and_reads_what_was_said_meanwhile(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.silent_after())
    busy, waiting = client.thread(), client.thread()
    running = client.begin(busy)
    client.wait("turn/started", lambda p: p["threadId"] == busy)
    turn = client.begin(waiting, "first")
    client.call("turn/steer", threadId=waiting, turnId=turn, input=[{"text": "second"}])
    model.play(script.says("done"))
    client.call("turn/interrupt", threadId=busy, turnId=running)
    assert client.completed(turn)["status"] == "completed"
    said = [i for i in client.items(waiting) if i["type"] == "userMessage"]
    assert [inside(item, "content")["text"] for item in said] == ["first", "second"]
    assert [inside(item, "content")["source"] for item in said] == ["turn", "steer"]
