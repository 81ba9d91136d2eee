"""What retention and the bounds of the log look like to a client of a real daemon."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Json, Refusal
from tests.support.daemon import (
    attach,
    carriers,
    check_log,
    create_agent,
    daemon_in,
    event_is,
    eventually,
    next_note,
    send_script,
    within,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow


def say(client: Client, session: str, text: str = "word " * 1_000) -> Json:
    return client.answer(send_script(client, session, {"say": text}))


def attach_after(daemon: RunningDaemon, session: str, cursor: int) -> tuple[Client, Json]:
    client = Client(daemon.socket, initialize=False)
    daemon.clients.append(client)
    capabilities = {"roost.cursors": {session: cursor}}
    client.call("initialize", protocolVersion="1.0.0", capabilities=capabilities)
    return client, attach(client, session, "late")


def first_sequence(home: Path, session: str) -> int:
    database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        sql = "select first_sequence from sessions where session_id = ?"
        return int(database.execute(sql, (session,)).fetchone()[0])
    finally:
        database.close()


def settled_first(home: Path, session: str) -> int:
    """Return where the log begins once nothing is over its bound."""

    def settled() -> int:
        database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
        try:
            sql = """select first_sequence, bytes, removed from sessions join counters on session = key
                where session_id = ?"""
            first, size, removed = database.execute(sql, (session,)).fetchone()
        finally:
            database.close()
        return int(first) if size <= 40_000 and removed == first - 1 else 0

    return int(str(eventually(settled)))


def numbers(notes: list[Json], session: str) -> list[int]:
    """Return the sequences that are carried, without those of gaps."""
    found = carriers(notes, session)
    return [
        int(str(params["sequence"]))
        for params in found
        if not ("event" in params and within(params, "event")["type"] == "event_gap")
    ]


def test_scenario_20_a_client_behind_what_was_removed_is_told_exactly_what_it_missed(
    home: Path,
) -> None:
    with daemon_in(home, "retention.session_bytes=40000") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        for _ in range(12):
            assert say(client, session)["outcome"] == "completed"
        first = settled_first(home, session)
        assert first > 5
        late, result = attach_after(daemon, session, 3)
        assert result["firstSequence"] == first
        gap = next_note(late, event_is(session, "event_gap"))
        params: Json = gap["params"]  # type: ignore[assignment]
        assert params["sequence"] == first - 1
        assert within(params, "event", "payload") == {
            "reason": "retention",
            "retiredCount": first - 1 - 3,
            "firstLostSequence": 4,
            "lastLostSequence": first - 1,
            "firstAvailableSequence": first,
        }
        assert say(late, session, "short")["outcome"] == "completed"
        got = numbers(late.notes, session)
        assert got == list(range(first, got[-1] + 1))
        # Who has kept up has seen everything, and no gap.
        live = numbers(client.notes, session)
        assert live == list(range(live[0], live[-1] + 1))
        assert not [note for note in client.notes if event_is(session, "event_gap")(note)]


def test_scenario_20_a_client_behind_nothing_that_was_removed_gets_no_gap(home: Path) -> None:
    with daemon_in(home, "retention.session_bytes=40000") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        for _ in range(8):
            say(client, session)
        first = settled_first(home, session)
        late, _ = attach_after(daemon, session, first - 1)
        say(late, session, "short")
        got = numbers(late.notes, session)
        assert got == list(range(first, got[-1] + 1))
        assert not [note for note in late.notes if event_is(session, "event_gap")(note)]


def test_an_agent_whose_log_was_cut_goes_on_and_so_do_its_logs(home: Path) -> None:
    with daemon_in(home, "retention.session_bytes=40000") as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        say(client, session, "first words")
        for _ in range(8):
            say(client, session)
        settled_first(home, session)
        pid = daemon.kill(f"{agent}")
        eventually(lambda: daemon.pid(agent) != pid)
        assert say(client, session, "last words")["outcome"] == "completed"
        transcript = str(client.call("agent.logs", agentId=agent)["transcript"])
        assert "last words" in transcript
        assert "first words" not in transcript
        assert "earlier entries are left out" in transcript


def test_a_full_session_says_so_to_its_clients(home: Path) -> None:
    with daemon_in(home, "store.session_events=128") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        other = create_agent(client)[1]
        outcomes: list[object] = []
        refusal = ""
        while not refusal:
            try:
                outcomes.append(say(client, session, "x")["outcome"])
            except Refusal as error:
                refusal = str(error)
        assert "EVENT_STORE_CAPACITY_EXCEEDED" in refusal
        assert session in refusal
        assert set(outcomes) <= {"completed", "failed"}
        # The agent lives, its other session and others too.
        assert say(client, other, "x")["outcome"] == "completed"
        assert client.call("session.terminate", sessionId=session)


def test_a_turn_that_fills_its_session_fails_and_disturbs_nobody(home: Path) -> None:
    with daemon_in(home, "store.session_events=128") as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        attach(client, session)
        outcome = say(client, session, "x")["outcome"]
        pid = daemon.pid(agent)
        for _ in range(4):
            if outcome == "completed":
                outcome = say(client, session, "x" * 200_000)["outcome"]
        assert outcome == "failed"
        *_, (_, _, kind) = check_log(home)[session]
        assert kind == "agent.turn.failed"
        assert any("EVENT_STORE_CAPACITY_EXCEEDED" in str(note) for note in client.notes)
        with pytest.raises(Refusal, match="EVENT_STORE_CAPACITY_EXCEEDED"):
            say(client, session, "x")
        _, second = create_agent(client)
        assert say(client, second, "x")["outcome"] == "completed"
        assert daemon.pid(agent) == pid


def test_scenario_20_a_slow_client_overtaken_by_retention_is_told_of_each_event_it_missed(
    home: Path,
) -> None:
    settings = ("retention.session_bytes=300000", "limits.client_queue_bytes=65536")
    with daemon_in(home, *settings) as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        for _ in range(3):
            say(client, session, "word " * 20_000)
        slow, _ = attach_after(daemon, session, 0)
        # It reads nothing for a while: what does not fit its queue and the socket it has to read from the log later.
        for _ in range(20):
            say(client, session, "word " * 20_000)
        say(client, session, "the end")
        seen, gaps = 0, 0
        database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
        sql = (
            "select last_sequence from counters join sessions on key = session where session_id = ?"
        )
        last = int(database.execute(sql, (session,)).fetchone()[0])
        database.close()
        known = 0
        slow.sock.settimeout(30)
        while seen < last:
            for note in slow.notes[known:]:
                params: Json = note["params"]  # type: ignore[assignment]
                if event_is(session, "event_gap")(note):
                    lost = within(params, "event", "payload")
                    assert lost["firstLostSequence"] == seen + 1
                    seen = int(str(lost["lastLostSequence"]))
                    assert lost["firstAvailableSequence"] == seen + 1
                    gaps += 1
                elif carriers([note], session):
                    assert params["sequence"] == seen + 1
                    seen += 1
            known = len(slow.notes)
            if seen < last:
                slow.take(slow.read())
        assert gaps
