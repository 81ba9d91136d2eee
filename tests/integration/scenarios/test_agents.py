from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    create_agent,
    event_is,
    eventually,
    is_method,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.scenarios import brief, refused

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow


def listed(client: Client) -> list[Json]:
    found: list[Json] = client.call("agent.list")["agents"]  # type: ignore[assignment]
    return found


def agent_ids(client: Client) -> list[object]:
    return [agent["agentId"] for agent in listed(client)]


@pytest.mark.parametrize("method", ["agent.create", "session.create"])
def test_scenario_11_a_bad_folder_is_refused_in_four_ways(
    shared: RunningDaemon, tmp_path: Path, method: str
) -> None:
    client = shared.client()
    (tmp_path / "file").write_text("")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    # Nothing is closed to root but what cannot be a path.
    unreadable = str(closed) if os.getuid() else "/a\0b"
    cases = {
        "relative/folder": 'must be an absolute path (got "relative/folder")',
        f"{tmp_path}/missing": f"is not an existing directory: {tmp_path}/missing",
        f"{tmp_path}/file": f"is not an existing directory: {tmp_path}/file",
        unreadable: f"is not accessible: {unreadable}",
    }
    before = agent_ids(client)
    params: Json = {"objective": "x"} if method == "agent.create" else {}
    for cwd, text in cases.items():
        error = refused(client, method, cwd=cwd, **params)
        assert brief(error) == (-32602, "INVALID_ARGUMENT", f"{method} cwd {text}")
        assert within(error, "data")["path"] == "/cwd"
    assert agent_ids(client) == before
    closed.chmod(0o700)


def test_scenario_11_a_good_folder_is_normalised_and_an_absent_one_is_the_agents_own(
    shared: RunningDaemon, tmp_path: Path
) -> None:
    client = shared.client()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for given, kept in {
        f"{tmp_path}/./real/../real/": f"{tmp_path}/real",
        f"{tmp_path}/link": f"{tmp_path}/link",
    }.items():
        agent = client.call("agent.create", objective="x", initialContent=[], cwd=given)
        assert agent["cwd"] == kept
        client.call("agent.stop", agentId=agent["agentId"])
    agent = client.call("agent.create", objective="x", initialContent=[])
    assert str(agent["cwd"]).startswith(f"{shared.home}/workspaces/")
    client.call("agent.stop", agentId=agent["agentId"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "agent.start requires a non-empty objective"),
        ({"objective": "  "}, "agent.start requires a non-empty objective"),
        ({"instructions": " "}, "agent.start requires a non-empty objective"),
        ({"objective": 5}, "agent.create param 'objective' must be a string"),
        (
            {"objective": "x", "unattendedAllow": "Edit"},
            "agent.create param 'unattendedAllow' must be an array of strings",
        ),
        ({"objective": "x", "metadata": []}, "agent.create param 'metadata' must be an object"),
        ({"objective": "x", "extra": 1}, "agent.create does not accept param 'extra'"),
        ({"objective": "x", "cwd": None}, "agent.create param 'cwd' must be a string"),
    ],
)
def test_scenario_11_what_else_cannot_be_created_says_why(
    shared: RunningDaemon, params: Json, message: str
) -> None:
    error = refused(shared.client(), "agent.create", **params)
    assert brief(error) == (-32602, "INVALID_ARGUMENT", message)


def test_scenario_12_an_agent_from_its_creation_to_its_logs(shared: RunningDaemon) -> None:
    client = shared.client()
    agent = client.call(
        "agent.create",
        objective="  find it  ",
        metadata={"ticket": "WEB-12", "sandbox": "dangerFullAccess"},
        unattendedAllow=[" FileRead ", "FileRead"],
        envOverrides={"SECRET": "never shown"},
    )
    agent_id, session = str(agent["agentId"]), str(agent["sessionId"])
    assert agent["objective"] == "find it"
    assert agent["status"] == "running"
    assert agent["activeSessionIds"] == [session]
    metadata = within(agent, "metadata")
    assert metadata["ticket"] == "WEB-12"
    assert (metadata["unattendedAllow"], metadata["unattendedDeny"]) == (["FileRead"], [])
    assert "never shown" not in str(agent)
    (found,) = [each for each in listed(client) if each["agentId"] == agent_id]
    assert found["createdAt"] == agent["createdAt"]
    attached = client.call("agent.attach", agentId=agent_id, clientId="c12")
    assert attached["sessionIds"] == [session]
    assert attached["runtimeSessionId"] == agent_id
    assert attached["sessions"][0]["sessionId"] == session  # type: ignore[index]
    again = client.call("agent.attach", agentId=agent_id, clientId="c12")
    assert again["attachmentId"] == attached["attachmentId"]
    next_note(client, lambda note: "turnId" in str(note) and status_is(session, "idle")(note))
    # What has been said is there; the agent stops; its logs stay, and it leaves the list.
    assert client.call("agent.stop", agentId=agent_id, reason="enough")["stopped"] is True
    stopped = within(next_note(client, status_is(session, "stopped")), "params")
    assert stopped["runStatus"] == "stopped"
    next_note(client, event_is(session, "session_closed"))
    logs = client.call("agent.logs", agentId=agent_id)
    assert "find it" in str(logs["transcript"])
    assert str(logs["transcript"]).startswith(f"agent_id\t{agent_id}\nsession_id\t{session}\n")
    assert logs["sessions"][0]["itemCount"] == 2  # type: ignore[index]
    assert agent_id not in agent_ids(client)
    assert brief(refused(client, "agent.attach", agentId=agent_id)) == (
        -32602,
        "AGENT_NOT_FOUND",
        f"AgenC daemon agent has no active session: {agent_id}",
    )
    assert brief(refused(client, "message.send", sessionId=session, content="x"))[:2] == (
        -32602,
        "AGENT_NOT_FOUND",
    )
    for method in ("agent.attach", "agent.stop", "agent.logs"):
        error = refused(client, method, agentId="nobody")
        assert brief(error) == (
            -32602,
            "AGENT_NOT_FOUND",
            "AgenC daemon agent not found: nobody",
        )
        assert brief(refused(client, method))[2] == f"{method} requires agentId"
        assert brief(refused(client, method, agentId="  "))[2] == f"{method} requires agentId"


def test_scenario_13_of_two_stops_one_counts(shared: RunningDaemon) -> None:
    one, two = shared.client(), shared.client()
    agent_id, session = create_agent(one)
    attach(two, session, "two")
    number = send_script(two, session, {"hang": True})
    next_note(two, event_is(session, "user_message"))
    stops = [client.send("agent.stop", agentId=agent_id) for client in (one, two)]
    answers = [client.answer(stop) for client, stop in zip((one, two), stops, strict=True)]
    assert sorted(bool(answer["stopped"]) for answer in answers) == [False, True]
    # The turn that ran has ended, once, and its sender is told.
    answer = two.answer(number)
    assert answer["outcome"] == "interrupted"
    assert within(answer, "terminal")["code"] == 130
    next_note(two, status_is(session, "stopped"))
    assert one.call("agent.stop", agentId=agent_id)["stopped"] is False
    ended = [n for n in two.notes if status_is(session, "stopped")(n)]
    assert len(ended) == 1
    eventually(lambda: not shared.pid(agent_id))


def test_scenario_13_a_cancelled_run_is_told_with_its_lists_once(shared: RunningDaemon) -> None:
    one, two = shared.client(), shared.client()
    agent_id, session = create_agent(one)
    attach(one, session, "one")
    send_script(one, session, {"say": "x", "chunks": 1}, {"hang": True})
    next_note(one, is_method("event.message_chunk", session))
    result = one.call("run.cancel", runId=agent_id)
    assert result == {
        "runId": agent_id,
        "alreadyTerminal": False,
        "cancelledRunIds": [agent_id],
        "closedEdgeChildIds": [],
        "interruptedLiveAgentIds": [agent_id],
        "voidedHolds": 0,
    }
    again = two.call("run.cancel", runId=agent_id)
    assert again["alreadyTerminal"] is True
    assert again["cancelledRunIds"] == again["interruptedLiveAgentIds"] == []
    assert two.call("agent.stop", agentId=agent_id)["stopped"] is False
    assert brief(refused(two, "run.cancel", runId="none")) == (
        -32602,
        "RUN_NOT_FOUND",
        "run.cancel: no agent run found for id: none",
    )
