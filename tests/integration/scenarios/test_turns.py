from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    event_is,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.scenarios import brief, refusal, refused

if TYPE_CHECKING:
    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow


def kinds(client: Client, session: str) -> list[str]:
    """Return what a client was told of a session: methods, with the type of session events and the status."""
    found: list[str] = []
    for note in client.notes:
        params = within(note, "params")
        if params["sessionId"] == session:
            kind = str(note["method"]).removeprefix("event.")
            if kind == "session_event":
                kind = str(within(params, "event")["type"])
            found.append(f"{kind} {params['status']}" if "status" in params else kind)
    return found


def test_scenario_26_a_message_is_seen_by_others_before_any_chunk(shared: RunningDaemon) -> None:
    sender, other = shared.client(), shared.client()
    _, session = create_agent(sender)
    attach(sender, session, "sender")
    attach(other, session, "other")
    for client in (sender, other):
        client.notes.clear()
    answer = sender.answer(
        send_script(sender, session, {"say": "a b", "chunks": 2}, clientMessageId="m26")
    )
    assert answer["messageId"] == "m26"
    next_note(other, status_is(session, "idle"))
    for client in (sender, other):
        found = kinds(client, session)
        assert found[:3] == ["message_accepted", "user_message", "agent_status running"]
        assert found.index("user_message") < found.index("message_chunk")
        assert found[-1] == "agent_status idle"
        message = within(
            next(n for n in client.notes if event_is(session, "user_message")(n)), "params"
        )
        assert within(message, "event")["messageId"] == "m26"
        payload = within(message, "event", "payload")
        assert (payload["message"], payload["displayText"]) == ("go", "go")
        chunk = carriers([n for n in client.notes if n["method"] == "event.message_chunk"], session)
        assert {(p["messageId"], p["streamId"]) for p in chunk} == {("m26", "m26")}
        turns = {
            params.get("turnId") or within(params, "metadata").get("turnId")
            for params in carriers(client.notes, session)
        }
        assert turns == {answer["turnId"]}
    # The sender has its answer behind the last event of the turn.
    assert kinds(sender, session)[-1] == "agent_status idle"


def test_scenario_26_a_hidden_message_and_a_replaced_text_are_not_seen(
    shared: RunningDaemon,
) -> None:
    sender, other = shared.client(), shared.client()
    _, session = create_agent(sender)
    attach(other, session, "other")
    for display in (None, "what others see"):
        sender.call(
            "message.stream",
            sessionId=session,
            content="the secret text",
            streamId="s26",
            metadata={"displayUserMessage": display, "script": [{"say": "ok"}]},
        )
    idle = status_is(session, "idle")
    for _ in range(2):
        next_note(other, lambda note: idle(note) and "turnId" in within(note, "params"))
    assert "the secret text" not in str(other.notes)
    assert "user_message_hidden" in kinds(other, session)
    shown = next(n for n in other.notes if event_is(session, "user_message")(n))
    assert "what others see" in str(shown)
    not_texts: list[object] = [5, True, ["x"]]
    for wrong in not_texts:
        error = refused(
            sender,
            "message.send",
            sessionId=session,
            content="x",
            metadata={"displayUserMessage": wrong},
        )
        text = "message.send metadata 'displayUserMessage' must be a string or null"
        assert brief(error) == (-32602, "INVALID_ARGUMENT", text)


def test_scenario_27_two_messages_wait_in_line_each_with_a_turn_and_an_answer(
    shared: RunningDaemon,
) -> None:
    one, two = shared.client(), shared.client()
    _, session = create_agent(one)
    attach(one, session, "one")
    hang = send_script(one, session, {"hang": True}, clientMessageId="first")
    next_note(one, event_is(session, "user_message"))
    numbers = [
        (client, client.send("message.send", sessionId=session, content=text, clientMessageId=text))
        for client, text in ((one, "$ true"), (two, "second"), (one, "third"))
    ]
    accepted = [
        within(next_note(one, event_is(session, "message_accepted")), "params", "event")
        for _ in range(4)
    ]
    assert {event["messageId"] for event in accepted} == {"first", "$ true", "second", "third"}
    one.call("session.cancelTurn", sessionId=session)
    assert one.answer(hang)["outcome"] == "interrupted"
    request = within(
        next_note(one, lambda note: note["method"] == "event.permission_request"), "params"
    )
    # While one turn waits for a person the others wait for it.
    assert "second" not in said_messages(one, session)
    one.call("tool.deny", sessionId=session, requestId=request["requestId"])
    answers = [client.answer(number) for client, number in numbers]
    assert [answer["outcome"] for answer in answers] == ["completed"] * 3
    assert len({answer["turnId"] for answer in answers}) == 3
    order = sorted(["second", "third"], key=said_messages(one, session).index)
    assert said_messages(one, session) == ["go", "$ true", *order]


def said_messages(client: Client, session: str) -> list[object]:
    found = [n for n in client.notes if event_is(session, "user_message")(n)]
    return [within(n, "params", "event", "payload")["message"] for n in found]


def test_scenario_29_the_same_client_message_id_twice_is_one_turn_also_across_a_restart(
    daemon: RunningDaemon,
) -> None:
    client, other = daemon.client(), daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    script: Json = {"say": "x" * 40, "chunks": 40, "interval_ms": 5}
    first = send_script(client, session, script, clientMessageId="m29")
    next_note(client, event_is(session, "user_message"))
    # While it is under way the second one waits for the same end.
    second = send_script(other, session, script, clientMessageId="m29")
    answer, again = client.answer(first), other.answer(second)
    assert answer["disposition"] == "started"
    assert again["disposition"] == "duplicate"
    for name in ("messageId", "acceptedAt", "turnId", "outcome", "terminal"):
        assert again[name] == answer[name]
    assert within(answer, "terminal")["code"] == 0
    error = refused(client, "message.send", sessionId=session, content="b", clientMessageId="m29")
    assert brief(error)[:2] == (-32602, "CLIENT_MESSAGE_ID_CONFLICT")
    # The id belongs to its session.
    _, elsewhere = create_agent(client)
    fresh = client.answer(send_script(client, elsewhere, {"say": "y"}, clientMessageId="m29"))
    assert fresh["disposition"] == "started"
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()
    daemon.start()
    client = daemon.client()
    once_more = client.answer(send_script(client, session, script, clientMessageId="m29"))
    assert once_more["duplicateState"] == "completed"
    assert {**once_more, "duplicateState": 0} == {**again, "duplicateState": 0}
    number = client.send("message.send", sessionId=session, content="b", clientMessageId="m29")
    assert brief(refusal(client, number))[1] == "CLIENT_MESSAGE_ID_CONFLICT"
    events = [kind for _, _, kind in check_log(daemon.home)[session]]
    assert events.count("user.message") == 1


def test_scenario_30_a_turn_goes_on_when_its_sender_disconnects(shared: RunningDaemon) -> None:
    sender, other = shared.client(), shared.client()
    _, session = create_agent(sender)
    attach(other, session, "other")
    script: Json = {"say": "x" * 50, "chunks": 50, "interval_ms": 5}
    send_script(sender, session, script, clientMessageId="m30")
    next_note(other, event_is(session, "user_message"))
    sender.close()
    shared.clients.remove(sender)
    end = within(
        next_note(other, lambda n: status_is(session, "idle")(n) and "turnId" in str(n)), "params"
    )
    assert end["runStatus"] == "completed"
    text = "".join(str(p["delta"]) for p in carriers(other.notes, session) if "delta" in p)
    assert text == "x" * 50
    # Who lost the answer asks again with the same id.
    answer = other.answer(send_script(other, session, script, clientMessageId="m30"))
    assert (answer["disposition"], answer["outcome"]) == ("duplicate", "completed")
