"""A question of an agent as thread clients see it: a call of `ask_user` that waits for its answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.turn_client import inside

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

ASK = json.dumps({"questions": [{"id": "color", "question": "Which color?"}]})
WAITING = ["waitingOnUserInput"]


def waiting(params: Json) -> bool:
    return params.get("activeFlags") == WAITING


def questioned(client: TurnClient, model: ScriptedModel) -> tuple[str, str, Json]:
    """Begin a turn that asks; return its thread, its id and the item of the call."""
    model.play(script.calls("ask_user", ASK), script.says("thank you"))
    thread = client.thread()
    turn = client.begin(thread)
    client.wait("thread/status/changed", waiting)
    told = client.wait("item/started", lambda p: inside(p, "item")["type"] == "toolCall")
    return thread, turn, inside(told, "item")


def listed(client: TurnClient, thread: str) -> Json:
    threads = cast("list[Json]", client.call("thread/list")["threads"])
    return next(one for one in threads if one["id"] == thread)


def test_a_question_is_seen_live_and_by_who_comes_later(
    connect: Connect, model: ScriptedModel, daemon: RunningDaemon
) -> None:
    client, late = connect(), connect()
    thread, turn, item = questioned(client, model)
    content = inside(item, "content")
    assert (content["toolName"], content["arguments"]) == ("ask_user", json.loads(ASK))
    resumed = late.call("thread/resume", threadId=thread)
    assert inside(resumed, "thread")["activeFlags"] == WAITING
    assert cast("list[Json]", resumed["items"])[-1] == item
    assert listed(client, thread)["activeFlags"] == WAITING
    other = daemon.client()
    answer = {"answers": {"color": {"answers": ["green"]}}}
    names = {"sessionId": thread, "requestId": content["toolCallId"]}
    other.call("elicitation.respond", **names, kind="request_user_input", response=answer)
    for one in (client, late):
        one.wait("thread/status/changed", lambda p: "activeFlags" not in p and "activeTurnId" in p)
        assert one.completed(turn)["status"] == "completed"
    (call,) = [one for one in client.items(thread) if one["type"] == "toolCall"]
    assert "green" in json.dumps(inside(call, "content")["result"])
    assert "activeFlags" not in listed(client, thread)
    assert client.asked == []


def test_a_turn_that_asks_is_interrupted(client: TurnClient, model: ScriptedModel) -> None:
    thread, turn, item = questioned(client, model)
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    assert client.completed(turn)["status"] == "interrupted"
    ended = client.wait("item/completed", lambda p: inside(p, "item")["id"] == item["id"])
    assert inside(ended, "item")["status"] == "interrupted"
    assert "activeFlags" not in listed(client, thread)
