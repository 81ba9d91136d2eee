"""SIGKILL of each process as soon as a client has been told something of a turn, whatever that was."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from bench.thread_races import final_state
from tests.support import scripted_model as script
from tests.support.thread_kills import agent_of, kill, of_thread, opened
from tests.support.turn_client import TurnClient, inside, said_to, texts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_client import Json

pytestmark = pytest.mark.slow

WRITE = script.calls("write_file", '{"path":"a.md","content":"x"}')
MOMENTS = (
    "thread/status/changed", "turn/started", "item/started", "item/completed", "approval/requested",
    "approval/resolved", "item/toolCall/delta", "the end of the call", "item/agentMessage/delta",
    "turn/completed",
)  # fmt: skip
FEW = ("turn/started", "item/toolCall/delta", "item/agentMessage/delta")


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return ("processes.max_restarts=1000", "agents.max_restarts=1000")


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        *(("agent", moment) for moment in MOMENTS),
        *((service, moment) for service in ("store", "front") for moment in FEW),
        ("root", "approval/resolved"),
    ],
)
def test_spec_edge_6_5_a_kill_as_soon_as_something_was_told(
    daemon: RunningDaemon, model: ScriptedModel, tmp_path: Path, victim: str, moment: str
) -> None:
    """T 6.4, 6.5, 8: one end, everything once under the same ids, and the next turn reads it all."""
    model.play(WRITE, script.says("Do", "ne"))
    client = TurnClient(daemon.socket)
    thread = client.thread(cwd=str(tmp_path))
    agent = agent_of(daemon, thread)
    snapshot = client.call("thread/resume", threadId=thread)
    turn = client.begin(thread)
    client.call("turn/steer", threadId=thread, turnId=turn, input=[{"text": "more"}])
    until(client, moment)
    before = final_state(snapshot, of_thread(client, thread))
    kill(daemon, agent if victim == "agent" else victim)
    client.close()
    client = opened(daemon)
    status = ended(client, thread, turn)
    items = client.items(thread)
    assert status == "completed" or victim in ("agent", "root")
    assert texts(items, "userMessage") == ["go", "more"]
    assert len({item["id"] for item in items}) == len(items)
    assert {item["status"] for item in items} <= {"completed", "interrupted", "failed"}
    known = [item["id"] for item in before]
    assert [item["id"] for item in items if item["id"] in known] == known
    assert all(item in items for item in before if "completedAtMs" in item)
    model.play(script.says("ok"))
    assert client.turn(thread, "next")["status"] == "completed"
    assert client.items(thread)[: len(items)] == items
    assert [text for role, text in said_to(model) if role == "user"] == ["go", "more", "next"]
    client.close()


def until(client: TurnClient, moment: str) -> None:
    """Read until something is told, and allow the call if it is asked for before."""
    while True:
        message = client.read()
        if message.get("method") == moment or _is_end_of_call(message, moment):
            return
        if message.get("method") == "approval/request" and moment != "approval/requested":
            client.write({"id": message["id"], "result": {"decision": "allow"}})


def _is_end_of_call(message: Json, moment: str) -> bool:
    if moment != "the end of the call" or message.get("method") != "item/completed":
        return False
    return inside(inside(message, "params"), "item")["type"] == "toolCall"


def ended(client: TurnClient, thread: str, turn: str) -> object:
    """Follow a thread to the end of the turn, allowing its call; return how it ended."""
    page = client.call("thread/resume", threadId=thread)
    active = inside(page, "thread").get("activeTurnId")
    assert active in (None, turn)
    while active and "turn/completed" not in client.methods():
        message = client.read()
        if message.get("method") == "approval/request":
            client.write({"id": message["id"], "result": {"decision": "allow"}})
    assert final_state(page, of_thread(client, thread)) == client.items(thread)
    error = client.refused("turn/interrupt", threadId=thread, turnId=turn)
    status = cast("Json", error["data"])["turnStatus"]
    told = [note for note in client.heard if note["method"] == "turn/completed"]
    assert [inside(inside(note, "params"), "turn")["status"] for note in told] in ([], [status])
    return status
