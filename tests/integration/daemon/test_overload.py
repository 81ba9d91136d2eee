"""Much at once: everything is answered, and nobody else waits for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from bench.crowd import Crowd, Member, unix_member
from bench.daemon import Client, Json, Refusal
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    daemon_in,
    eventually,
    is_method,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.processes import stand_still

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

CLIENTS = 60
LARGE = "m" * 900_000


def reader(daemon: RunningDaemon, session: str) -> Client:
    client = Client(daemon.socket, initialize=False)
    daemon.clients.append(client)
    capabilities = {"roost.cursors": {session: 0}}
    client.call("initialize", protocolVersion="1.0.0", capabilities=capabilities)
    return client


def test_many_clients_that_catch_up_on_a_large_log_hold_up_nobody(
    home: Path, daemon: RunningDaemon
) -> None:
    """Their pages together are several times what the link between store and front may hold."""
    client = daemon.client()
    _, session = create_agent(client)
    for _ in range(6):
        answer = client.call(
            "message.send", sessionId=session, content=LARGE, metadata={"script": [{"say": "ok"}]}
        )
        assert answer["outcome"] == "completed"
    everything = list(range(1, len(check_log(home)[session]) + 1))
    readers = [reader(daemon, session) for _ in range(CLIENTS)]
    numbers = [
        one.send("session.attach", sessionId=session, clientId=f"c{index}")
        for index, one in enumerate(readers)
    ]
    seen: list[list[object]] = []

    def read(one: Client, number: int) -> None:
        one.answer(number)
        seen.append([params["sequence"] for params in carriers(one.notes, session)])

    threads = [
        threading.Thread(target=read, args=pair) for pair in zip(readers, numbers, strict=True)
    ]
    for thread in threads:
        thread.start()
    other = daemon.client()
    began = time.monotonic()
    _, elsewhere = create_agent(other)
    assert (
        other.call("message.send", sessionId=elsewhere, content="hello")["outcome"] == "completed"
    )
    assert time.monotonic() - began < 10
    for thread in threads:
        thread.join()
    assert seen == [everything] * CLIENTS


def test_a_list_of_large_records_is_read_in_shorter_pages(daemon: RunningDaemon) -> None:
    client = daemon.client()
    made = {create_agent(client)[0] for _ in range(2)}
    for _ in range(5):
        created = client.call(
            "agent.create",
            objective="x",
            initialContent=[],
            metadata={"sandbox": "dangerFullAccess", "notes": "n" * 600_000},
        )
        made.add(str(created["agentId"]))
    listed: set[str] = set()
    cursor: Json = {}
    pages = 0
    while True:
        page = client.call("agent.list", **cursor)
        agents: list[Json] = page["agents"]  # type: ignore[assignment]
        listed |= {str(entry["agentId"]) for entry in agents}
        pages += 1
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert listed == made
    assert pages > 1


def test_metadata_larger_than_an_event_is_refused(daemon: RunningDaemon) -> None:
    client = daemon.client()
    with pytest.raises(Refusal) as refusal:
        client.call("agent.create", objective="x", metadata={"notes": "n" * 1_100_000})
    error: Json = refusal.value.args[0]
    assert error["data"]["code"] == "INPUT_TOO_LARGE"  # type: ignore[index]
    assert client.call("agent.list")["agents"] == []


def data_of(refusal: pytest.ExceptionInfo[Refusal]) -> Json:
    """Return the data of a refusal, its code included."""
    return within(refusal.value.args[0], "data")


def test_a_store_that_hangs_holds_no_control_call_and_all_is_answered_when_it_is_back(
    daemon: RunningDaemon,
) -> None:
    client, other = daemon.client(), daemon.client()
    _, session = create_agent(client)
    store = daemon.pid("store")
    stand_still(store)
    try:
        numbers = [client.send("session.list", agentId="none") for _ in range(32 + 256 + 12)]
        for number in numbers[-12:]:
            with pytest.raises(Refusal) as refusal:
                client.answer(number)
            assert data_of(refusal) == {
                "code": "TOO_MANY_QUEUED_REQUESTS",
                "maxQueuedRequests": 256,
            }
        assert client.call("health.ping")["ok"] is True
        assert client.call("health.ready")["ready"] is True
        assert within(client.call("health.stats"), "state")["available"] is False
        assert client.call("request.cancel", requestId=numbers[100])["cancelled"] is True
        with pytest.raises(Refusal, match="REQUEST_CANCELLED"):
            client.answer(numbers[100])
        control = [
            client.send("session.cancelTurn", sessionId=session),
            client.send("run.cancel", runId="turn_none"),
            client.send("tool.approve", sessionId=session, requestId="none"),
            client.send("tool.deny", sessionId=session, requestId="none"),
        ]
        listed = other.send("session.list", agentId="none")
    finally:
        os.kill(store, signal.SIGCONT)
    assert client.answer(control[0])["cancelled"] is False
    for number in control[1:]:
        with pytest.raises(Refusal) as refusal:
            client.answer(number)
        assert "TOO_MANY" not in str(data_of(refusal))
    assert other.answer(listed)["sessions"] == []
    for number in (*numbers[:100], *numbers[101:-12]):
        assert client.answer(number)["sessions"] == []
    assert client.call("session.list", agentId="none")["sessions"] == []


def test_requests_that_come_while_the_store_is_dead_are_answered_by_the_next_one(
    daemon: RunningDaemon,
) -> None:
    clients = [daemon.client() for _ in range(20)]
    _, session = create_agent(clients[0])
    old = daemon.kill("store")
    asked = [(client, client.send("session.list")) for client in clients for _ in range(20)]
    sent = send_script(clients[0], session, {"say": "durable"})
    assert clients[1].call("health.ping")["ok"] is True
    for client, number in asked:
        sessions: list[Json] = client.answer(number)["sessions"]  # type: ignore[assignment]
        assert [found["sessionId"] for found in sessions] == [session]
    assert clients[0].answer(sent)["outcome"] == "completed"
    assert daemon.restarted("store", old) != old


def test_after_retry_after_ms_a_limited_request_passes_and_cancels_are_never_limited(
    home: Path,
) -> None:
    with daemon_in(home, "limits.unix_rate=20", "limits.unix_burst=3") as daemon:
        client = daemon.client()
        for _ in range(3):
            error: Json = {}
            while not error:
                answer = client.send("health.ready")
                try:
                    client.answer(answer)
                except Refusal as refusal:
                    error = refusal.args[0]
            assert within(error, "data") == {
                "code": "RATE_LIMITED",
                "requestRatePerSecond": 20,
                "requestBurst": 3,
                "retryAfterMs": 50,
            }
            for _ in range(5):
                cancelled = client.call("session.cancelTurn", sessionId="session_none")
                assert cancelled["cancelled"] is False
                assert client.call("request.cancel", requestId=999)["cancelled"] is False
            time.sleep(0.050)
            assert "ready" in client.call("health.ready")


def test_a_connection_too_many_is_told_so_and_a_place_is_free_again(home: Path) -> None:
    with daemon_in(home, "limits.connections=4") as daemon:
        clients = [daemon.client() for _ in range(4)]
        late = Client(daemon.socket, initialize=False)
        daemon.clients.append(late)
        error = within(late.read(), "error")
        assert error["code"] == -32000
        assert within(error, "data") == {
            "code": "TOO_MANY_CONNECTIONS",
            "maxConnections": 4,
            "retryAfterMs": 1000,
        }
        assert late.file.readline() == b""
        assert clients[0].call("health.ping")["ok"] is True
        daemon.clients.remove(clients[3])
        clients[3].close()

        def free() -> bool:
            try:
                daemon.client()
            except (ConnectionError, KeyError):
                return False
            return True

        eventually(free)


def test_an_attachment_too_many_is_refused_and_passes_after_a_detach(home: Path) -> None:
    with daemon_in(home, "limits.attachments_per_session=3") as daemon:
        one, other = daemon.client(), daemon.client()
        _, session = create_agent(one)
        for name in "abc":
            attach(one, session, name)
        with pytest.raises(Refusal) as refusal:
            attach(other, session, "d")
        assert data_of(refusal) == {
            "code": "OVERLOADED",
            "maxAttachments": 3,
            "retryAfterMs": 1000,
        }
        assert attach(one, session, "a")["clientId"] == "a"
        one.call("session.detach", sessionId=session, clientId="b")
        assert attach(other, session, "d")["clientId"] == "d"


def test_a_message_too_many_is_refused_and_the_turn_can_still_be_cancelled(home: Path) -> None:
    with daemon_in(home, "limits.queued_messages=2") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        hanging = send_script(client, session, {"say": "on"}, {"hang": True})
        next_note(client, is_method("event.message_chunk", session))
        waiting = [send_script(client, session, {"say": "later"}) for _ in range(2)]
        refused = send_script(client, session, {"say": "too many"})
        with pytest.raises(Refusal) as refusal:
            client.answer(refused)
        data = data_of(refusal)
        assert (data["code"], data["maxQueuedMessages"]) == ("TOO_MANY_QUEUED_MESSAGES", 2)
        assert int(str(data["retryAfterMs"])) > 0
        assert client.call("session.cancelTurn", sessionId=session)["cancelled"] is True
        assert client.answer(hanging)["outcome"] == "interrupted"
        assert [client.answer(number)["outcome"] for number in waiting] == ["completed"] * 2
        assert client.answer(send_script(client, session, {"say": "x"}))["outcome"] == "completed"


def test_decisions_pass_while_as_many_messages_as_may_are_under_way(home: Path) -> None:
    with daemon_in(home, "limits.in_flight_requests=4") as daemon:
        client = daemon.client()
        agent, asking = create_agent(client)
        attach(client, asking)
        first = client.send("message.send", sessionId=asking, content="$ echo decided")
        request = within(next_note(client, is_method("event.permission_request", asking)), "params")
        others = [str(client.call("session.create", agentId=agent)["sessionId"]) for _ in range(4)]
        hanging = [send_script(client, session, {"hang": True}) for session in others[:3]]
        with pytest.raises(Refusal) as refusal:
            client.answer(send_script(client, others[3], {"say": "x"}))
        assert data_of(refusal) == {
            "code": "TOO_MANY_IN_FLIGHT_REQUESTS",
            "maxInFlightRequests": 4,
        }
        client.call("tool.approve", sessionId=asking, requestId=request["requestId"])
        assert client.answer(first)["outcome"] == "completed"
        after = client.answer(send_script(client, others[3], {"say": "x"}))
        assert after["outcome"] == "completed"
        for session, number in zip(others, hanging, strict=False):
            assert client.call("session.cancelTurn", sessionId=session)["cancelled"] is True
            assert client.answer(number)["outcome"] == "interrupted"


def test_500_clients_of_a_killed_front_come_back_at_once_and_miss_nothing(
    daemon: RunningDaemon,
) -> None:
    sender = daemon.client()
    _, session = create_agent(sender)
    attach(sender, session)
    crowd = Crowd()
    try:
        members = herd(crowd, daemon, session, dict.fromkeys(range(500), 0))
        say: Json = {"say": "x" * 200, "chunks": 200, "interval_ms": 20}
        send_script(sender, session, say)
        crowd.run(lambda: min(member.last[session] for member in members) > 10)
        daemon.kill("front")
        crowd.run(lambda: all(member.closed for member in members))
        assert [member.fault for member in members if member.fault] == []
        seen = {index: member.last[session] for index, member in enumerate(members)}
        again = herd(crowd, daemon, session, seen)
        other = daemon.client()
        attached = attach(other, session, "other")
        next_note(other, lambda note: status_is(session, "idle")(note) and "turnId" in str(note))
        last = int(str(attached["lastSequence"])) if not carriers(other.notes, session) else 0
        last = max([last, *(int(str(e["sequence"])) for e in carriers(other.notes, session))])
        crowd.reach(again, session, last)
        assert [member.fault for member in again if member.fault] == []
        assert {member.gaps for member in again} == {0}
        assert {seen[at] + member.carriers for at, member in enumerate(again)} == {last}
        assert len(check_log(daemon.home)[session]) == last
    finally:
        crowd.close()


def herd(crowd: Crowd, daemon: RunningDaemon, session: str, seen: dict[int, int]) -> list[Member]:
    """Connect clients all at once, each to go on after what it has seen; return when all are attached."""
    members = [crowd.add(unix_member(daemon.socket)) for _ in seen]
    asked: list[tuple[Member, int]] = []
    for member, (index, last) in zip(members, seen.items(), strict=True):
        member.last[session] = last
        cursors = {"roost.cursors": {session: last}}
        member.send("initialize", protocolVersion="1.0.0", capabilities=cursors)
        number = member.send("session.attach", sessionId=session, clientId=f"c{index}")
        asked.append((member, number))
    for member, answer in zip(members, crowd.collect(asked), strict=True):
        assert "error" not in answer, answer
        assert not member.closed
    return members


def test_a_client_that_floods_does_not_hold_the_others(daemon: RunningDaemon) -> None:
    flooding, other = daemon.client(), daemon.client()
    line = b'{"jsonrpc":"2.0","id":7,"method":"health.ping","params":{}}\n'
    flood = threading.Thread(target=flooding.sock.sendall, args=(line * 150_000,))
    flood.start()
    try:
        flooding.read()
        for _ in range(20):
            assert other.call("health.ping")["ok"] is True
        assert flood.is_alive(), "the others were answered when the flood was over"
    finally:
        for _ in range(149_999):
            flooding.file.readline()
        flood.join()
    assert flooding.call("health.ping")["ok"] is True
