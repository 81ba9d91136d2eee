from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    check_log,
    create_agent,
    event_is,
    is_method,
    next_note,
    send_script,
    terminals,
    within,
)
from tests.support.scenarios import asked, brief, lines, refusal, refused, request

if TYPE_CHECKING:
    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

HANG: Json = {"hang": True}


def running(client: Client, session: str, *steps: Json, **params: object) -> int:
    """Send a message and return its request when its turn has begun."""
    number = send_script(client, session, *(steps or (HANG,)), **params)
    next_note(client, event_is(session, "user_message"))
    return number


def test_scenario_10_the_cancel_of_a_message_interrupts_its_turn(shared: RunningDaemon) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = running(client, session)
    cancel = client.send("request.cancel", requestId=number, reason="escape")
    error = refusal(client, number)
    assert brief(error) == (-32000, "REQUEST_CANCELLED", f"daemon request cancelled: {number}")
    data = within(error, "data")
    assert (data["requestId"], data["reason"]) == (number, "escape")
    # The cancelled request is answered before the cancel.
    assert cancel not in client.answers
    assert client.answer(cancel) == {"requestId": number, "cancelled": True, "reason": "escape"}
    assert client.answer(send_script(client, session, {"say": "on"}))["outcome"] == "completed"
    assert terminals(check_log(shared.home)[session]) == ["cancellation.completed"]


def test_scenario_10_a_message_that_waits_is_withdrawn_and_leaves_no_turn(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    first = running(client, session)
    second = send_script(client, session, {"say": "never"})
    next_note(client, event_is(session, "message_accepted"))
    next_note(client, event_is(session, "message_accepted"))
    assert client.call("request.cancel", requestId=second)["cancelled"] is True
    error = refusal(client, second)
    assert within(error, "data")["reason"] == "request.cancel"
    client.call("session.cancelTurn", sessionId=session)
    assert client.answer(first)["outcome"] == "interrupted"
    assert client.answer(send_script(client, session, {"say": "on"}))["outcome"] == "completed"
    kinds = [kind for _, _, kind in check_log(shared.home)[session]]
    assert kinds.count("user.message") == 2


def test_scenario_10_a_cancel_with_an_open_approval_leaves_nothing_pending(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = client.send("message.send", sessionId=session, content="$ echo never")
    request_id = asked(client, session)["requestId"]
    assert client.call("request.cancel", requestId=number)["cancelled"] is True
    assert brief(refusal(client, number))[1] == "REQUEST_CANCELLED"
    next_note(client, event_is(session, "permission_resolved"))
    error = refused(client, "tool.approve", sessionId=session, requestId=request_id)
    assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")


def test_scenario_10_unknown_ended_and_other_requests_cannot_be_cancelled(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    _, session = create_agent(client)
    ended = send_script(client, session, {"say": "done"})
    client.answer(ended)
    for unknown in (ended, 987654, "987654", "no such"):
        answer = client.call("request.cancel", requestId=unknown, reason="r")
        assert answer == {"requestId": unknown, "cancelled": False, "reason": "r"}
    answer = client.call("request.cancel", requestId="x")
    assert answer == {"requestId": "x", "cancelled": False}
    for wrong in ("", "  ", 1.5, None, True):
        error = refused(client, "request.cancel", requestId=wrong)
        assert brief(error)[:2] == (-32602, "INVALID_ARGUMENT")
    assert brief(refused(client, "request.cancel"))[2] == "request.cancel requires requestId"


def test_scenario_10_a_request_of_another_connection_is_invisible(shared: RunningDaemon) -> None:
    client, other = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session)
    number = running(client, session)
    for _ in range(number):
        other.call("health.ping")
    assert other.call("request.cancel", requestId=number)["cancelled"] is False
    client.call("session.cancelTurn", sessionId=session)
    assert client.answer(number)["outcome"] == "interrupted"


def test_scenario_10_a_number_and_a_text_are_different_ids_and_each_request_has_one_answer(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    sessions = [create_agent(client)[1] for _ in range(2)]
    for session in sessions:
        attach(client, session)
    script = {"script": [HANG]}
    for number, session in zip((501, "501"), sessions, strict=True):
        client.sock.sendall(
            request(number, "message.send", sessionId=session, content="x", metadata=script)
        )
        next_note(client, is_method("event.session_event", session))
        next_note(client, event_is(session, "user_message"))
    # One that is under way under the same id is refused, and goes on.
    client.sock.sendall(request(501, "agent.list"))
    error = refusal(client, 501)
    assert brief(error) == (
        -32602,
        "INVALID_ARGUMENT",
        "daemon request is already in flight: 501",
    )
    answers: list[Json] = []
    for number, kind in (("501", str), (501, int)):
        client.sock.sendall(request("c", "request.cancel", requestId=number))
        found: list[Json] = []
        while len(found) < 2:
            message = client.read()
            if "method" not in message:
                found.append(message)
        assert type(found[0]["id"]) is kind
        assert within(found[0], "error", "data")["requestId"] == number
        assert within(found[1], "result") == {"requestId": number, "cancelled": True}
        answers += found
    # The late ends of both turns bring no second answer, and the id may be used again.
    client.sock.sendall(request(501, "health.ping"))
    seen: list[Json] = []
    while not seen or seen[-1].get("id") != 501:
        seen += lines(client, 1)
    assert [json.dumps(message) for message in seen[:-1] if "method" not in message] == []
    for session in sessions:
        answer = client.answer(send_script(client, session, {"say": "on"}))
        assert answer["outcome"] == "completed"
