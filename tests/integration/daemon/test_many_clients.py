"""Hundreds of clients on one daemon: who reads misses nothing, who does not costs little and catches up."""

from __future__ import annotations

import contextlib
import json
import resource
from typing import TYPE_CHECKING

import pytest

from bench.crowd import Crowd, Member, unix_member, web_member
from bench.daemon import Client, Json, Refusal, pss_bytes
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    eventually,
    send_script,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.slow

MIB = 1 << 20
BOUND = 64 * MIB
PIECE = "x" * 4_096
PIECES = 60


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """A crowd that is closed in the end, and enough descriptors for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    found = Crowd()
    yield found
    found.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(daemon: RunningDaemon) -> int:
    """Return what all processes of the daemon take, shared pages counted once."""
    return sum(pss_bytes(process.pid) for process in daemon.processes())


def stream_text(client: Client, session: str, mib: int) -> int:
    """Let the session's log grow by so much; return its last sequence.

    What is said in pieces is said once more as a whole at the end of its turn.
    """
    for _ in range(mib * MIB // (2 * PIECES * len(PIECE))):
        say: Json = {"say": PIECE * PIECES, "chunks": PIECES}
        answer = client.answer(send_script(client, session, say))
        assert answer["outcome"] == "completed"
    return last_sequence(client, session)


def last_sequence(client: Client, session: str) -> int:
    """Return the last sequence of a session."""
    last = attach(client, session, "asks")["lastSequence"]
    client.call("session.detach", sessionId=session, clientId="asks")
    client.notes.clear()
    return int(str(last))


def join(crowd: Crowd, members: Sequence[Member], session: str, **params: object) -> None:
    """Initialize connections and attach them to a session from its beginning."""
    crowd.greet(members, capabilities={"roost.cursors": {session: 0}}, **params)
    asked: list[tuple[Member, int]] = []
    for index, member in enumerate(members):
        member.last[session] = 0
        name = f"{type(member).__name__}-{index}"
        asked.append((member, member.send("session.attach", sessionId=session, clientId=name)))
    for answer in crowd.collect(asked):
        assert answer["resumedAfter"] == 0, answer


def expect_nothing_missed(members: Sequence[Member], session: str, last: int) -> None:
    """Claim that each of these has had every event once and in order."""
    assert [member.fault for member in members if member.fault] == []
    assert {member.gaps for member in members} == {0}
    assert {member.carriers for member in members} == {last}
    assert {member.last[session] for member in members} == {last}


def test_of_500_clients_10_do_not_read_and_nobody_pays_for_it(
    daemon: RunningDaemon, crowd: Crowd
) -> None:
    sender = daemon.client()
    _, session = create_agent(sender)
    stream_text(sender, session, 1)
    before = memory(daemon)
    members = [crowd.add(unix_member(daemon.socket)) for _ in range(500)]
    join(crowd, members, session)
    stuck, readers = members[:10], members[10:]
    crowd.pause(stuck)

    last = stream_text(sender, session, 1)
    crowd.reach(readers, session, last)
    expect_nothing_missed(readers, session, last)
    assert memory(daemon) - before < BOUND

    # Kept for each of the ten, what comes now would be more than the bound many times over; kept once, still more.
    asked = [
        (member, member.send("session.detach", sessionId=session, clientId=f"Member-{index}"))
        for index, member in enumerate(members[10:], 10)
    ]
    assert all(answer["detached"] for answer in crowd.collect(asked))
    last = stream_text(sender, session, 44)
    assert memory(daemon) - before < BOUND

    crowd.resume(stuck)
    crowd.reach(stuck, session, last)
    expect_nothing_missed(stuck, session, last)
    assert memory(daemon) - before < BOUND


def test_clients_of_the_websocket_that_do_not_read_catch_up_too(
    daemon: RunningDaemon, crowd: Crowd
) -> None:
    told: Json = json.loads((daemon.home / "daemon.json").read_text())
    host, _, port = str(told["websocket"]).removeprefix("ws://").rstrip("/").rpartition(":")
    cookie = (daemon.home / "daemon.cookie").read_text().strip()
    sender = daemon.client()
    _, session = create_agent(sender)
    members = [crowd.add(web_member(host, int(port))) for _ in range(12)]
    join(crowd, members, session, authCookie=cookie)
    stuck, readers = members[:4], members[4:]
    crowd.pause(stuck)
    last = stream_text(sender, session, 8)
    crowd.reach(readers, session, last)
    expect_nothing_missed(readers, session, last)
    crowd.resume(stuck)
    crowd.reach(stuck, session, last)
    expect_nothing_missed(stuck, session, last)


def test_a_thousand_attached_clients_get_a_turn_each_and_leave_nothing(
    daemon: RunningDaemon, crowd: Crowd
) -> None:
    sender = daemon.client()
    _, session = create_agent(sender)
    members = [crowd.add(unix_member(daemon.socket)) for _ in range(1_000)]
    join(crowd, members, session)
    attached = connections(sender)
    assert (attached["attachments"], attached["unix"]) == (1_000, 1_001)
    assert sender.answer(send_script(sender, session, {"say": "to all"}))["outcome"] == "completed"
    last = last_sequence(sender, session)
    crowd.reach(members, session, last)
    expect_nothing_missed(members, session, last)
    crowd.close_members()
    eventually(lambda: connections(sender)["unix"] == 1)
    assert connections(sender)["attachments"] == 0


def connections(client: Client) -> Json:
    found: Json = client.call("health.stats")["connections"]  # type: ignore[assignment]
    return found


def test_names_belong_to_one_connection_until_it_ends(daemon: RunningDaemon) -> None:
    one, other = daemon.client(), daemon.client()
    _, session = create_agent(one)
    first, second = attach(one, session, "a"), attach(one, session, "b")
    assert second["activeAttachmentIds"] == [first["attachmentId"], second["attachmentId"]]
    with pytest.raises(Refusal, match="daemon client is already registered: a"):
        attach(other, session, "a")
    one.answer(send_script(one, session, {"say": "once"}))
    said = [int(str(e["sequence"])) for e in carriers(one.notes, session)]
    assert said == sorted(set(said)), "an event came once for each name"

    detached = other.call("session.detach", sessionId=session, clientId="a")
    assert detached["remainingAttachmentIds"] == [second["attachmentId"]]
    with pytest.raises(Refusal, match="already registered"):
        attach(other, session, "a")
    one.close()

    def taken_over() -> bool:
        with contextlib.suppress(Refusal):
            return bool(attach(other, session, "a"))
        return False

    eventually(taken_over)


def test_a_connection_has_64_names_and_hears_of_the_limit(daemon: RunningDaemon) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    ids = [attach(client, session, f"name-{at}")["attachmentId"] for at in range(64)]
    assert len(set(ids)) == 64
    with pytest.raises(Refusal) as refusal:
        attach(client, session, "name-64")
    data: Json = refusal.value.args[0]["data"]
    assert data == {"code": "OVERLOADED", "maxClients": 64}
    assert attach(client, session, "name-3")["attachmentId"] == ids[3]
    client.answer(send_script(client, session, {"say": "once"}))
    said = [int(str(e["sequence"])) for e in carriers(client.notes, session)]
    assert said == sorted(set(said))


def test_one_client_follows_1_000_sessions_and_lets_go_of_them(daemon: RunningDaemon) -> None:
    client, other = daemon.client(), daemon.client()
    agent, _ = create_agent(client)
    numbers: list[int] = []
    sessions: list[str] = []
    for _ in range(10):
        numbers = [client.send("session.create", agentId=agent) for _ in range(100)]
        sessions += [str(client.answer(number)["sessionId"]) for number in numbers]
    for first in range(0, 1_000, 200):
        part = sessions[first : first + 200]
        numbers = [client.send("session.attach", sessionId=s, clientId="one") for s in part]
        for number in numbers:
            client.answer(number)
    assert connections(other)["attachments"] == 1_000
    client.notes.clear()
    told = (sessions[0], sessions[499], sessions[999])
    for session in told:
        other.answer(send_script(other, session, {"say": session}))
        last = len(check_log(daemon.home)[session])
        while last not in [e["sequence"] for e in carriers(client.notes, session)]:
            client.take(client.read())
    heard = {str(note["params"]["sessionId"]) for note in client.notes}  # type: ignore[index]
    assert heard == set(told)

    for first in range(0, 1_000, 200):
        part = sessions[first : first + 200]
        numbers = [client.send("session.detach", sessionId=s, clientId="one") for s in part]
        for number in numbers:
            assert client.answer(number)["detached"] is True
    client.notes.clear()
    other.answer(send_script(other, sessions[0], {"say": "nobody listens"}))
    client.call("health.ping")
    assert client.notes == []
    assert connections(other)["attachments"] == 0
