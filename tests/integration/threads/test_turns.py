"""turn/start and turn/interrupt over the real daemon (T 3.8, 3.9), and model/list."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.daemon import eventually
from tests.support.turn_client import brief, gated, id_in, inside, said_to, started, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.daemon import Client, Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WAITS = script.silent_after(script.delta(content="so far"))


def test_a_turn_is_told_from_its_beginning_to_its_end(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hel", "lo", interval=0.02))
    thread = client.thread()
    answer = client.call("turn/start", threadId=thread, input=[{"text": "a"}, {"text": "b"}])
    turn = inside(answer, "turn")
    assert turn["status"] in ("queued", "running")
    assert turn["input"] == [{"text": "a"}, {"text": "b"}]
    assert (turn["threadId"], turn["runId"]) == (thread, turn["id"])
    assert [note["method"] for note in client.heard] == ["thread/started"], "the answer is first"
    ended = client.completed(str(turn["id"]))
    assert ended["status"] == "completed"
    assert ended["input"] == turn["input"]
    assert ended["startedAtMs"] <= ended["completedAtMs"]  # type: ignore[operator]
    told = [note["method"] for note in client.heard[1:]]
    assert told[:4] == ["thread/status/changed", "turn/started", "item/started", "item/completed"]
    assert told[4:6] == ["item/started", "item/agentMessage/delta"]
    assert told[-3:] == ["item/completed", "thread/status/changed", "turn/completed"]
    assert said_to(model) == [("user", "a\nb")]
    assert texts(client.items(thread), "agentMessage") == ["Hello"]


def test_nothing_said_and_too_much_said_leave_no_trace(client: TurnClient) -> None:
    thread = client.thread()
    for said in ([], [{"text": ""}], [{"text": ""}, {"text": ""}]):
        error = client.refused("turn/start", threadId=thread, input=said)
        assert brief(error) == (-32602, "emptyInput")
    error = client.refused("turn/start", threadId=thread, input=[{"text": "x" * 1_100_000}])
    assert brief(error) == (-32602, "inputTooLarge")
    data = inside(error, "data")
    assert int(str(data["actual_chars"])) > int(str(data["max_chars"])) > 1_000_000
    assert int(str(data["actual_bytes"])) > int(str(data["max_bytes"])) == 1_048_576
    nothing: Json = {}
    for wrong in ("text", [{"text": 1}], [nothing], None):
        error = client.refused("turn/start", threadId=thread, input=wrong)
        assert error["code"] == -32602
    assert client.items(thread) == []
    assert client.heard[1:] == []


def test_a_thread_that_is_unknown_or_archived_takes_no_turn(client: TurnClient) -> None:
    said = [{"text": "x"}]
    error = client.refused("turn/start", threadId="thread_none", input=said)
    assert brief(error) == (-32020, "threadNotFound")
    thread = client.thread()
    client.call("thread/archive", threadId=thread)
    error = client.refused("turn/start", threadId=thread, input=said)
    assert brief(error) == (-32021, "threadArchived")
    for method, further in (("turn/steer", {"input": said}), ("turn/interrupt", {})):
        error = client.refused(method, threadId=thread, turnId="turn_1", **further)
        assert brief(error) == (-32030, "noActiveTurn")
        error = client.refused(method, threadId="thread_none", turnId="turn_1", **further)
        assert brief(error) == (-32020, "threadNotFound")


def test_of_many_turns_at_once_one_begins(connect: Connect, model: ScriptedModel) -> None:
    model.play(WAITS)
    clients = [connect() for _ in range(12)]
    thread = clients[0].thread()
    numbers = [
        client.send("turn/start", threadId=thread, input=[{"text": str(at)}])
        for at, client in enumerate(clients)
    ]
    answers = [client.outcome(number) for client, number in zip(clients, numbers, strict=True)]
    accepted = [
        inside(inside(answer, "result"), "turn") for answer in answers if "result" in answer
    ]
    assert len(accepted) == 1
    active = str(accepted[0]["id"])
    for answer in answers:
        if "error" in answer:
            error = inside(answer, "error")
            assert brief(error) == (-32602, "turnInProgress")
            assert inside(error, "data")["activeTurnId"] == active
            assert error["message"] == "Thread already has an active turn"
    clients[0].call("turn/interrupt", threadId=thread, turnId=active)


def test_who_is_refused_does_not_follow_the_thread_and_who_begins_a_turn_does(
    connect: Connect, model: ScriptedModel
) -> None:
    owner, other = connect(), connect()
    thread = owner.thread()
    turn = started(owner, thread, model, WAITS)
    assert brief(other.refused("turn/start", threadId=thread, input=[{"text": "x"}])) == (
        -32602,
        "turnInProgress",
    )
    owner.call("turn/interrupt", threadId=thread, turnId=turn)
    assert owner.completed(turn)["status"] == "interrupted"
    other.call("thread/list", limit=0)
    assert other.heard == []
    model.play(script.says("done"))
    turn = other.begin(thread)
    assert other.completed(turn)["status"] == "completed"
    assert other.of_turn(turn)[:2] == ["thread/status/changed", "turn/started"]


def test_a_turn_goes_on_without_the_client_that_began_it(
    connect: Connect, model: ScriptedModel
) -> None:
    first, second = connect(), connect()
    thread = first.thread()
    gate = threading.Event()
    started(first, thread, model, gated(gate, script.says("done")))
    first.close()
    second.call("thread/resume", threadId=thread)
    gate.set()
    second.wait("turn/completed")
    assert texts(second.items(thread), "agentMessage") == ["done"]


def test_a_model_is_for_one_turn_and_must_be_known(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.body(b'{"data":[{"id":"big","context_length":8}]}'), script.says("ok"))
    found = client.call("model/list")["models"]
    assert found == [
        {"id": "m", "provider": "local", "supportsTools": True},
        {"id": "big", "provider": "local", "supportsTools": True, "contextLength": 8},
    ]
    assert client.call("model/list", provider="local")["models"] == found
    assert client.call("model/list", provider="none")["models"] == []
    thread = client.thread()
    error = client.refused("turn/start", threadId=thread, input=[{"text": "x"}], model="none")
    assert brief(error) == (-32602, "unknownModel")
    for named, used in (("big", "big"), (None, "m")):
        turn = client.begin(thread, model=named)
        assert client.completed(turn).get("model") in (named, "m")
        assert json.loads(model.asked[-1].body)["model"] == used


def test_a_message_sent_again_is_the_same_turn(client: TurnClient, model: ScriptedModel) -> None:
    model.play(script.says("once"))
    thread = client.thread()
    params: Json = {"threadId": thread, "clientMessageId": "c1", "input": [{"text": "x"}]}
    turn = inside(client.call("turn/start", **params), "turn")
    client.completed(str(turn["id"]))
    again = inside(client.call("turn/start", **params), "turn")
    assert (again["id"], again["status"]) == (turn["id"], "completed")
    assert again == inside(inside(client.heard[-1], "params"), "turn"), "as its end was told"
    assert {"startedAtMs", "completedAtMs", "tokenUsage"} <= again.keys()
    params["input"] = [{"text": "y"}]
    assert client.refused("turn/start", **params)["code"] == -32602
    assert texts(client.items(thread), "agentMessage") == ["once"]


def test_a_turn_that_is_interrupted_ends_once_and_keeps_what_was_said(
    client: TurnClient, model: ScriptedModel
) -> None:
    thread = client.thread()
    turn = started(client, thread, model, WAITS)
    client.wait("item/agentMessage/delta")
    one, two = (
        client.send("turn/interrupt", threadId=thread, turnId=turn),
        client.send("turn/interrupt", threadId=thread, turnId=turn),
    )
    assert client.result(one) == {}
    ended = client.completed(turn)
    assert ended["status"] == "interrupted"
    second = client.outcome(two)
    assert second.get("result") == {} or brief(inside(second, "error"))[0] == -32030
    # It is idle before its end is told.
    model.play(script.says("next"))
    following = client.begin(thread)
    client.completed(following)
    assert [note["method"] for note in client.heard].count("turn/completed") == 2
    error = client.refused("turn/interrupt", threadId=thread, turnId=turn)
    assert brief(error) == (-32030, "noActiveTurn")
    assert inside(error, "data")["turnStatus"] == "interrupted"
    items = client.items(thread)
    assert texts(items, "agentMessage") == ["so far", "next"]
    assert [item["status"] for item in items] == ["completed", "interrupted"] + ["completed"] * 2


def test_an_interrupt_right_behind_the_start_works(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(WAITS)
    for _ in range(5):
        thread = client.thread()
        turn = client.begin(thread)
        assert client.call("turn/interrupt", threadId=thread, turnId=turn) == {}
        assert client.completed(turn)["status"] == "interrupted"


def test_the_other_door_queues_what_this_one_refuses(
    client: TurnClient, model: ScriptedModel, daemon: RunningDaemon
) -> None:
    thread = client.thread()
    gate = threading.Event()
    turn = started(client, thread, model, gated(gate, script.says("one")), script.says("two"))
    other: Client = daemon.client()
    number = other.send("message.send", sessionId=thread, content="queued")
    eventually(lambda: other.call("session.snapshot", sessionId=thread))
    gate.set()
    assert other.answer(number)["outcome"] == "completed"
    assert client.completed(turn)["status"] == "completed"
    client.wait("turn/completed")
    assert texts(client.items(thread), "userMessage") == ["go", "queued"]
    assert texts(client.items(thread), "agentMessage") == ["one", "two"]


def test_at_whatever_moment_a_turn_is_interrupted_twice_it_ends_once_and_the_next_begins(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says(*[f"{number} " for number in range(20)], interval=0.001))
    moments = random.Random(7)
    thread = client.thread()
    turns: list[str] = []
    for _ in range(40):
        turns.append(client.begin(thread))
        for _ in range(moments.randrange(30)):
            if client.read().get("method") == "turn/completed":
                break
        numbers = [
            client.send("turn/interrupt", threadId=thread, turnId=turns[-1]) for _ in range(2)
        ]
        ended = client.completed(turns[-1])
        for answer in map(client.outcome, numbers):
            if "error" in answer:
                error = inside(answer, "error")
                assert brief(error) == (-32030, "noActiveTurn")
                assert inside(error, "data")["turnStatus"] == ended["status"]
    told = [id_in(inside(n, "params")) for n in client.heard if n["method"] == "turn/completed"]
    assert told == turns
    begun = [id_in(inside(n, "params")) for n in client.heard if n["method"] == "turn/started"]
    assert [turn for turn in turns if turn in begun] == begun


def test_models_are_told_again_after_the_providers_service_has_died(
    client: TurnClient, daemon: RunningDaemon
) -> None:
    def told() -> bool:
        answer = client.outcome(client.send("model/list"))
        if "error" in answer:
            assert brief(inside(answer, "error")) == (-32001, "overloaded")
        return "result" in answer

    assert told()
    daemon.kill("providers")
    eventually(told)
    assert client.call("model/list", provider="none")["models"] == []


@pytest.mark.parametrize(
    "cwd", ["/no/such/folder", "relative", "", "/etc/hostname", "\0", "x" * 9_000]
)
def test_a_folder_that_cannot_be_worked_in_fails_the_turn(
    client: TurnClient, model: ScriptedModel, cwd: str
) -> None:
    model.play(script.says("never asked"))
    thread = client.thread(cwd=cwd)
    turn = client.begin(thread)
    ended = client.completed(turn)
    assert ended["status"] == "failed"
    error = inside(ended, "error")
    assert error["code"] == "CWD_UNUSABLE"
    assert str(error["message"]).startswith("The working folder ")
    assert inside(client.call("thread/read", threadId=thread), "thread")["status"] == "idle"
