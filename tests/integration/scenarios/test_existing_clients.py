"""What clients that exist expect of the daemon door beyond its schema, over the real daemon."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    create_agent,
    event_is,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.scenarios import asked, brief, refused, silent

if TYPE_CHECKING:
    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

MISLEADING = {"agent_message", "error", "turn_complete"}
TRUE: Json = {"tool": "shell", "args": {"command": "true"}}


def statuses(client: Client, session: str) -> list[str]:
    """Return the statuses that a client has been told, those with a turn marked."""
    found: list[str] = []
    for note in client.notes:
        params = within(note, "params")
        if note["method"] == "event.agent_status" and params["sessionId"] == session:
            found.append(f"{params['status']}{' of a turn' if 'turnId' in params else ''}")
    return found


def test_an_empty_initial_content_means_no_first_turn(shared: RunningDaemon) -> None:
    client = shared.client()
    created = client.call("agent.create", objective="later", initialContent=[])
    session = str(created["sessionId"])
    attach(client, session)
    assert statuses(client, session) == ["idle"]
    assert not [n for n in client.notes if event_is(session, "user_message")(n)]
    error = refused(client, "agent.create", objective="x", initialContent=["x"])
    assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")
    error = refused(client, "agent.create", objective="x", unheardOf=[])
    assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")


def test_a_permission_mode_is_accepted_or_refused_by_its_name(shared: RunningDaemon) -> None:
    client = shared.client()
    client.call("agent.create", objective="x", initialContent=[], permissionMode="default")
    for mode in ("plan", "acceptEdits", "bypassPermissions", "no such"):
        error = refused(client, "agent.create", objective="x", permissionMode=mode)
        assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")
        assert mode in str(error["message"])


def test_a_blank_objective_is_not_replaced_by_the_instructions(shared: RunningDaemon) -> None:
    client = shared.client()
    for blank in ("", "  "):
        error = refused(client, "agent.create", objective=blank, instructions="do it")
        assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")


def test_no_event_has_a_type_that_ends_a_turn_or_doubles_its_text(shared: RunningDaemon) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, {"say": "one"}, TRUE, {"say": "two"})
    request = asked(client, session)
    client.call("tool.deny", sessionId=session, requestId=request["requestId"])
    client.answer(number)
    client.answer(send_script(client, session, {"say": "half"}, {"fail": "no"}))
    client.call("session.clear", sessionId=session)
    client.call("session.terminate", sessionId=session)
    next_note(client, event_is(session, "session_closed"))
    notes = [within(n, "params") for n in client.notes if n["method"] == "event.session_event"]
    types = {str(within(params, "event")["type"]) for params in notes}
    assert {"agent.message.completed", "user_message", "history_cleared"} <= types
    assert not types & MISLEADING
    chunks = [str(p["delta"]) for p in carriers(client.notes, session) if "delta" in p]
    assert "".join(chunks) == "onetwohalf"


def test_an_attach_never_says_idle_while_a_message_is_accepted_and_not_begun(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    sent = send_script(client, session, {"say": "done"})
    attached = client.send("session.attach", sessionId=session, clientId="early")
    client.answer(attached)
    # What was told came before the answer: the turn is at work, or its message waits for it.
    present = [within(n, "params") for n in client.notes if n["method"] == "event.agent_status"]
    last = present[-1]
    if last["status"] == "idle":
        assert "turnId" in last or client.answer(sent)["outcome"] == "completed"
    else:
        assert last["status"] == "running"
    if sent not in client.answers:
        client.answer(sent)


def test_the_status_comes_before_the_answer_to_an_attach(shared: RunningDaemon) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    assert statuses(client, session) == ["idle"]
    number = send_script(client, session, {"hang": True})
    next_note(client, event_is(session, "user_message"))
    attach(other, session, "other")
    assert statuses(other, session)[-1] == "running of a turn"
    client.call("session.cancelTurn", sessionId=session)
    client.answer(number)


@pytest.mark.parametrize("step", [{"say": "x"}, {"fail": "no"}, {"crash": True}])
def test_a_turn_has_one_terminal_status_and_the_next_attach_says_idle(
    shared: RunningDaemon, step: Json
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    client.notes.clear()
    answer = client.answer(send_script(client, session, step))
    expected = "idle" if answer["outcome"] == "completed" else "error"
    # What else would come had come by the time of these answers.
    for _ in range(3):
        client.call("session.snapshot", sessionId=session)
    assert statuses(client, session) == ["running of a turn", f"{expected} of a turn"]
    for name in ("same stream", "new stream"):
        other = shared.client()
        attach(other, session, name)
        assert statuses(other, session)[-1] == "idle"
        client.call("session.detach", sessionId=session, clientId="test")
        other.close()


def test_the_message_is_told_before_its_turn_runs_and_the_session_is_free_when_idle_is_told(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    client.notes.clear()
    number = send_script(client, session, {"say": "x"}, clientMessageId="m")
    message = next_note(client, event_is(session, "user_message"))
    running = next_note(client, status_is(session, "running"))
    assert client.notes.index(message) < client.notes.index(running)
    assert within(message, "params", "event", "payload")["messageId"] == "m"
    assert within(running, "params")["turnId"]
    next_note(client, status_is(session, "idle"))
    # Another connection, which has seen none of it, finds no turn open.
    assert other.call("session.clear", sessionId=session)["cleared"] is True
    assert client.answer(number)["turnId"] == within(running, "params")["turnId"]


@pytest.mark.parametrize(
    ("step", "code", "state"),
    [({"say": "x"}, 0, "completed"), ({"fail": "no"}, 1, "incomplete"), (None, 130, "incomplete")],
)
def test_a_repeated_message_says_how_the_first_ended(
    shared: RunningDaemon, step: Json | None, code: int, state: str
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, step or {"hang": True}, clientMessageId="m")
    if step is None:
        next_note(client, event_is(session, "user_message"))
        client.call("session.cancelTurn", sessionId=session)
    first = client.answer(number)
    assert first["disposition"] == "started"
    assert "duplicateState" not in first
    again = client.answer(send_script(client, session, {"say": "never"}, clientMessageId="m"))
    assert (again["disposition"], again["duplicateState"]) == ("duplicate", state)
    for answer in (first, again):
        terminal = within(answer, "terminal")
        assert terminal["code"] == code
        assert isinstance(terminal["message"], str)


def test_a_refused_version_leaves_the_connection_usable_and_silent_ones_are_no_matter(
    shared: RunningDaemon,
) -> None:
    for _ in range(5):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(shared.socket)
    client = silent(shared)
    error = refused(client, "initialize", protocolVersion="2.0.0")
    assert within(error, "data")["serverVersion"]
    client.initialize(clientName="old")
    assert client.call("health.ping")


def test_the_end_of_an_agent_ends_the_prompts_of_other_clients(shared: RunningDaemon) -> None:
    client, other, third = shared.client(), shared.client(), shared.client()
    agent, session = create_agent(client)
    attach(other, session, "other")
    running = send_script(other, session, {"hang": True})
    next_note(other, event_is(session, "user_message"))
    waiting = send_script(third, session, {"say": "never"}, clientMessageId="waiting")
    is_accepted = event_is(session, "message_accepted")
    next_note(other, lambda n: is_accepted(n) and "waiting" in str(n))
    client.call("agent.stop", agentId=agent, reason="enough")
    for prompt, number in ((other, running), (third, waiting)):
        answer = prompt.answer(number)
        assert answer["outcome"] == "interrupted"
        assert within(answer, "terminal")["code"] == 130


def test_two_names_on_one_connection_get_each_event_once(shared: RunningDaemon) -> None:
    client = shared.client()
    _, session = create_agent(client)
    first = attach(client, session, "one")
    second = attach(client, session, "two")
    assert first["attachmentId"] != second["attachmentId"]
    client.answer(send_script(client, session, {"say": "a b", "chunks": 2}))
    client.call("session.clear", sessionId=session)
    sequences = [p["sequence"] for p in carriers(client.notes, session)]
    assert sequences == list(range(1, len(sequences) + 1))
    assert len([n for n in client.notes if event_is(session, "history_cleared")(n)]) == 1
    # As long as one name is left, the connection goes on getting them.
    client.call("session.detach", sessionId=session, clientId="one")
    client.answer(send_script(client, session, {"say": "c"}))
    more = [p["sequence"] for p in carriers(client.notes, session)]
    assert more == list(range(1, len(more) + 1))
    assert len(more) > len(sequences)
