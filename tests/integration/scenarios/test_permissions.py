from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    check_log,
    create_agent,
    daemon_in,
    event_is,
    is_method,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.scenarios import asked, brief, decide, refused

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

TRUE: Json = {"tool": "shell", "args": {"command": "true"}}


def shell(command: str) -> Json:
    return {"tool": "shell", "args": {"command": command}}


def write(path: object) -> Json:
    return {"tool": "write_file", "args": {"path": str(path), "content": "x"}}


def edit(path: object) -> Json:
    return {"tool": "edit_file", "args": {"path": str(path), "old_text": "x", "new_text": "y"}}


def play(client: Client, session: str, *steps: Json) -> None:
    """Run a turn that asks for nothing; one that asks would never end."""
    number = send_script(client, session, *steps)
    while number not in client.answers:
        message = client.read()
        client.take(message)
        assert message.get("method") != "event.permission_request", message
    assert client.answer(number)["outcome"] == "completed"


def play_and_decide(client: Client, session: str, *steps: Json, **params: object) -> None:
    """Run a turn that asks once, and answer."""
    number = send_script(client, session, *steps)
    decide(client, session, **params)  # type: ignore[arg-type]
    assert client.answer(number)["outcome"] == "completed"


def results(client: Client, session: str) -> list[tuple[object, str]]:
    """Return whether each call failed, and what it gave."""
    found = [n for n in client.notes if event_is(session, "tool_call_completed")(n)]
    payloads = [within(note, "params", "event", "payload") for note in found]
    return [(payload["isError"], str(payload["result"])) for payload in payloads]


def rules(client: Client, **params: object) -> list[Json]:
    found: list[Json] = client.call("permission.list", **params)["permissions"]  # type: ignore[assignment]
    return found


def test_scenario_32_the_scope_session_covers_the_same_operation_in_its_session_only(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    agent, session = create_agent(client)
    other = str(client.call("session.create", agentId=agent)["sessionId"])
    attach(client, session)
    attach(client, other)
    play_and_decide(client, session, shell("echo same"), scope="session")
    # The same operation, however it is written, is not asked for again.
    play(client, session, shell("echo same"), shell("bash -lc 'echo same'"), shell(" echo same "))
    assert [failed for failed, _ in results(client, session)] == [False] * 4
    # Another command is, and so is the same one in another session.
    play_and_decide(client, session, shell("echo other"))
    play_and_decide(client, other, shell("echo same"))
    # `once` covers nothing but its call.
    play_and_decide(client, session, shell("echo other"))


def test_scenario_32_the_scope_agent_covers_all_sessions_and_a_restart(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    client = daemon.client()
    agent, session = create_agent(client)
    attach(client, session)
    play_and_decide(client, session, write(tmp_path / "a"), scope="agent")
    play_and_decide(client, session, shell("echo s"), scope="session")
    # One file does not cover another; its way of being written does not matter.
    play(client, session, write(tmp_path / "b" / ".." / "a"))
    play_and_decide(client, session, write(tmp_path / "b"))
    other = str(client.call("session.create", agentId=agent)["sessionId"])
    attach(client, other)
    play(client, other, write(tmp_path / "a"))
    listed = rules(client, agentId=agent)
    approvals = [rule for rule in listed if str(rule["permissionId"]).startswith("approval:")]
    assert [(rule["scope"], rule["action"]) for rule in approvals] == [
        ("session", "allow"),
        ("agent", "allow"),
    ]
    assert f"({tmp_path}/a)" in str(approvals[1]["subject"])
    assert approvals[1]["permissionId"] == f"approval:agent:{approvals[1]['subject']}"
    assert all(str(rule["grantedAt"]).endswith("Z") for rule in approvals)
    assert [rule["permissionId"] for rule in rules(client, sessionId=other)] == [
        "mode:default",
        approvals[1]["permissionId"],
    ]
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()
    daemon.start()
    client = daemon.client()
    assert rules(client, agentId=agent) == listed
    for each in (session, other):
        attach(client, each)
        play(client, each, write(tmp_path / "a"))


def test_scenario_33_the_lists_of_an_unattended_agent(
    shared: RunningDaemon, tmp_path: Path
) -> None:
    client = shared.client()
    agent, session = create_agent(
        client,
        unattendedAllow=["bash", " FileWrite ", "  ", "edit"],
        unattendedDeny=["FileRead", "EDIT"],
    )
    attach(client, session)
    (tmp_path / "f").write_text("secret")
    assert [(rule["permissionId"], rule["action"]) for rule in rules(client, agentId=agent)] == [
        ("mode:unattended", "unattended"),
        ("unattended:allow:system.bash", "unattended-allow"),
        ("unattended:allow:Write", "unattended-allow"),
        ("unattended:allow:Edit", "unattended-allow"),
        ("unattended:deny:FileRead", "unattended-deny"),
        ("unattended:deny:Edit", "unattended-deny"),
    ]
    # Allowed by an alias: nobody is asked. Denied: refused at once. Denied and allowed: denied.
    path = str(tmp_path / "f")
    play(client, session, shell("echo ran"), {"tool": "exec_command", "args": TRUE["args"]})
    play(client, session, write(tmp_path / "g"))
    play(client, session, {"tool": "read_file", "args": {"path": path}})
    play(client, session, edit(path))
    found = results(client, session)
    assert [failed for failed, _ in found] == [False, False, False, True, True]
    assert "secret" not in str(client.notes)
    assert (tmp_path / "f").read_text() == "secret"
    assert (tmp_path / "g").exists()
    # A denied tool is not approved by an earlier approval either: nothing is asked.
    assert [n for n in client.notes if is_method("event.permission_request", session)(n)] == []


def test_scenario_33_a_tool_on_no_list_is_asked_for_and_lists_may_end_in_a_star(
    shared: RunningDaemon, tmp_path: Path
) -> None:
    client = shared.client()
    _, session = create_agent(client, unattendedAllow=["Wri*"], unattendedDeny=["system.*"])
    attach(client, session)
    play(client, session, write(tmp_path / "w"), TRUE)
    assert [failed for failed, _ in results(client, session)] == [False, True]
    number = send_script(
        client,
        session,
        edit(tmp_path / "w"),
    )
    decide(client, session, "deny", reason="not now")
    assert client.answer(number)["outcome"] == "completed"
    assert (tmp_path / "w").read_text() == "x"
    # A lone star allows everything but what is denied.
    _, session = create_agent(client, unattendedAllow=["*"], unattendedDeny=["powershell"])
    attach(client, session, "all")
    play(client, session, write(tmp_path / "w2"), TRUE)
    assert [failed for failed, _ in results(client, session)] == [False, True]
    # A denial wins in an agent without an allow list too.
    _, session = create_agent(client, unattendedDeny=["*"])
    attach(client, session, "none")
    play(client, session, TRUE, {"tool": "list_files", "args": {}})
    assert [failed for failed, _ in results(client, session)] == [True, True]


def audit(home: Path) -> list[Json]:
    text = (home / "audit" / "permission-audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_scenario_34_nobody_decides_in_time(home: Path) -> None:
    with daemon_in(home, "approvals.timeout=0.2") as daemon:
        client, other = daemon.client(), daemon.client()
        _, session = create_agent(client)
        attach(client, session, "one")
        attach(other, session, "two")
        number = send_script(client, session, TRUE, {"say": "on"})
        request_id = asked(client, session)["requestId"]
        assert client.answer(number)["outcome"] == "completed"
        for each in (client, other):
            resolved = within(next_note(each, event_is(session, "permission_resolved")), "params")
            payload = within(resolved, "event", "payload")
            assert (payload["requestId"], payload["decision"]) == (request_id, "denied")
            assert within(resolved, "metadata")["cause"] == "timeout"
        ((failed, said),) = results(client, session)
        assert failed is True
        assert "in time" in said
        error = refused(other, "tool.approve", sessionId=session, requestId=request_id)
        assert brief(error) == (
            -32602,
            "INVALID_ARGUMENT",
            f"AgenC daemon tool request is not pending: {request_id}",
        )
        (line,) = audit(home)
        assert (line["decision"], line["reasonCode"]) == ("timed_out", "no_decision_in_time")
        assert (line["source"], line["eventKind"]) == ("daemon", "daemon_decision")


def run_status(client: Client, session: str) -> object:
    """Return the state of a session as an attach has ended with it; older ones may be told again before it."""
    return within([n for n in client.notes if status_is(session, "running")(n)][-1], "params")[
        "runStatus"
    ]


def test_scenario_35_a_late_client_sees_what_waits(shared: RunningDaemon) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session, "first")
    number = client.send("message.send", sessionId=session, content="$ echo late")
    request = asked(client, session)
    ask = create_agent(client)[1]
    attach(client, ask, "first")
    question = send_script(client, ask, {"ask": [{"question": "Which?"}]})
    put = within(next_note(client, is_method("event.user_input_request", ask)), "params")
    late = shared.client()
    attach(late, session, "late")
    again = asked(late, session)
    assert within(again, "metadata")["redelivered"] is True
    for name in ("requestId", "eventId", "toolName", "input", "turnId", "permissions"):
        assert again[name] == request[name]
    assert run_status(late, session) == "blocked"
    attach(late, ask, "late")
    shown = within(next_note(late, is_method("event.user_input_request", ask)), "params")
    assert (shown["requestId"], shown["questions"]) == (put["requestId"], put["questions"])
    # It decides, and the first one is told.
    late.call("tool.approve", sessionId=session, requestId=again["requestId"])
    assert client.answer(number)["outcome"] == "completed"
    resolved = within(next_note(client, event_is(session, "permission_resolved")), "params")
    payload = within(resolved, "event", "payload")
    assert (payload["decision"], payload["clientId"]) == ("approved", "late")
    late.call(
        "elicitation.respond",
        sessionId=ask,
        requestId=put["requestId"],
        kind="request_user_input",
        response={"action": "cancel"},
    )
    client.answer(question)
    next_note(client, event_is(ask, "elicitation_resolved"))
    # What is decided is not shown to the next one.
    later = shared.client()
    attach(later, session, "later")
    later.call("health.ping")
    assert [n for n in later.notes if is_method("event.permission_request", session)(n)] == []


def test_scenario_35_an_approval_outlives_its_only_client_and_the_daemon(
    daemon: RunningDaemon,
) -> None:
    """Requested, the only client gone, the daemon killed and started: the next client sees and approves it."""
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session, "only")
    client.send("message.send", sessionId=session, content="$ echo alive", clientMessageId="m1")
    request_id = asked(client, session)["requestId"]
    daemon.close_clients()
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.start()
    client = daemon.client()
    attach(client, session, "next")
    request = asked(client, session)
    assert request["requestId"] == request_id
    assert run_status(client, session) == "blocked"
    client.call("tool.approve", sessionId=session, requestId=request_id)
    answer = client.call(
        "message.send", sessionId=session, content="$ echo alive", clientMessageId="m1"
    )
    assert (answer["outcome"], answer["disposition"]) == ("completed", "duplicate")
    ((failed, said),) = results(client, session)
    assert failed is False
    assert "alive" in said
    kinds = [kind for _, _, kind in check_log(daemon.home)[session]]
    assert kinds.count("tool.call.completed") == kinds.count("user.message") == 1
    assert kinds.count("tool.approval.requested") == 1


def test_scenario_36_each_decision_is_one_line_of_the_audit(daemon: RunningDaemon) -> None:
    client = daemon.client()
    agent, session = create_agent(client)
    attach(client, session, "judge")
    number = send_script(client, session, shell("echo 1"), shell("echo 2"), shell("echo 3"))
    once = decide(client, session)
    wide = decide(client, session, scope="agent")
    denied = decide(client, session, "deny", reason="r" * 2000)
    assert client.answer(number)["outcome"] == "completed"
    number = send_script(client, session, shell("echo c"))
    cancelled = decide(client, session, "cancel", reason="not this one")
    assert client.answer(number)["outcome"] == "completed"
    # A decision that was too late leaves no line; the end of a turn that waits does.
    assert refused(client, "tool.approve", sessionId=session, requestId=once)
    last = client.send("message.send", sessionId=session, content="$ echo 4")
    ended = asked(client, session)["requestId"]
    client.call("session.cancelTurn", sessionId=session)
    client.answer(last)
    lines = audit(daemon.home)
    common = {
        "subjectType": "tool_request",
        "sessionId": session,
        "agentId": agent,
        "toolName": "shell",
    }
    by_client = {"eventKind": "user_decision", "source": "daemon-rpc", "clientId": "judge"}
    by_daemon = {"eventKind": "daemon_decision", "source": "daemon"}
    assert all(str(line.pop("time")).endswith("Z") for line in lines)
    reason = lines[4].pop("reason")
    assert reason
    assert lines == [
        {**common, **by_client, "requestId": once, "decision": "approved", "scope": "once"}
        | {"reasonCode": "rpc_approved_once"},
        {**common, **by_client, "requestId": wide, "decision": "approved", "scope": "agent"}
        | {"reasonCode": "rpc_approved_for_scope"},
        {**common, **by_client, "requestId": denied, "decision": "denied"}
        | {"reasonCode": "rpc_denied", "reason": "r" * 512},
        {**common, **by_client, "requestId": cancelled, "decision": "cancelled"}
        | {"reasonCode": "rpc_cancelled", "reason": "not this one"},
        {**common, **by_daemon, "requestId": ended, "decision": "cancelled"}
        | {"reasonCode": "turn_ended"},
    ]
    folder = daemon.home / "audit"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "permission-audit.jsonl").stat().st_mode & 0o777 == 0o600
    # A file that cannot be written fails no decision.
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()
    (folder / "permission-audit.jsonl").unlink()
    (folder / "permission-audit.jsonl").mkdir()
    daemon.start()
    client = daemon.client()
    attach(client, session, "judge")
    client.notes.clear()
    number = send_script(client, session, shell("echo 5"))
    decide(client, session)
    assert client.answer(number)["outcome"] == "completed"
