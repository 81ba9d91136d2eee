from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model
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
from tests.support.scenarios import asked, brief, decide, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

MODEL = """[providers.local]
base_url = "{url}"
model = "m"
"""
HANG: Json = {"hang": True}


def shell(command: str) -> Json:
    return {"tool": "shell", "args": {"command": command}}


def say(client: Client, session: str, text: str) -> None:
    assert client.answer(send_script(client, session, {"say": text}))["outcome"] == "completed"


def texts(client: Client, session: str) -> list[tuple[str, str]]:
    """Return the transcript as (role, text)."""
    found: list[Json] = client.call("session.transcript", sessionId=session)["messages"]  # type: ignore[assignment]
    return [(str(message["role"]), str(message["text"])) for message in found]


def turn_count(client: Client, session: str) -> object:
    return client.call("session.snapshot", sessionId=session)["turnCount"]


def clears(client: Client, session: str) -> list[Json]:
    """Return the params of every notice of a clear that a client has got."""
    return [within(n, "params") for n in client.notes if event_is(session, "history_cleared")(n)]


@pytest.fixture(scope="module")
def model() -> Iterator[scripted_model.ScriptedModel]:
    with scripted_model.scripted_model_in_thread() as server:
        yield server


@pytest.fixture(scope="module")
def with_model(model: scripted_model.ScriptedModel) -> Iterator[RunningDaemon]:
    """A daemon whose agents ask the scripted model, and soon have no process."""
    home = Path(tempfile.mkdtemp(prefix="roost-"))
    daemon = RunningDaemon(home, "agents.idle_timeout=1.5")
    daemon.configure(MODEL.format(url=model.base_url))
    daemon.start()
    yield daemon
    daemon.close_clients()
    if daemon.guard is not None:
        daemon.stop()
    shutil.rmtree(home, ignore_errors=True)


def test_scenario_17_a_clear_during_a_turn_or_with_a_waiting_message_is_refused(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    running = send_script(client, session, HANG)
    next_note(client, event_is(session, "user_message"))
    waiting = send_script(client, session, {"say": "later"})
    next_note(client, event_is(session, "message_accepted"))
    for _ in range(2):
        error = refused(other, "session.clear", sessionId=session)
        assert brief(error)[:2] == (-32602, "TURN_IN_PROGRESS")
    client.call("session.cancelTurn", sessionId=session)
    client.answer(running)
    client.answer(waiting)
    assert not clears(client, session)
    assert client.call("session.clear", sessionId=session)["cleared"] is True


def test_scenario_17_a_clear_after_a_turn_is_told_before_its_answer_and_empties_the_transcript(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session, "one")
    attach(other, session, "two")
    say(client, session, "before")
    assert texts(client, session) == [("user", "go"), ("assistant", "before")]
    count = turn_count(client, session)
    number = client.send("session.clear", sessionId=session)
    told = None
    while number not in client.answers:
        message = client.read()
        if event_is(session, "history_cleared")(message) if "method" in message else False:
            told = message
        client.take(message)
    result = client.answer(number)
    assert told is not None
    params = within(told, "params")
    at = result["clearedAt"]
    assert result == {"sessionId": session, "cleared": True, "clearedAt": at}
    assert params["eventId"] == f"history-cleared-{session}-{at}"
    assert params["acceptedAt"] == at
    assert "sequence" not in params
    event = within(params, "event")
    assert (event["id"], event["acceptedAt"]) == (params["eventId"], at)
    assert list(within(event, "payload")) == ["timestamp"]
    assert isinstance(within(event, "payload")["timestamp"], int)
    assert within(next_note(other, event_is(session, "history_cleared")), "params") == params
    # Nothing is left of the conversation; what was done and used stays counted.
    assert texts(client, session) == []
    assert turn_count(client, session) == count
    say(client, session, "after")
    assert texts(other, session) == [("user", "go"), ("assistant", "after")]
    # An empty history can be cleared, and everyone hears of it again.
    client.call("session.clear", sessionId=session)
    client.call("session.clear", sessionId=session)
    assert len({str(found["eventId"]) for found in clears(client, session)}) == 3


def test_scenario_17_a_late_client_is_told_of_the_clear_where_it_stands_between_the_events(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    say(client, session, "before")
    client.call("session.clear", sessionId=session)
    say(client, session, "after")
    late = shared.client()
    attach(late, session)
    order: list[str] = []
    for note in late.notes:
        params = within(note, "params")
        if event_is(session, "history_cleared")(note):
            order.append("cleared")
        elif note["method"] == "event.message_chunk":
            order.append(str(params["delta"]))
    assert order == ["before", "cleared", "after"]
    assert texts(late, session) == [("user", "go"), ("assistant", "after")]


def test_scenario_17_unknown_and_closed_sessions_cannot_be_cleared(shared: RunningDaemon) -> None:
    client = shared.client()
    _, session = create_agent(client)
    client.call("session.terminate", sessionId=session)
    for wrong in ("no such", session):
        error = refused(client, "session.clear", sessionId=wrong)
        text = f"AgenC daemon session not found or closed: {wrong}"
        assert brief(error) == (-32602, "AGENT_NOT_FOUND", text)


def test_scenario_17_what_was_approved_for_the_session_is_asked_for_again(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, shell("true"), shell("echo a"))
    decide(client, session, scope="session")
    decide(client, session, scope="agent")
    client.answer(number)
    client.call("session.clear", sessionId=session)
    number = send_script(client, session, shell("echo a"), shell("true"))
    request = asked(client, session)
    assert within(request, "input")["command"] == "true"
    client.call("tool.approve", sessionId=session, requestId=request["requestId"])
    assert client.answer(number)["outcome"] == "completed"


@pytest.mark.parametrize("meanwhile", ["nothing", "hibernated", "killed", "daemon killed"])
def test_scenario_17_the_next_turn_begins_with_an_empty_conversation(
    with_model: RunningDaemon, model: scripted_model.ScriptedModel, meanwhile: str
) -> None:
    client = with_model.client()
    created = client.call(
        "agent.create",
        objective="talk",
        initialContent=[],
        provider="local",
        metadata={"sandbox": "dangerFullAccess"},
    )
    agent, session = str(created["agentId"]), str(created["sessionId"])
    model.play(scripted_model.says("I will remember"))
    client.call("message.send", sessionId=session, content="the word is mango")
    if meanwhile == "hibernated":
        eventually(lambda: not with_model.pid(agent))
    client.call("session.clear", sessionId=session)
    if meanwhile == "killed":
        pid = with_model.pid(agent)
        assert pid
        os.kill(pid, signal.SIGKILL)
    elif meanwhile == "daemon killed":
        os.kill(with_model.root_pid, signal.SIGKILL)
        with_model.wait()
        with_model.start()
        client = with_model.client()
    model.play(scripted_model.says("what word?"))
    client.call("message.send", sessionId=session, content="which word?")
    asked_of_model: list[Json] = json.loads(model.asked[-1].body)["messages"]
    assert [m["role"] for m in asked_of_model] == ["system", "user"]
    assert "mango" not in str(asked_of_model)
    assert texts(client, session) == [("user", "which word?"), ("assistant", "what word?")]


def test_scenario_18_the_transcript_of_a_terminated_session(shared: RunningDaemon) -> None:
    client = shared.client()
    agent, session = create_agent(client)
    say(client, session, "first")
    blocks = [{"type": "text", "text": "$ tr"}, {"type": "text", "text": "ue"}]
    attach(client, session)
    number = client.send(
        "message.send",
        sessionId=session,
        content=blocks,
        metadata={"displayUserMessage": None, "script": [shell("true"), {"say": "second"}]},
    )
    decide(client, session)
    client.answer(number)
    live = client.call("session.transcript", sessionId=session)
    client.call("session.terminate", sessionId=session)
    eventually(lambda: not shared.pid(agent))
    closed = client.call("session.transcript", sessionId=session)
    assert closed["messages"] == live["messages"]
    assert closed["epoch"] == live["epoch"]
    messages: list[Json] = closed["messages"]  # type: ignore[assignment]
    assert [(m["role"], m["text"]) for m in messages] == [
        ("user", "go"),
        ("assistant", "first"),
        ("user", "$ true"),
        ("assistant", "second"),
    ]
    sequences = [int(str(m["sequence"])) for m in messages]
    assert sequences == sorted(sequences)
    assert sequences[-1] <= int(str(live["asOfSequence"])) < int(str(closed["asOfSequence"]))
    assert all(m["messageId"] and m["committedAt"] for m in messages)
    assert len({m["messageId"] for m in messages}) == 4
    assert not shared.pid(agent), "a transcript wakes nobody"
    assert turn_count(client, session) == 2
    for method in ("session.transcript", "session.snapshot"):
        error = refused(client, method, sessionId="no such")
        assert brief(error)[:2] == (-32602, "AGENT_NOT_FOUND")


def test_scenario_18_a_running_turns_text_is_no_part_of_the_transcript(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(
        client, session, {"say": "a b c d", "chunks": 4, "interval_ms": 1}, {"say": "e"}, HANG
    )
    next_note(client, is_method("event.message_chunk", session))
    assert ("user", "go") in texts(client, session)
    assert turn_count(client, session) == 0
    client.call("session.cancelTurn", sessionId=session)
    assert client.answer(number)["outcome"] == "interrupted"
    assert turn_count(client, session) == 0


def test_a_snapshot_counts_turns_tokens_and_the_cache_per_session(
    with_model: RunningDaemon, model: scripted_model.ScriptedModel
) -> None:
    client = with_model.client()
    created = client.call("agent.create", objective="talk", initialContent=[], provider="local")
    session = str(created["sessionId"])
    empty = client.call("session.snapshot", sessionId=session)
    assert empty == {
        "sessionId": session,
        "turnCount": 0,
        "tokenUsage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0, "costUsd": 0.0},
        "cacheStats": {
            "requestCount": 0,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "cacheTotalInputTokens": 0,
            "hitRate": None,
        },
    }
    counts: Json = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 111,
        "prompt_tokens_details": {"cached_tokens": 80},
    }
    used: Json = {"choices": [], "usage": counts}
    said: list[Json | str] = [scripted_model.delta(content="hello"), scripted_model.finish(), used]
    said.append("[DONE]")
    model.play(scripted_model.events(said))
    client.call("message.send", sessionId=session, content="one")
    model.play(scripted_model.says("two ", "pieces"))
    client.call("message.send", sessionId=session, content="two")
    model.play(scripted_model.status(401))
    assert client.call("message.send", sessionId=session, content="x")["outcome"] == "failed"
    found = client.call("session.snapshot", sessionId=session)
    assert found["turnCount"] == 2
    assert found["tokenUsage"] == {
        "inputTokens": 107,
        "outputTokens": 7,
        "totalTokens": 120,
        "costUsd": 0.0,
    }
    assert found["cacheStats"] == {
        "requestCount": 2,
        "cacheReadInputTokens": 80,
        "cacheCreationInputTokens": 20,
        "cacheTotalInputTokens": 100,
        "hitRate": 0.8,
    }


def test_scenario_28_an_interrupt_ends_the_open_tool_then_the_turn_then_the_request(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, shell("sleep 60"))
    call_id = decide(client, session)
    next_note(client, event_is(session, "tool_progress"))
    client.notes.clear()
    result = client.call("session.cancelTurn", sessionId=session, reason="enough")
    assert result == {"sessionId": session, "cancelled": True, "reason": "enough"}
    order: list[str] = []
    while number not in client.answers:
        client.take(client.read())
    for note in client.notes:
        params = within(note, "params")
        if event_is(session, "tool_call_completed")(note):
            payload = within(params, "event", "payload")
            assert (payload["callId"], payload["isError"]) == (call_id, True)
            assert within(payload, "metadata")["cause"] == "user_interrupted"
            order.append("tool")
        elif note["method"] == "event.agent_status":
            assert (params["status"], params["runStatus"]) == ("idle", "completed")
            assert params["message"] == "enough"
            order.append("idle")
    assert order == ["tool", "idle"]
    answer = client.answer(number)
    assert answer["outcome"] == "interrupted"
    assert within(answer, "terminal")["code"] == 130
    # There is nothing left to interrupt, and that is no error.
    for target in (session, "no such"):
        again = client.call("session.cancelTurn", sessionId=target)
        assert again == {"sessionId": target, "cancelled": False, "reason": "interrupted"}


def resolved(client: Client, session: str) -> Json:
    return within(
        next_note(client, event_is(session, "permission_resolved")), "params", "event", "payload"
    )


def ended(client: Client, session: str) -> Json:
    return within(
        next_note(client, event_is(session, "tool_call_completed")), "params", "event", "payload"
    )


@pytest.mark.parametrize(
    ("verb", "decision", "failed"),
    [("approve", "approved", False), ("deny", "denied", True), ("cancel", "cancelled", True)],
)
def test_scenario_31_a_pending_request_is_decided_and_the_turn_goes_on(
    shared: RunningDaemon, verb: str, decision: str, failed: bool
) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, shell("echo done"), {"say": "went on"})
    request_id = asked(client, session)["requestId"]
    # Any client may decide, attached or not.
    result = other.call(f"tool.{verb}", sessionId=session, requestId=request_id)
    assert result == {"requestId": request_id, "decision": decision}
    payload = resolved(client, session)
    assert (payload["requestId"], payload["decision"]) == (request_id, decision)
    call = ended(client, session)
    assert (call["callId"], call["isError"]) == (request_id, failed)
    if verb == "cancel":
        assert within(call, "metadata")["cause"] == "user_interrupted"
    assert client.answer(number)["outcome"] == "completed"
    assert ("assistant", "went on") in texts(client, session)
    for again in ("approve", "deny", "cancel"):
        error = refused(other, f"tool.{again}", sessionId=session, requestId=request_id)
        text = f"AgenC daemon tool request is not pending: {request_id}"
        assert brief(error) == (-32602, "INVALID_ARGUMENT", text)


@pytest.mark.parametrize(
    "verbs", [("approve", "deny"), ("cancel", "approve"), ("cancel", "cancel")]
)
def test_scenario_31_of_two_clients_deciding_at_once_one_wins(
    shared: RunningDaemon, verbs: tuple[str, str]
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, shell("true"))
    request_id = str(asked(client, session)["requestId"])
    both = [shared.client(), shared.client()]
    numbers = [
        one.send(f"tool.{verb}", sessionId=session, requestId=request_id)
        for one, verb in zip(both, verbs, strict=True)
    ]
    outcomes: list[Json] = []
    for one, sent in zip(both, numbers, strict=True):
        while sent not in one.answers:
            one.take(one.read())
        outcomes.append(one.answers.pop(sent))
    won = [within(outcome, "result") for outcome in outcomes if "result" in outcome]
    lost = [within(outcome, "error") for outcome in outcomes if "error" in outcome]
    assert len(won) == len(lost) == 1
    assert brief(lost[0])[1] == "INVALID_ARGUMENT"
    assert resolved(client, session)["decision"] == won[0]["decision"]
    assert client.answer(number)["outcome"] == "completed"


def test_scenario_31_a_decision_about_an_unknown_request_or_session_is_refused(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    for verb in ("approve", "deny", "cancel"):
        error = refused(client, f"tool.{verb}", sessionId=session, requestId="no such")
        text = "AgenC daemon tool request is not pending: no such"
        assert brief(error) == (-32602, "INVALID_ARGUMENT", text)
        error = refused(client, f"tool.{verb}", sessionId="no such", requestId="x")
        assert brief(error)[:2] == (-32602, "AGENT_NOT_FOUND")


def test_scenario_31_a_cancelled_tool_that_runs_ends_alone_and_the_turn_goes_on(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, shell("sleep 60"), shell("echo b"), {"say": "went on"})
    first = decide(client, session)
    next_note(client, event_is(session, "tool_progress"))
    result = other.call("tool.cancel", sessionId=session, requestId=first, reason="too slow")
    assert result == {"requestId": first, "decision": "cancelled"}
    call = ended(client, session)
    assert (call["callId"], call["isError"]) == (first, True)
    assert within(call, "metadata")["cause"] == "user_interrupted"
    decide(client, session)
    assert ended(client, session)["isError"] is False
    assert client.answer(number)["outcome"] == "completed"
    assert ("assistant", "went on") in texts(client, session)
    assert not any(status_is(session, "error")(note) for note in client.notes)


def test_scenario_31_a_cancel_that_nobody_hears_counts_and_the_turn_goes_on(
    daemon: RunningDaemon,
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    send_script(client, session, shell("true"), {"say": "went on"}, clientMessageId="m")
    request_id = asked(client, session)["requestId"]
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.start()
    # The agent has no process: the turn waits for nothing but a decision.
    client, other = daemon.client(), daemon.client()
    assert client.call("tool.cancel", sessionId=session, requestId=request_id)["decision"]
    error = refused(other, "tool.cancel", sessionId=session, requestId=request_id)
    assert brief(error)[1] == "INVALID_ARGUMENT"
    answer = client.answer(
        send_script(client, session, shell("true"), {"say": "went on"}, clientMessageId="m")
    )
    assert (answer["outcome"], answer["disposition"]) == ("completed", "duplicate")
    assert texts(client, session) == [("user", "go"), ("assistant", "went on")]
