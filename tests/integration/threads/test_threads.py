"""thread/start, list, read, resume and archive over the real daemon (T 3.3 to 3.7)."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, cast

import pytest

from bench.daemon import Client
from bench.thread_races import final_state
from tests.support import scripted_model as script
from tests.support.daemon import eventually
from tests.support.turn_client import TurnClient, gated, inside

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_client import Json

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow


def listed(client: TurnClient, **params: object) -> list[str]:
    threads = cast("list[Json]", client.call("thread/list", **params)["threads"])
    return [str(thread["id"]) for thread in threads]


def agent_of(daemon: RunningDaemon, thread: str) -> str:
    other = Client(daemon.socket)
    sessions = cast("list[Json]", other.call("session.list", limit=1000)["sessions"])
    other.close()
    return next(str(one["agentId"]) for one in sessions if one["sessionId"] == thread)


def items_in(page: Json) -> list[Json]:
    return cast("list[Json]", page["items"])


def test_a_thread_is_as_it_was_asked_for(client: TurnClient) -> None:
    number = client.send("thread/start", title="Tidy docs", cwd="/no/such folder")
    thread = inside(client.result(number), "thread")
    started = client.wait("thread/started")

    assert client.order[-2:] == [f"#{number}", "thread/started"]
    assert started["thread"] == thread
    assert (thread["title"], thread["cwd"]) == ("Tidy docs", "/no/such folder")
    assert (thread["status"], thread["archived"], thread["ephemeral"]) == ("idle", False, False)
    assert thread["createdAtMs"] == thread["updatedAtMs"]
    assert "model" not in thread
    assert "activeTurnId" not in thread


def test_nothing_given_is_not_the_same_as_an_empty_text(client: TurnClient) -> None:
    empty = inside(client.call("thread/start", title="", cwd=""), "thread")
    nothing = inside(client.call("thread/start", title=None), "thread")

    assert (empty["title"], empty["cwd"]) == ("", "")
    assert "title" not in nothing
    assert "cwd" not in nothing


def test_a_thread_is_a_session_of_the_other_door(
    daemon: RunningDaemon, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    thread = client.thread(title="both")
    other = Client(daemon.socket)
    other.call("session.attach", sessionId=thread)
    client.turn(thread, "from here")
    other.call("message.send", sessionId=thread, content="from there")
    ended = client.wait("turn/completed", lambda p: inside(p, "turn")["status"] == "completed")
    assert ended["threadId"] == thread
    said = [
        inside(item, "content")["text"]
        for item in client.items(thread)
        if item["type"] == "userMessage"
    ]
    other.close()

    assert said == ["from here", "from there"]


def test_threads_are_listed_by_their_last_change(client: TurnClient, model: ScriptedModel) -> None:
    model.play(script.says("Hi"))
    first, second, third = (client.thread() for _ in range(3))
    client.turn(first, "touched")
    client.call("thread/archive", threadId=second)

    page = client.call("thread/list", limit=2)
    assert [thread["id"] for thread in cast("list[Json]", page["threads"])] == [first, third]
    total = cast("int", page["total"])
    assert listed(client, offset=1, limit=1) == [third]
    assert listed(client, offset=total) == []
    assert listed(client, limit=0) == []
    assert second not in listed(client)
    assert listed(client, archived=True)[0] == second
    assert second not in listed(client, archived=False, includeArchived=True)
    assert {first, second, third} <= set(listed(client, includeArchived=True))
    assert set(listed(client, archived=True, includeArchived=True)).isdisjoint({first, third})
    assert client.call("thread/list", limit=10**9)["total"] == total


def test_an_archived_thread_is_read_and_takes_no_turn(
    connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    thread = client.thread()
    client.turn(thread, "go")
    watcher, other = connect(), connect()
    watcher.call("thread/resume", threadId=thread)
    number = other.send("thread/archive", threadId=thread)
    assert other.result(number) == {}
    for one in (other, watcher, client):
        one.wait("thread/archived")
        one.wait("thread/status/changed", lambda p: p["status"] == "archived")
    assert other.order[-3:] == [f"#{number}", "thread/archived", "thread/status/changed"]

    again = other.call("thread/archive", threadId=thread)
    page = other.call("thread/resume", threadId=thread)
    assert again == {}
    assert inside(page, "thread")["status"] == "archived"
    assert len(items_in(page)) == 2
    assert client.refusal("turn/start", threadId=thread, input=[{"text": "x"}]).code == -32021
    assert client.refusal(
        "turn/steer", threadId=thread, turnId="t", input=[{"text": "x"}]
    ).code == (-32030)
    assert "thread/archived" not in [m["method"] for m in other.heard if not m.get("seen")]


def test_archiving_interrupts_the_turn_first(client: TurnClient, model: ScriptedModel) -> None:
    model.play(script.silent_after(script.delta(content="so far")))
    thread = client.thread()
    turn = client.begin(thread)
    client.wait("item/agentMessage/delta")
    number = client.send("thread/archive", threadId=thread)
    assert client.result(number) == {}
    ended = client.completed(turn)
    client.wait("thread/archived")

    assert ended["status"] == "interrupted"
    assert client.order.index("turn/completed") < client.order.index(f"#{number}")
    assert client.order.index(f"#{number}") < client.order.index("thread/archived")


@pytest.mark.parametrize("method", ["thread/read", "thread/resume", "thread/archive"])
def test_a_thread_that_there_is_not(client: TurnClient, method: str) -> None:
    refused = client.refusal(method, threadId="th_unknown")

    assert (refused.code, refused.message) == (-32020, "Unknown thread")
    assert refused.data == {"code": "threadNotFound", "threadId": "th_unknown"}


def test_an_offset_of_any_size_is_past_the_end(client: TurnClient) -> None:
    for _ in range(12):
        assert listed(client, offset=10**25, limit=1) == []
    assert listed(client, offset=2**63 - 1, limit=10**25) == []
    client.thread()
    assert len(listed(client, limit=1)) == 1


@pytest.mark.parametrize("member", ["title", "cwd", "model"])
def test_what_is_kept_of_a_thread_is_bounded(client: TurnClient, member: str) -> None:
    refused = client.refused("thread/start", **{member: "t" * 65_537})
    assert refused["code"] == -32602
    assert inside(refused, "data")["code"] == "inputTooLarge"
    client.thread(title="t" * 65_536)


def test_items_are_read_behind_a_cursor(client: TurnClient, model: ScriptedModel) -> None:
    model.play(script.says("Do", "ne."))
    thread = client.thread()
    for text in ("one", "two"):
        client.turn(thread, text)
    page = client.call("thread/read", threadId=thread)
    items = items_in(page)
    types = [item["type"] for item in items]

    assert types == ["userMessage", "agentMessage"] * 2
    assert [inside(item, "content")["text"] for item in items] == ["one", "Done.", "two", "Done."]
    assert page["cursor"] == items[-1]["id"]
    assert "hasMore" not in page
    behind = client.call("thread/read", threadId=thread, afterItemId=items[1]["id"])
    assert items_in(behind) == items[2:]
    assert "reset" not in behind
    last = client.call("thread/read", threadId=thread, afterItemId=items[-1]["id"])
    assert items_in(last) == []
    other = client.thread()
    for unknown in ("item_unknown", "nonsense"):
        reset = client.call("thread/read", threadId=thread, afterItemId=unknown)
        assert (items_in(reset), reset["reset"]) == (items, True)
    foreign = client.call("thread/read", threadId=other, afterItemId=items[0]["id"])
    assert (items_in(foreign), foreign["reset"]) == ([], True)


def test_a_message_being_streamed_is_read_with_its_text_so_far(
    connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.play(script.silent_after(*(script.delta(content=f"{n} ") for n in range(30))))
    thread = client.thread()
    turn = client.begin(thread)
    heard = ""
    while "29" not in heard:
        heard += str(client.wait("item/agentMessage/delta")["delta"])
    page = connect().call("thread/read", threadId=thread)
    message = items_in(page)[-1]

    assert (message["status"], message["text"]) == ("inProgress", heard)
    assert page["cursor"] == items_in(page)[0]["id"]
    assert inside(page, "activeTurn")["id"] == turn
    assert inside(page, "thread")["status"] == "running"
    assert inside(page, "thread")["activeTurnId"] == turn
    watcher = connect()
    resumed = watcher.call("thread/resume", threadId=thread)
    assert items_in(resumed)[-1] == message
    client.call("turn/interrupt", threadId=thread, turnId=turn)
    closed = watcher.wait("item/completed")
    assert inside(closed, "item")["id"] == message["id"]
    assert inside(closed, "item")["text"] == heard
    assert inside(closed, "item")["status"] == "interrupted"
    assert watcher.completed(turn)["status"] == "interrupted"
    gate.set()
    again = items_in(client.call("thread/read", threadId=thread))[-1]
    assert again == inside(closed, "item")


def test_resume_without_subscribing_changes_no_subscription(
    connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    thread = client.thread()
    looker = connect()
    looker.call("thread/resume", threadId=thread, subscribe=False)
    client.call("thread/resume", threadId=thread, subscribe=False)
    turn = client.turn(thread, "go")
    looker.call("thread/list", limit=0)

    assert turn["status"] == "completed"
    assert looker.heard == []


def test_resuming_twice_tells_nothing_twice(
    connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.play(gated(gate, script.says("Hel", "lo")))
    thread = client.thread()
    watcher = connect()
    for _ in range(3):
        watcher.call("thread/resume", threadId=thread)
    turn = client.begin(thread)
    watcher.call("thread/resume", threadId=thread)
    gate.set()
    watcher.completed(turn)
    client.completed(turn)

    sequences = [inside(m, "params").get("sequence") for m in watcher.heard]
    assert watcher.of_turn(turn) == client.of_turn(turn)
    assert sequences == sorted(cast("list[int]", sequences))


def test_items_are_the_same_live_by_read_and_after_a_restart(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    model.play(script.says("Do", "ne."))
    client = TurnClient(daemon.socket)
    thread = client.thread(title="kept")
    client.turn(thread, "one")
    live = [inside(m, "params")["item"] for m in client.heard if m["method"] == "item/completed"]
    read = client.items(thread)
    client.close()
    daemon.stop()
    daemon.start()
    client = TurnClient(daemon.socket)
    restarted = client.items(thread)
    title = inside(client.call("thread/read", threadId=thread), "thread")["title"]
    client.close()

    assert live == read == restarted
    assert title == "kept"


def test_a_turn_that_a_crash_cut_off_is_interrupted(
    daemon: RunningDaemon, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.silent_after(script.delta(content="so far")))
    thread = client.thread()
    turn = client.begin(thread)
    client.wait("item/agentMessage/delta")
    row = client.call("thread/read", threadId=thread)
    daemon.kill(agent_of(daemon, thread))
    ended = client.completed(turn)

    assert inside(row, "thread")["status"] == "running"
    assert ended["status"] == "interrupted"
    assert client.items(thread)[-1]["status"] == "interrupted"
    model.play(script.says("Again"))
    assert eventually(lambda: client.turn(thread, "once more"))["status"] == "completed"  # type: ignore[index]


def test_a_thread_is_followed_over_a_restart_of_the_store(
    daemon: RunningDaemon, client: TurnClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.play(gated(gate, script.says("Hel", "lo")))
    thread = client.thread()
    turn = client.begin(thread)
    client.wait("turn/started")
    daemon.kill("store")
    gate.set()

    assert client.completed(turn)["status"] == "completed"
    deltas = [inside(m, "params")["delta"] for m in client.heard if "delta" in str(m["method"])]
    assert "".join(map(str, deltas)) == "Hello"


def test_an_ephemeral_thread_is_gone_when_it_is_archived(
    connect: Connect, client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    thread = client.thread(ephemeral=True)
    watcher = connect()
    watcher.call("thread/resume", threadId=thread)
    client.turn(thread, "go")
    row = next(
        one
        for one in cast("list[Json]", client.call("thread/list")["threads"])
        if one["id"] == thread
    )
    client.call("thread/archive", threadId=thread)
    for one in (client, watcher):
        one.wait("thread/archived")
        assert one.wait("thread/closed")["threadId"] == thread

    assert row["ephemeral"] is True
    assert client.refusal("thread/read", threadId=thread).code == -32020
    assert thread not in listed(client, includeArchived=True)


def test_an_ephemeral_thread_does_not_outlive_the_daemon(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    model.play(script.says("Hi"))
    client = TurnClient(daemon.socket)
    thread = client.thread(ephemeral=True)
    client.turn(thread, "go")
    client.close()
    daemon.stop()
    daemon.start()
    client = TurnClient(daemon.socket)
    refused = client.refusal("thread/read", threadId=thread)
    client.close()

    assert refused.code == -32020


def test_a_thread_has_a_model_that_a_provider_tells_of(
    client: TurnClient, model: ScriptedModel
) -> None:
    model.play(script.body(b'{"data":[{"id":"big"}]}'), script.says("ok"))
    before = client.call("thread/list", limit=0)["total"]
    refused = client.refusal("thread/start", model="none")
    assert (refused.code, refused.data["code"]) == (-32602, "unknownModel")
    assert client.call("thread/list", limit=0)["total"] == before
    thread = inside(client.call("thread/start", model="big"), "thread")
    turn = client.turn(str(thread["id"]), "go")

    assert thread["model"] == "big"
    assert turn["status"] == "completed"
    assert json.loads(model.asked[-1].body)["model"] == "big"


def test_a_client_comes_back_when_the_front_has_died(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.play(gated(gate, script.says("Hel", "lo")))
    client = TurnClient(daemon.socket)
    thread = client.thread()
    turn = client.begin(thread)
    client.wait("turn/started")
    daemon.kill("front")
    with pytest.raises(ConnectionError):
        client.completed(turn)
    client.close()
    client = TurnClient(daemon.socket)
    page = client.call("thread/resume", threadId=thread)
    assert inside(page, "activeTurn")["id"] == turn
    gate.set()
    ended = client.completed(turn)
    assert final_state(page, client.heard) == client.items(thread)
    client.close()

    assert ended["status"] == "completed"
