"""SIGKILL in the middle of turns with steers: what was answered or told is there once afterwards, under the ids it had.

Each kill waits for something that the daemon has said, never for time. T 3.3, 3.10, 6.4, 6.5, 8.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from bench.thread_races import final_state
from tests.support import scripted_model as script
from tests.support.thread_kills import agent_of, by_id, kill, kill_root, opened, resumed
from tests.support.thread_steps import in_two
from tests.support.turn_client import TurnClient, inside, said_to, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_client import Json

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

WRITE = script.calls("write_file", '{"path":"note.txt","content":"x"}')
KINDS = [
    "userMessage", "toolCall", "approvalRequest", "approvalResolved", "userMessage", "agentMessage",
]  # fmt: skip


class Story:
    """A turn that has said `so far` and was steered twice, as its client knows it."""

    def __init__(self, client: TurnClient, model: ScriptedModel) -> None:
        self.gate = threading.Event()
        self.client = client
        self.model = model
        model.play(in_two("so far", ", done", self.gate), script.says("second"))
        self.thread = client.thread()
        self.snapshot = client.call("thread/resume", threadId=self.thread)
        client.heard.clear()
        self.turn = client.begin(self.thread, "go")
        client.wait("item/agentMessage/delta", lambda p: p["turnId"] == self.turn)
        for text in ("one", "two"):
            said = [{"text": text}]
            client.call("turn/steer", threadId=self.thread, turnId=self.turn, input=said)

    def known(self) -> dict[object, tuple[object, object]]:
        """Return type and text of the items that were told so far, by id."""
        return by_id(final_state(self.snapshot, self.client.heard))


def check_interrupted(
    client: TurnClient, story: Story, before: dict[object, tuple[object, object]]
) -> None:
    """See that the turn was cut off, that all is there once, and that the next turn reads it."""
    items = client.items(story.thread)
    assert [inside(i, "content")["text"] for i in items] == ["go", "so far", "one", "two"]
    assert [i["status"] for i in items] == ["completed", "interrupted", "completed", "completed"]
    assert {i["turnId"] for i in items} == {story.turn}
    assert before.items() <= by_id(items).items()
    story.model.play(script.says("seen"))
    assert client.turn(story.thread, "next")["status"] == "completed"
    said = [text for role, text in said_to(story.model) if role == "user"]
    assert said == ["go", "one", "two", "next"]
    again = client.items(story.thread)
    assert again[:4] == items
    assert texts(again[4:], "userMessage") == ["next"]


def check_completed(
    client: TurnClient, story: Story, before: dict[object, tuple[object, object]]
) -> None:
    """See that the turn went on, and read in its next step what was said to it."""
    items = client.items(story.thread)
    wanted = ["go", "so far, done", "one", "two", "second"]
    assert [inside(i, "content")["text"] for i in items] == wanted
    assert {(i["turnId"], i["status"]) for i in items} == {(story.turn, "completed")}
    assert before.keys() <= by_id(items).keys()
    assert [t for role, t in said_to(story.model) if role == "user"] == ["go", "one", "two"]


def test_spec_edge_5_root_is_killed_in_a_steered_turn(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    """T 5, 6.5: the turn ends `interrupted`, the thread idles, no thread runs, and no id is used again."""
    client = TurnClient(daemon.socket)
    story = Story(client, model)
    before = story.known()
    client.close()
    kill_root(daemon)
    client = TurnClient(daemon.socket)
    listed = cast("list[Json]", client.call("thread/list")["threads"])
    assert {row["status"] for row in listed} == {"idle"}
    assert client.thread() not in {row["id"] for row in listed}
    resumed(client, story.thread)
    check_interrupted(client, story, before)
    client.close()


def test_spec_edge_5_the_agent_is_killed_in_a_steered_turn(
    daemon: RunningDaemon, connect: Connect, model: ScriptedModel
) -> None:
    """T 6.5: who follows is told one end, `interrupted`; who comes later reads the same."""
    client, late = connect(), connect()
    story = Story(client, model)
    before = story.known()
    daemon.kill(agent_of(daemon, story.thread))
    assert client.completed(story.turn)["status"] == "interrupted"
    assert final_state(story.snapshot, client.heard) == client.items(story.thread)
    resumed(late, story.thread)
    check_interrupted(late, story, before)
    late_end = late.methods().count("turn/completed")
    client.wait("turn/completed")
    assert (client.methods().count("turn/completed"), late_end) == (2, 1)


def test_spec_edge_5_the_store_is_killed_in_a_steered_turn(
    daemon: RunningDaemon, connect: Connect, model: ScriptedModel
) -> None:
    """T 6.5: the turn goes on, and reads what was said to it; nothing is told twice."""
    client = connect()
    story = Story(client, model)
    before = story.known()
    pid = daemon.kill("store")
    daemon.restarted("store", pid)
    story.gate.set()
    assert client.completed(story.turn)["status"] == "completed"
    assert final_state(story.snapshot, client.heard) == client.items(story.thread)
    check_completed(client, story, before)
    late = connect()
    resumed(late, story.thread)
    assert late.items(story.thread) == client.items(story.thread)


def test_spec_edge_5_the_front_is_killed_in_a_steered_turn(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    """T 3.4, 5: connections end, the turn does not; who comes back has a snapshot and what follows it."""
    client = TurnClient(daemon.socket)
    story = Story(client, model)
    before = story.known()
    daemon.kill("front")
    with pytest.raises(ConnectionError):
        client.completed(story.turn)
    client.close()
    client = TurnClient(daemon.socket)
    page = client.call("thread/resume", threadId=story.thread)
    assert inside(page, "activeTurn")["id"] == story.turn
    assert by_id(cast("list[Json]", page["items"])) == before
    story.gate.set()
    assert client.completed(story.turn)["status"] == "completed"
    assert final_state(page, client.heard) == client.items(story.thread)
    check_completed(client, story, before)
    client.close()


@pytest.mark.parametrize("victim", ["root", "front", "store", "agent"])
def test_spec_edge_6_5_a_kill_right_behind_the_answers(
    daemon: RunningDaemon, model: ScriptedModel, victim: str
) -> None:
    """T 3.8, 3.10: a turn and a steer that were answered, and of which nothing was told, are there once."""
    model.play(script.says("first"), script.says("second"))
    client = TurnClient(daemon.socket)
    thread = client.thread()
    agent = agent_of(daemon, thread) if victim == "agent" else ""
    if agent:
        # Its process is there when the turn is asked for.
        client.turn(thread, "earlier")
    turn = client.begin(thread, "go")
    number = client.send("turn/steer", threadId=thread, turnId=turn, input=[{"text": "more"}])
    steered = "result" in client.outcome(number)
    kill(daemon, agent or victim)
    client.close()
    client = opened(daemon)
    resumed(client, thread)
    items = [i for i in client.items(thread) if i["turnId"] == turn]
    said = ["go", "more"] if steered else ["go"]
    assert texts(items, "userMessage") == said
    assert len({i["id"] for i in items}) == len(items)
    assert "inProgress" not in {i["status"] for i in items}
    error = client.refused("turn/interrupt", threadId=thread, turnId=turn)
    assert inside(error, "data")["turnStatus"] in ("completed", "interrupted")
    client.close()


@pytest.mark.parametrize("victim", ["root", "front", "store", "agent"])
def test_spec_edge_6_5_a_kill_while_a_decision_is_waited_for(
    daemon: RunningDaemon, model: ScriptedModel, tmp_path: Path, victim: str
) -> None:
    """T 4.3, 6.5: nothing has happened yet, so the turn waits on, as the design decides; who resumes is asked the same."""
    model.play(WRITE, script.says("done"))
    client = TurnClient(daemon.socket)
    thread = client.thread(cwd=str(tmp_path))
    turn = client.begin(thread)
    asked = client.wait("approval/requested")
    client.wait("thread/status/changed", lambda p: "activeFlags" in p)
    client.call("turn/steer", threadId=thread, turnId=turn, input=[{"text": "and then"}])
    before = client.items(thread)
    kill(daemon, agent_of(daemon, thread) if victim == "agent" else victim)
    client.close()
    client = opened(daemon)
    page = client.call("thread/resume", threadId=thread)
    assert page["items"] == before
    assert inside(page, "activeTurn")["id"] == turn
    question = client.wait_asked()
    assert (question["id"], question["params"]) == (asked["requestId"], asked)
    client.write({"id": question["id"], "result": {"decision": "allow"}})
    assert client.completed(turn)["status"] == "completed"
    items = client.items(thread)
    # What is asked again has the sequence that it had.
    told = [note for note in client.heard if note["method"] != "approval/requested"]
    assert final_state(page, told) == items
    assert [i["id"] for i in items[:3]] == [i["id"] for i in before]
    assert [i["type"] for i in items] == KINDS
    assert texts(items, "userMessage") == ["go", "and then"]
    assert (tmp_path / "note.txt").read_text() == "x"
    client.close()


def test_spec_3_3_a_thread_without_a_turn_outlives_a_crash(daemon: RunningDaemon) -> None:
    """T 3.3: its id was returned, so it is there; an ephemeral one is not. T 3.7: so is what was archived."""
    client = TurnClient(daemon.socket)
    kept, dropped = client.thread(title="kept"), client.thread(ephemeral=True)
    closed = client.thread(title="closed")
    assert client.call("thread/archive", threadId=closed) == {}
    client.close()
    kill_root(daemon)
    client = TurnClient(daemon.socket)
    rows = [inside(client.call("thread/resume", threadId=one), "thread") for one in (kept, closed)]
    assert [(row["title"], row["status"]) for row in rows] == [
        ("kept", "idle"),
        ("closed", "archived"),
    ]
    assert client.refused("thread/read", threadId=dropped)["code"] == -32020
    client.close()


def test_spec_4_1_who_is_there_is_warned_of_the_end(daemon: RunningDaemon) -> None:
    """T 4.1: `shutting_down` is told before the daemon ends by itself."""
    client = TurnClient(daemon.socket)
    client.thread()
    daemon.stop()
    assert client.wait("error/warning")["code"] == "shutting_down"
    with pytest.raises(ConnectionError):
        client.wait("thread/closed")
    client.close()
    daemon.start()
