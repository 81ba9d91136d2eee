"""turn/steer over the real daemon: what is said is read in the turn, in order, or refused (T 3.10)."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.turn_client import brief, gated, inside, said_to, started, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WAITS = script.silent_after(script.delta(content="so far"))


def test_another_turn_cannot_be_interrupted_or_steered(
    client: TurnClient, model: ScriptedModel
) -> None:
    thread = client.thread()
    turn = started(client, thread, model, WAITS)
    for method, further in (("turn/interrupt", {}), ("turn/steer", {"input": [{"text": "x"}]})):
        error = client.refused(method, threadId=thread, turnId="turn_other", **further)
        assert brief(error) == (-32031, "turnIdMismatch")
        data = inside(error, "data")
        assert (data["expected"], data["active"]) == ("turn_other", turn)
    error = client.refused(
        "turn/steer", threadId=thread, turnId=turn, expectedTurnId="turn_x", input=[{"text": "x"}]
    )
    assert brief(error) == (-32602, "invalidParams")
    assert turn in str(error["message"])
    assert "turn_x" in str(error["message"])
    client.call("turn/interrupt", threadId=thread, turnId=turn)


def test_what_is_said_meanwhile_is_read_in_order_before_the_next_step(
    connect: Connect, model: ScriptedModel
) -> None:
    client, other = connect(), connect()
    thread = client.thread()
    other.call("thread/resume", threadId=thread)
    gate = threading.Event()
    turn = started(client, thread, model, gated(gate, script.says("first")), script.says("second"))
    for number, name in enumerate(("turnId", "expectedTurnId")):
        said = [{"type": "text", "text": f"steer {number}"}]
        answer = client.call("turn/steer", threadId=thread, input=said, **{name: turn})
        assert (answer["turnId"], answer["queued"]) == (turn, True)
        assert inside(answer, "turn")["status"] == "running"
        assert inside(answer, "turn")["input"] == [{"text": "go"}]
    gate.set()
    assert client.completed(turn)["status"] == "completed"
    other.completed(turn)
    assert said_to(model) == [
        ("user", "go"),
        ("assistant", "first"),
        ("user", "steer 0"),
        ("user", "steer 1"),
    ]
    items = client.items(thread)
    assert texts(items, "userMessage") == ["go", "steer 0", "steer 1"]
    assert texts(items, "agentMessage") == ["first", "second"]
    sources = [inside(i, "content")["source"] for i in items if i["type"] == "userMessage"]
    assert sources == ["turn", "steer", "steer"]
    assert {item["turnId"] for item in items} == {turn}
    assert client.of_turn(turn).count("turn/started") == 1
    assert other.of_turn(turn) == client.of_turn(turn)


def test_a_steer_sent_again_says_what_became_of_its_turn(
    client: TurnClient, model: ScriptedModel
) -> None:
    thread = client.thread()
    gate = threading.Event()
    turn = started(client, thread, model, gated(gate, script.says("first")), script.says("second"))
    steer: Json = {"threadId": thread, "clientMessageId": "k", "input": [{"text": "more"}]}
    first = client.call("turn/steer", turnId=turn, **steer)
    again = client.call("turn/steer", turnId=turn, **steer)
    assert inside(again, "turn") == inside(first, "turn")
    gate.set()
    client.completed(turn)
    ended = client.call("turn/steer", turnId=turn, **steer)
    assert (inside(ended, "turn")["status"], ended["queued"]) == ("completed", False)
    assert inside(ended, "turn") == inside(client.heard[-1], "params")["turn"]
    error = client.refused("turn/steer", turnId="turn_other", **steer)
    assert brief(error) == (-32602, "clientMessageIdConflict")
    assert texts(client.items(thread), "userMessage") == ["go", "more"]


def test_a_turn_that_has_ended_takes_nothing_more(client: TurnClient, model: ScriptedModel) -> None:
    model.play(script.says("done"))
    thread = client.thread()
    turn = client.begin(thread)
    client.completed(turn)
    error = client.refused("turn/steer", threadId=thread, turnId=turn, input=[{"text": "late"}])
    assert brief(error) == (-32030, "noActiveTurn")
    assert inside(error, "data")["turnStatus"] == "completed"
    assert client.refused("turn/steer", threadId=thread, input=[{"text": "x"}])["code"] == -32602


def test_nothing_said_does_not_steer(client: TurnClient, model: ScriptedModel) -> None:
    thread = client.thread()
    turn = started(client, thread, model, WAITS)
    error = client.refused("turn/steer", threadId=thread, turnId=turn, input=[{"text": ""}])
    assert brief(error) == (-32602, "emptyInput")
    client.call("turn/interrupt", threadId=thread, turnId=turn)


def test_what_an_interrupted_turn_did_not_read_is_seen_by_the_next(
    client: TurnClient, model: ScriptedModel
) -> None:
    thread = client.thread()
    turn = started(client, thread, model, WAITS)
    client.call("turn/steer", threadId=thread, turnId=turn, input=[{"text": "unread"}])
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    assert client.completed(turn)["status"] == "interrupted"
    model.play(script.says("seen"))
    client.completed(client.begin(thread, "next"))
    assert [text for role, text in said_to(model) if role == "user"] == ["go", "unread", "next"]
    assert texts(client.items(thread), "userMessage") == ["go", "unread", "next"]


def test_what_is_said_right_behind_the_start_is_read_in_the_same_turn(
    client: TurnClient, model: ScriptedModel
) -> None:
    for _ in range(5):
        model.play(script.says("one"), script.says("two"))
        thread = client.thread()
        turn = client.begin(thread, "first")
        answer = client.call("turn/steer", threadId=thread, turnId=turn, input=[{"text": "second"}])
        assert inside(answer, "turn")["id"] == turn
        assert client.completed(turn)["status"] == "completed"
        assert texts(client.items(thread), "userMessage") == ["first", "second"]
        assert {item["turnId"] for item in client.items(thread)} == {turn}
        assert [text for role, text in said_to(model) if role == "user"] == ["first", "second"]


def test_nothing_said_is_lost_when_the_agent_is_killed(
    client: TurnClient, model: ScriptedModel, daemon: RunningDaemon
) -> None:
    thread = client.thread()
    turn = started(client, thread, model, WAITS)
    client.call("turn/steer", threadId=thread, turnId=turn, input=[{"text": "unread"}])
    sessions: list[Json] = daemon.client().call("session.list")["sessions"]  # type: ignore[assignment]
    (agent,) = [str(each["agentId"]) for each in sessions if each["sessionId"] == thread]
    daemon.kill(agent)
    assert client.completed(turn)["status"] == "interrupted"
    model.play(script.says("seen"))
    client.completed(client.begin(thread, "next"))
    assert [text for role, text in said_to(model) if role == "user"] == ["go", "unread", "next"]
    assert texts(client.items(thread), "userMessage") == ["go", "unread", "next"]


def test_at_whatever_moment_something_is_said_it_is_read_in_the_turn_or_refused(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says(*[f"{number} " for number in range(10)], interval=0.001))
    moments = random.Random(11)
    thread = client.thread()
    accepted: list[tuple[str, str]] = []
    for at in range(30):
        turn = client.begin(thread, f"go {at}")
        accepted.append((turn, f"go {at}"))
        for _ in range(moments.randrange(16)):
            if client.read().get("method") == "turn/completed":
                break
        said = f"steer {at}"
        number = client.send("turn/steer", threadId=thread, turnId=turn, input=[{"text": said}])
        answer = client.outcome(number)
        if "result" in answer:
            accepted.append((turn, said))
        else:
            assert brief(inside(answer, "error")) == (-32030, "noActiveTurn")
        assert client.completed(turn)["status"] == "completed"
    items = [item for item in client.items(thread) if item["type"] == "userMessage"]
    assert [(i["turnId"], inside(i, "content")["text"]) for i in items] == accepted
    assert [t for role, t in said_to(model) if role == "user"] == [text for _, text in accepted]
    assert 30 < len(accepted) < 60
