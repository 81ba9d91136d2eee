from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Refusal
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    create_agent,
    event_is,
    eventually,
    next_note,
    send_script,
)
from tests.support.scenarios import brief, refused

if TYPE_CHECKING:
    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow


def test_scenario_15_attaching_twice_with_one_name_is_one_attachment(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    first = attach(client, session, "mine")
    seen = len(carriers(client.notes, session))
    again = attach(client, session, "mine")
    for name in ("attachmentId", "attachedAt", "clientId", "activeAttachmentIds"):
        assert again[name] == first[name]
    second = attach(client, session, "mine too")
    assert second["attachmentId"] != first["attachmentId"]
    assert second["activeAttachmentIds"] == [first["attachmentId"], second["attachmentId"]]
    anonymous = client.call("session.attach", sessionId=session)
    assert len(anonymous["activeAttachmentIds"]) == 3  # type: ignore[arg-type]
    # What had been delivered is not delivered again, and one connection gets each event once.
    assert len(carriers(client.notes, session)) == seen
    client.answer(send_script(client, session, {"say": "once"}))
    sequences = [note["sequence"] for note in carriers(client.notes, session)]
    assert sequences == list(range(1, len(sequences) + 1))


def test_scenario_15_a_name_belongs_to_one_connection_until_it_closes(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    agent_id, session = create_agent(client)
    attached = attach(client, session, "taken")
    text = "daemon client is already registered: taken"
    for method, params in {
        "session.attach": {"sessionId": session},
        "agent.attach": {"agentId": agent_id},
    }.items():
        error = refused(other, method, clientId="taken", **params)
        assert brief(error) == (-32602, "INVALID_ARGUMENT", text)
    # A refused attach leaves no attachment behind.
    assert attach(client, session, "taken")["activeAttachmentIds"] == [attached["attachmentId"]]
    # The name outlives a detach, but not its connection.
    client.call("session.detach", sessionId=session, clientId="taken")
    assert brief(refused(other, "session.attach", sessionId=session, clientId="taken"))[2] == text
    client.close()
    shared.clients.remove(client)

    def taken_over() -> bool:
        with contextlib.suppress(Refusal):
            return bool(attach(other, session, "taken"))
        return False

    eventually(taken_over)


def test_scenario_15_a_detach_by_attachment_wins_over_the_name(shared: RunningDaemon) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    first, second = (attach(client, session, name)["attachmentId"] for name in ("a", "b"))
    # Any connection may detach: a new process must be able to evict its crashed predecessor.
    answer = other.call("session.detach", sessionId=session, attachmentId=first, clientId="b")
    assert answer == {
        "sessionId": session,
        "detached": True,
        "attachmentId": first,
        "remainingAttachmentIds": [second],
    }
    for nothing in ({"attachmentId": first}, {"clientId": "a"}, {"clientId": "nobody"}):
        answer = client.call("session.detach", sessionId=session, **nothing)
        assert answer == {
            "sessionId": session,
            "detached": False,
            "remainingAttachmentIds": [second],
        }
    answer = client.call("session.detach", sessionId=session, clientId="b")
    assert (answer["detached"], answer["attachmentId"]) == (True, second)
    assert answer["remainingAttachmentIds"] == []
    # Nothing of the session comes any more; its agent goes on.
    client.notes.clear()
    other.answer(send_script(other, session, {"say": "unheard"}))
    client.call("health.ping")
    assert carriers(client.notes, session) == []
    assert brief(refused(client, "session.detach", sessionId="none", clientId="a")) == (
        -32602,
        "SESSION_NOT_FOUND",
        "AgenC daemon session not found: none",
    )
    error = refused(client, "session.detach", sessionId=session)
    assert brief(error) == (
        -32602,
        "INVALID_ARGUMENT",
        "session.detach requires attachmentId or clientId",
    )


def test_scenario_15_of_two_terminates_one_counts_and_nothing_can_be_attached_after_it(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    agent_id, session = create_agent(client)
    second = str(client.call("session.create", agentId=agent_id)["sessionId"])
    attach(client, session, "c")
    first = client.call("session.terminate", sessionId=session, reason="done")
    assert (first["terminated"], first["status"], first["reason"]) == (True, "closed", "done")
    again = other.call("session.terminate", sessionId=session, reason="other")
    assert again == {**first, "terminated": False}
    next_note(client, event_is(session, "session_closed"))
    assert brief(refused(client, "session.attach", sessionId=session)) == (
        -32602,
        "SESSION_CLOSED",
        f"AgenC daemon session is closed: {session}",
    )
    answer = client.call("session.detach", sessionId=session, clientId="c")
    assert (answer["detached"], answer["remainingAttachmentIds"]) == (False, [])
    assert brief(refused(client, "message.send", sessionId=session, content="x")) == (
        -32602,
        "AGENT_NOT_FOUND",
        f"AgenC daemon session not found or closed: {session}",
    )
    assert client.call("session.cancelTurn", sessionId=session)["cancelled"] is False
    for method in ("session.attach", "session.terminate"):
        error = refused(client, method, sessionId="none")
        assert brief(error) == (
            -32602,
            "SESSION_NOT_FOUND",
            "AgenC daemon session not found: none",
        )
    # A session is left, so the agent lives; with the last one it ends.
    attached = client.call("agent.attach", agentId=agent_id)
    assert attached["sessionIds"] == [second]
    client.call("session.terminate", sessionId=second)
    eventually(lambda: agent_id not in str(client.call("agent.list")))
    found: list[Json] = client.call("session.list", agentId=agent_id)["sessions"]  # type: ignore[assignment]
    assert [(entry["sessionId"], entry["status"]) for entry in found] == [
        (session, "closed"),
        (second, "closed"),
    ]
    assert found[0]["closedAt"] == first["closedAt"]


KEYS = {"agent.list": ("agents", "agentId"), "session.list": ("sessions", "sessionId")}


def page(client: Client, method: str, **params: object) -> tuple[list[str], object]:
    """Return the ids of a page and the cursor of the next one."""
    members, key = KEYS[method]
    result = client.call(method, **params)
    found: list[Json] = result[members]  # type: ignore[assignment]
    return [str(entry[key]) for entry in found], result.get("nextCursor")


@pytest.mark.parametrize("method", KEYS)
def test_scenario_16_pages_neither_skip_nor_repeat_across_insertions_and_removals(
    shared: RunningDaemon, method: str
) -> None:
    client = shared.client()
    made = [create_agent(client) for _ in range(9)]
    ids = [agent if method == "agent.list" else session for agent, session in made]
    everything, last = page(client, method, limit=100)
    assert last is None
    assert [each for each in everything if each in ids] == ids
    seen, cursor = page(client, method, limit=len(everything) - 7)
    assert cursor is not None
    # One that has been shown goes, one that was to come goes, and new ones come.
    for agent in (made[1][0], made[5][0]):
        client.call("agent.stop", agentId=agent)
    new = [create_agent(client) for _ in range(2)]
    while cursor is not None:
        found, cursor = page(client, method, limit=2, cursor=cursor)
        assert 1 <= len(found) <= 2
        seen += found
    assert len(seen) == len(set(seen))
    gone = ids[5] if method == "agent.list" else ""
    added = [agent if method == "agent.list" else session for agent, session in new]
    assert [each for each in seen if each in {*ids, *added}] == [
        *(each for each in ids if each != gone),
        *added,
    ]
    for agent, _ in made + new:
        client.call("agent.stop", agentId=agent)


def test_scenario_16_bounds_filters_and_bad_cursors(shared: RunningDaemon) -> None:
    client = shared.client()
    agent_id, session = create_agent(client)
    second = str(client.call("session.create", agentId=agent_id)["sessionId"])
    found, cursor = page(client, "session.list", agentId=agent_id, limit=1)
    assert found == [session]
    assert page(client, "session.list", agentId=agent_id, limit=1, cursor=cursor) == (
        [second],
        None,
    )
    assert page(client, "session.list", agentId=" ", limit=1)[0]
    # A cursor holds its filter and its list; it needs no memory of the daemon.
    for params in ({}, {"agentId": "other"}):
        error = refused(client, "session.list", cursor=cursor, **params)
        assert brief(error) == (
            -32602,
            "INVALID_CURSOR",
            f"Invalid AgenC daemon session cursor: {str(cursor)[:64]}",
        )
    forged = base64.urlsafe_b64encode(json.dumps({"k": [1], "f": ""}).encode()).decode()
    for wrong in ("1", "nonsense", f"roost-session-list-v1:{forged}", "x" * 2000):
        assert brief(refused(client, "session.list", cursor=wrong))[1] == "INVALID_CURSOR"
    _, other = page(client, "agent.list", limit=1)
    if other is not None:
        assert brief(refused(client, "session.list", cursor=other))[1] == "INVALID_CURSOR"
    # Older clients page by the last agent's id.
    assert agent_id not in page(client, "agent.list", cursor=agent_id)[0]
    for method in KEYS:
        for limit in (0, -1, 1.5, "5", None):
            error = refused(client, method, limit=limit)
            text = f"{method} param 'limit' must be a positive integer"
            assert brief(error) == (-32602, "INVALID_ARGUMENT", text)
        assert page(client, method, limit=10**9)[0]
