from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    event_is,
    is_method,
    next_note,
    send_script,
    within,
)
from tests.support.scenarios import brief, refused, request

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow

MIB = 2**20


def keys(client: Client, session: str) -> list[tuple[int, str]]:
    """Return sequence and id of the stored events that a client was told of."""
    return [
        (int(str(params["sequence"])), str(params["eventId"]))
        for params in carriers(client.notes, session)
    ]


def stored(home: Path, session: str) -> list[tuple[int, str]]:
    return [(sequence, event_id) for sequence, event_id, _ in check_log(home)[session]]


def said(client: Client, session: str) -> str:
    return "".join(str(p["delta"]) for p in carriers(client.notes, session) if "delta" in p)


def test_scenario_19_what_happened_before_the_first_attach_comes_in_order_before_its_answer(
    shared: RunningDaemon,
) -> None:
    client = shared.client()
    agent = client.call("agent.create", objective="say what you can do")
    session = str(agent["sessionId"])
    client.answer(send_script(client, session, {"say": "x" * 300, "chunks": 300}))
    assert client.notes == []
    number = client.send("session.attach", sessionId=session, clientId="first")
    messages: list[Json] = []
    while not messages or messages[-1].get("id") != number:
        messages.append(client.read())
    client.notes = messages[:-1]
    answer = within(messages[-1], "result")
    log = stored(shared.home, session)
    assert keys(client, session) == log
    assert (answer["firstSequence"], answer["lastSequence"]) == (1, len(log))
    assert answer["resumedAfter"] == 0
    assert said(client, session).endswith("x" * 300)
    # The last thing before the answer is the present state, without a sequence.
    state = within(client.notes[-1], "params")
    assert client.notes[-1]["method"] == "event.agent_status"
    assert (state["status"], state.get("sequence")) == ("idle", None)
    # Every event says when it happened, and to which turn it belongs.
    assert all(params["acceptedAt"] for params in carriers(client.notes, session))
    # What has been delivered is not delivered to the next one.
    second = shared.client()
    attach(second, session, "second")
    assert keys(second, session) == []


def test_scenario_21_two_clients_see_the_same_events_in_the_same_order(
    shared: RunningDaemon,
) -> None:
    one, two = shared.client(), shared.client()
    _, session = create_agent(one)
    attach(one, session, "one")
    attach(two, session, "two")
    numbers = [
        send_script(client, session, {"say": "a b c d e", "chunks": 5})
        for client in (one, two, one, two)
    ]
    for number, client in zip(numbers, (one, two, one, two), strict=True):
        assert client.answer(number)["outcome"] == "completed"
    last = stored(shared.home, session)[-1]
    for client in (one, two):
        while keys(client, session)[-1] != last:
            client.take(client.read())
    assert keys(one, session) == stored(shared.home, session)
    # The first event had been told to the other when this one came.
    assert keys(two, session) == stored(shared.home, session)[1:]
    # What is derived from them stands at the same places, and is the same.
    told = [
        [n for n in client.notes if 1 < int(str(within(n, "params").get("sequence", 0))) < last[0]]
        for client in (one, two)
    ]
    assert told[0] == told[1]
    assert len(told[0]) > last[0] - 2


def front_memory(daemon: RunningDaemon) -> int:
    with open(f"/proc/{daemon.pid('front')}/statm") as file:
        return int(file.read().split()[1]) * 4_096


def test_scenario_22_a_client_that_stops_reading_holds_up_nobody_and_misses_nothing(
    shared: RunningDaemon,
) -> None:
    client, stuck = shared.client(), shared.client()
    _, session = create_agent(client)
    attach(client, session, "reads")
    attach(stuck, session, "stuck")
    before = front_memory(shared)
    # Far more than a connection's queue and the sockets of the system hold.
    piece = "y" * 4_096
    for _ in range(40):
        step: Json = {"say": piece * 60, "chunks": 60}
        assert client.answer(send_script(client, session, step))["outcome"] == "completed"
    log = stored(shared.home, session)
    assert keys(client, session) == log
    assert front_memory(shared) - before < 16 * MIB
    assert shared.client().call("health.ping")["ok"] is True
    # Nothing was evicted: it reads again, and all of it comes, in order, with nothing twice.
    while not stuck.notes or within(stuck.notes[-1], "params").get("eventId") != log[-1][1]:
        stuck.take(stuck.read())
    assert keys(stuck, session) == log[1:]
    assert not any("event_gap" in str(note)[:400] for note in stuck.notes)


def test_scenario_23_nothing_comes_of_a_session_that_was_terminated(
    shared: RunningDaemon,
) -> None:
    client, other = shared.client(), shared.client()
    agent_id, session = create_agent(client)
    client.call("session.create", agentId=agent_id)
    attach(client, session, "c")
    number = send_script(client, session, {"say": "z" * 5_000, "chunks": 5_000, "interval_ms": 5})
    next_note(client, is_method("event.message_chunk", session))
    other.call("session.terminate", sessionId=session, reason="over")
    assert client.answer(number)["outcome"] == "interrupted"
    closed = within(next_note(client, event_is(session, "session_closed")), "params")
    assert within(closed, "event", "payload")["reason"] == "over"
    log = check_log(shared.home)[session]
    assert log[-1][2] == "session.closed"
    assert keys(client, session)[-1] == log[-1][:2]
    # Nothing can be added, and nobody is told anything more.
    client.notes.clear()
    assert brief(refused(other, "message.send", sessionId=session, content="x"))[0] == -32602
    assert brief(refused(other, "session.attach", sessionId=session))[1] == "SESSION_CLOSED"
    client.call("health.ping")
    assert [n for n in client.notes if within(n, "params").get("sessionId") == session] == []
    assert check_log(shared.home)[session] == log


def test_scenario_25_no_message_is_torn_under_32_parallel_requests(shared: RunningDaemon) -> None:
    client, other = shared.client(), shared.client()
    sessions = [create_agent(client)[1] for _ in range(4)]
    for session in sessions:
        attach(client, session, "c")
    # Events of four streams, answers of all sizes, and texts that a careless writer would split.
    text = 'é "quoted" \\ \n line 😀 ' * 20
    streams = [send_script(other, session, {"say": text, "chunks": 100}) for session in sessions]
    requests = [
        request(f"{number}-é", ("agent.list", "session.list", "health.stats")[number % 3])
        for number in range(32)
    ]
    client.sock.sendall(b"".join(requests))
    messages: list[Json] = []
    answered: set[object] = set()
    ended: set[object] = set()
    while len(answered) < 32 or len(ended) < len(sessions):
        # Each line is JSON on its own, or this raises.
        message = client.read()
        messages.append(message)
        if "id" in message:
            assert message["id"] not in answered
            answered.add(message["id"])
        elif "turnId" in within(message, "params"):
            params = within(message, "params")
            if params.get("status") == "idle":
                ended.add(params["sessionId"])
    client.notes += [message for message in messages if "method" in message]
    for session, number in zip(sessions, streams, strict=True):
        other.answer(number)
        assert said(client, session) == text


def test_scenario_24_the_sequence_goes_on_after_a_kill_of_the_daemon(daemon: RunningDaemon) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    client.answer(send_script(client, session, {"say": "one"}))
    send_script(client, session, {"say": "w" * 5_000, "chunks": 5_000, "interval_ms": 2})
    next_note(client, is_method("event.message_chunk", session))
    seen = keys(client, session)
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()
    daemon.start()
    again = Client(daemon.socket, initialize=False)
    daemon.clients.append(again)
    again.initialize(capabilities={"roost.cursors": {session: seen[-1][0]}})
    attach(again, session)
    again.answer(send_script(again, session, {"say": "two"}))
    log = stored(daemon.home, session)
    # What was seen is there unchanged; what follows has the numbers that follow, none twice.
    assert log[: len(seen)] == seen
    assert seen + keys(again, session) == log
    assert [sequence for sequence, _ in log] == list(range(1, len(log) + 1))
