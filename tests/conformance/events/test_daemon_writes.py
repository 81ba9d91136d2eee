"""Whatever comes in from outside: all that a real daemon writes is an event of the format."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Refusal
from roost.schemas.validation import judge
from tests.support.daemon import (
    RunningDaemon,
    attach,
    create_agent,
    daemon_in,
    eventually,
    is_method,
    next_note,
    send_script,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

LONG = 2_000_000
CLOSED = 4
QUESTION: Json = {"question": "Which?", "id": "q"}


def deep(levels: int) -> object:
    return json.loads("[" * levels + "]" * levels)


# What a script's calls are given: on the left of what can be stored, and on the right.
ARGUMENTS: list[Json] = [
    {"command": "echo hi"},
    {"command": "printf '\\377\\000\\033'"},
    {"n": 2**53 - 1, "x": 1.5, "one": 1.0},
    {"n": 2**53},
    {"n": [{"a": 1e300}]},
    {"v": deep(60)},
    {"v": deep(90)},
    {"v": "x" * 65_000},
    {"v": "x" * 70_000},
    {"v": "\u0001" * 65_000},
    {"path": "/nonexistent/" + "ü" * 500},
]


@pytest.fixture
def daemon(home: Path) -> Iterator[RunningDaemon]:
    with daemon_in(home, "agents.max_iterations=3") as running:
        yield running


def pending(client: Client, session: str, method: str) -> str:
    note = next_note(client, is_method(method, session))
    return str(note["params"]["requestId"])  # type: ignore[index]


def play(daemon: RunningDaemon) -> None:
    """Do to a daemon whatever ends in an event."""
    client = daemon.client()
    client.sock.settimeout(20)
    _, session = create_agent(client, unattendedAllow=["shell", "FileRead", "ask_user"])
    attach(client, session)
    for args in ARGUMENTS:
        for tool in ("shell", "FileRead"):
            client.answer(send_script(client, session, {"tool": tool, "args": args}))
    client.answer(send_script(client, session, {"say": "ü😀\u0000\ufeff" * 5_000, "chunks": 50}))
    nothing: Json = {"tool": "shell", "args": {"command": ":"}}
    client.answer(send_script(client, session, *[nothing] * 4))
    client.answer(send_script(client, session, {"fail": "x" * 500}))
    client.answer(send_script(client, session, {"tool": "no_such_tool" * 100}))
    answer_questions(client, session)
    client.notes.clear()
    client.returned.clear()
    number = send_script(client, session, {"say": "a"}, {"hang": True})
    next_note(client, is_method("event.message_chunk", session))
    client.call("session.cancelTurn", sessionId=session)
    client.answer(number)
    number = send_script(client, session, {"say": "a"}, {"crash": True})
    client.answer(number)
    text = json.dumps({"a": "\u0001" * 1000})
    client.answer(client.send("message.send", sessionId=session, content=text))
    decide(client)
    cancel(client)
    close(client)


def answer_questions(client: Client, session: str) -> None:
    for answer in ("yes", "x" * 65_000):
        number = send_script(client, session, {"ask": [QUESTION]})
        request = pending(client, session, "event.user_input_request")
        respond = {"sessionId": session, "requestId": request, "kind": "request_user_input"}
        too_long = {"answers": {"q": {"answers": ["x" * 70_000]}}}
        with pytest.raises(Refusal, match="at most"):
            client.call("elicitation.respond", **respond, response=too_long)
        response = {"answers": {"q": {"answers": [answer]}}}
        client.call("elicitation.respond", **respond, response=response)
        client.answer(number)


def decide(client: Client) -> None:
    """Approve and deny under every kind of name and reason."""
    _, session = create_agent(client)
    attach(client, session, "n" * LONG)
    for reason in ("", " \t", "\ufeff", "\x85", "no\n", "x" * LONG, "\ufeff" * 300 + "x"):
        number = send_script(client, session, {"tool": "shell", "args": {"command": ":"}})
        request = pending(client, session, "event.permission_request")
        client.call("tool.deny", sessionId=session, requestId=request, reason=reason)
        client.answer(number)
    number = send_script(client, session, {"tool": "shell", "args": {"command": ":"}})
    request = pending(client, session, "event.permission_request")
    client.call("tool.approve", sessionId=session, requestId=request)
    client.answer(number)


def cancel(client: Client) -> None:
    agent, session = create_agent(client)
    attach(client, session)
    send = {"sessionId": session, "content": "x", "clientMessageId": "m" * LONG}
    with pytest.raises(Refusal, match="too large"):
        client.call("message.send", **send)
    number = client.send(
        "message.send",
        sessionId=session,
        content="x",
        clientMessageId="m" * 100_000,
        metadata={"script": [{"say": "a"}, {"hang": True}], "n": 2**70, "displayUserMessage": "d"},
    )
    next_note(client, is_method("event.message_chunk", session))
    client.call("run.cancel", runId=agent, reason="\u0001" * LONG)
    client.answer(number)


def close(client: Client) -> None:
    metadata = {"sandbox": "dangerFullAccess", "n": 2**60, "deep": deep(100)}
    for reason in ("", "done", "\u0001" * LONG):
        title = "\u0000ü" * 3_000
        created = client.call("session.create", initialPrompt=title, metadata=metadata)
        session = str(created["sessionId"])
        client.call("session.terminate", sessionId=session, reason=reason)


def stored(home: Path) -> list[tuple[int, str, bytes]]:
    query = "select sequence, type, body from events order by session, sequence"
    with contextlib.closing(sqlite3.connect(home / "store.db")) as database:
        return [(sequence, kind, bytes(body)) for sequence, kind, body in database.execute(query)]


def test_all_that_a_daemon_writes_is_an_event_of_the_format(
    daemon: RunningDaemon, home: Path
) -> None:
    play(daemon)
    eventually(lambda: sum(kind == "session.closed" for _, kind, _ in stored(home)) >= CLOSED)
    assert daemon.stop() == 0
    kinds: Counter[str] = Counter()
    for sequence, kind, body in stored(home):
        line = body[:-1] + b',"sequence":%d}' % sequence
        verdict = judge(line)
        assert verdict.ok, (verdict, body[:500])
        kinds[kind] += 1
    assert set(kinds) >= {
        "session.created",
        "session.closed",
        "user.message",
        "agent.reasoning.started",
        "agent.message.delta",
        "agent.message.completed",
        "agent.turn.exhausted",
        "agent.turn.failed",
        "tool.call.requested",
        "tool.call.started",
        "tool.call.completed",
        "tool.call.failed",
        "tool.approval.requested",
        "tool.approval.approved",
        "tool.approval.rejected",
        "cancellation.requested",
        "cancellation.completed",
    }
