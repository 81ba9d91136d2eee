"""What the settings change for thread clients: who hears of new threads, how long a decision may take, what is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.daemon import create_agent, eventually
from tests.support.turn_client import inside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.turn_client import TurnClient

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WAIT_MS = 3_600_000


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return (
        "threads.announce=true",
        f"approvals.timeout={WAIT_MS // 1000}",
        "store.ephemeral_idle=0.2",
        "agents.idle_timeout=0.6",
    )


def test_all_thread_clients_hear_of_new_threads_of_both_doors(
    connect: Connect, daemon: RunningDaemon
) -> None:
    maker, other = connect(), connect()
    deaf = connect(optOutNotificationMethods=["thread/started"])
    thread = maker.thread(title="mine")
    told = inside(other.wait("thread/started"), "thread")
    assert (told["id"], told["title"]) == (thread, "mine")
    assert inside(maker.wait("thread/started"), "thread") == told
    client = daemon.client()
    agent, session = create_agent(client)
    more = client.call("session.create", agentId=agent)["sessionId"]
    for one in (maker, other):
        names = [inside(one.wait("thread/started"), "thread")["id"] for _ in range(2)]
        assert names == [session, more]
    deaf.call("thread/list", limit=0)
    maker.call("thread/list", limit=0)
    assert deaf.heard == []
    assert maker.methods() == ["thread/started"] * 3


def test_a_request_says_until_when_it_can_be_decided(
    connect: Connect, model: ScriptedModel, tmp_path: Path
) -> None:
    client, late = connect(), connect()
    call = json.dumps({"path": "note.txt", "content": "x"})
    model.play(script.calls("write_file", call), script.says("done"))
    thread = client.thread(cwd=str(tmp_path))
    turn = client.begin(thread)
    told = client.wait("approval/requested")
    late.call("thread/resume", threadId=thread)
    asked = [client.wait_asked(), late.wait_asked()]
    assert [inside(one, "params") for one in asked] == [told, late.wait("approval/requested")]
    items = client.items(thread)
    (request,) = [item for item in items if item["type"] == "approvalRequest"]
    before, until = int(str(request["createdAtMs"])), int(str(told["expiresAtMs"]))
    assert until - WAIT_MS == pytest.approx(before, abs=60_000)
    names = {"threadId": thread, "turnId": turn, "requestId": told["requestId"]}
    client.call("approval/resolve", **names, decision="deny")
    client.completed(turn)


def test_an_ephemeral_thread_takes_its_agent_with_it(
    connect: Connect, daemon: RunningDaemon, model: ScriptedModel
) -> None:
    client = connect(experimentalApi=True)
    model.play(script.says("done"))
    thread = client.thread(ephemeral=True)
    client.completed(client.begin(thread))
    other = daemon.client()

    def agents() -> list[object]:
        found = cast("list[Json]", other.call("agent.list", limit=100)["agents"])
        return [one["agentId"] for one in found]

    (agent,) = [
        one["agentId"]
        for one in cast("list[Json]", other.call("session.list", limit=100)["sessions"])
        if one["sessionId"] == thread
    ]
    assert agent in agents()
    client.call("thread/unsubscribe", threadId=thread)
    eventually(lambda: agent not in agents())
    assert client.refusal("thread/read", threadId=thread).code == -32020
