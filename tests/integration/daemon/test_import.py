from __future__ import annotations

import signal
import sqlite3
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Refusal
from roost.schemas.daemon import PROTOCOL_VERSION
from tests.support.commands import command, environ, roost_now
from tests.support.daemon import (
    attach,
    carriers,
    create_agent,
    daemon_in,
    eventually,
    send_script,
    within,
)
from tests.support.log_files import Json, event, lines, log, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

LIMIT = 60
METHOD = "roost.events.import"


@pytest.fixture
def daemon(shared: RunningDaemon) -> Iterator[RunningDaemon]:
    """One for all, in which each test has sessions of its own and leaves no agent."""
    yield shared
    client = shared.client()
    agents: list[Json] = client.call("agent.list")["agents"]  # type: ignore[assignment]
    for agent in agents:
        client.call("agent.stop", agentId=agent["agentId"])
    eventually(lambda: not any("agent:" in str(node["childId"]) for node in shared.tree()))
    shared.close_clients()


def import_(daemon: RunningDaemon, data: bytes) -> tuple[int, list[Json]]:
    ended = roost_now(daemon.home, "events", "import", "--json", "-", stdin=data)
    assert not ended.stderr, ended.stderr
    return ended.returncode, parsed(ended.stdout)


def results(found: list[Json]) -> dict[object, object]:
    return {one["session"]: one["result"] for one in found if "session" in one}


def export(daemon: RunningDaemon, *sessions: str) -> list[Json]:
    ended = roost_now(daemon.home, "events", "export", *(sessions or ("--all",)))
    assert ended.returncode == 0, ended.stderr
    return parsed(ended.stdout)


def sessions_of(daemon: RunningDaemon) -> dict[str, Json]:
    found: list[Json] = daemon.client().call("session.list")["sessions"]  # type: ignore[assignment]
    return {str(one["sessionId"]): one for one in found}


def test_what_is_exported_can_be_imported_and_gone_on_with(daemon: RunningDaemon) -> None:
    created = event("s-one", 1, "session.created", metadata={"title": "talk", "cwd": "/none"})
    done = {"content": "yes", "metadata": {"final": True}}
    turn = [
        event("s-one", 2, turn_id="t-1", content="hello"),
        event("s-one", 3, "agent.message.completed", turn_id="t-1", **done),
    ]
    events = [created, *turn]
    assert import_(daemon, lines(events))[0] == 0
    assert export(daemon, "s-one") == events
    status, found = import_(daemon, lines(events))
    assert status == 0
    assert results(found) == {"s-one": "unchanged"}
    client = daemon.client()
    attach(client, "s-one")
    answer = client.answer(send_script(client, "s-one", {"say": "welcome back"}))
    assert answer["outcome"] == "completed"
    told = carriers(client.notes, "s-one")
    assert [one["sequence"] for one in told] == list(range(1, len(told) + 1))
    assert import_(daemon, lines(events))[1][0]["result"] == "unchanged"


def test_each_session_is_imported_whole_or_not_at_all(daemon: RunningDaemon) -> None:
    _, mine = create_agent(daemon.client())
    bad = event("bad", 2)
    del bad["content"]
    taken = event("conflict", 2)
    taken["id"] = export(daemon, mine)[0]["id"]
    other = event(mine, 1, content="not what is there")
    mixed = [
        event("good", 1),
        event("gap", 1),
        event("bad", 1),
        event("conflict", 1),
        bad,
        event("good", 2),
        event("gap", 3),
        event("late", 7),
        event("bad", 3),
        taken,
        event("late", 8),
        other,
    ]
    status, found = import_(daemon, lines(mixed))
    assert status == 1
    assert [one["line"] for one in found if "line" in one] == [5]
    assert results(found) == {
        "good": "imported",
        "gap": "refused",
        "bad": "refused",
        "conflict": "refused",
        "late": "imported",
        mine: "refused",
    }
    told = {one["session"]: str(one.get("message")) for one in found if "session" in one}
    assert told["bad"] == "line 5 is refused"
    assert told["gap"] == "line 7: event 3 follows event 1"
    assert told["conflict"].startswith("line 10:")
    assert told[mine] == "line 12: it exists with another event 1"
    assert {"gap", "bad", "conflict"}.isdisjoint(sessions_of(daemon))
    assert [one["sequence"] for one in export(daemon, "late")] == [7, 8]
    again = [one for one in mixed if one["session_id"] in {"good", "late"}]
    assert set(results(import_(daemon, lines(again))[1]).values()) == {"unchanged"}


def test_a_session_that_could_not_go_on_is_refused(daemon: RunningDaemon) -> None:
    last = event("full", 2**53 - 1, timestamp=1)
    status, found = import_(daemon, lines([last, event("fits", 1)]))
    assert status == 1
    assert results(found) == {"full": "refused", "fits": "imported"}
    (why,) = [str(one["message"]) for one in found if one.get("session") == "full"]
    assert why.startswith("line 1: event 9007199254740991 leaves no room")


def test_a_line_of_which_no_session_is_known_spoils_its_neighbours(daemon: RunningDaemon) -> None:
    data = lines(log("one", 2)) + lines(log("two", 2)) + b"{torn\n" + lines(log("three", 2))
    status, found = import_(daemon, data + lines(log("four", 1)))
    assert status == 1
    assert results(found) == {
        "one": "imported",
        "two": "refused",
        "three": "refused",
        "four": "imported",
    }


def test_an_open_turn_is_closed_and_a_closed_session_stays_closed(daemon: RunningDaemon) -> None:
    torn = [event("torn", 1, "session.created"), event("torn", 2, turn_id="t-9", content="go")]
    closed = [event("closed", 1), event("closed", 2, "session.closed", reason="over")]
    assert import_(daemon, lines([*torn, *closed]))[0] == 0
    *_, end = export(daemon, "torn")
    assert (end["type"], end["error_code"]) == ("agent.turn.failed", "TURN_INTERRUPTED")
    found = sessions_of(daemon)
    assert (found["torn"]["status"], found["closed"]["status"]) == ("idle", "closed")
    client = daemon.client()
    with pytest.raises(Refusal):
        client.call("message.send", sessionId="closed", content="hello")
    attach(client, "torn")
    assert client.answer(send_script(client, "torn", {"say": "on"}))["outcome"] == "completed"


def test_an_import_that_is_broken_off_is_seen_by_nobody_and_leaves_nothing(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    data = tmp_path / "large.jsonl"
    data.write_bytes(lines(log("large", 12_000)))
    process = subprocess.Popen(
        command(daemon.home, "events", "import", str(data)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(),
    )
    eventually(lambda: _staged(daemon.home) > 400)
    process.send_signal(signal.SIGSTOP)
    assert 0 < _staged(daemon.home) < 12_000
    assert "large" not in sessions_of(daemon)
    assert all(one["session_id"] != "large" for one in export(daemon))
    client = daemon.client()
    _, mine = create_agent(client)
    attach(client, mine)
    assert client.answer(send_script(client, mine, {"say": "on"}))["outcome"] == "completed"
    process.kill()
    process.communicate()
    eventually(lambda: _staged(daemon.home) == 0)
    assert results(import_(daemon, data.read_bytes())[1]) == {"large": "imported"}
    assert len(export(daemon, "large")) == 12_000


def test_what_a_killed_store_leaves_of_an_import_is_removed(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        base: Json = {"importId": "import-of-test", "sessionId": "broken"}
        client.call(METHOD, step="begin", **base)
        client.call(METHOD, step="events", events=log("broken", 200), **base)
        assert _staged(daemon.home) == 200
        daemon.restarted("store", daemon.kill("store"))
        eventually(lambda: _staged(daemon.home) == 0)
        with pytest.raises(Refusal):
            client.call(METHOD, step="finish", lastSequence=200, **base)
        assert results(import_(daemon, lines(log("broken", 200)))[1]) == {"broken": "imported"}


def test_an_import_goes_on_when_the_store_is_restarted(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "large.jsonl"
    data.write_bytes(lines(log("large", 6_000)))
    with daemon_in(home) as daemon:
        process = subprocess.Popen(
            command(home, "events", "import", str(data)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ(),
        )
        eventually(lambda: _staged(home) > 400)
        process.send_signal(signal.SIGSTOP)
        daemon.restarted("store", daemon.kill("store"))
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, (out, err)
        assert len(export(daemon, "large")) == 6_000


def test_the_daemon_judges_what_it_is_sent(daemon: RunningDaemon) -> None:
    client = daemon.client()
    base: Json = {"importId": "import-of-test", "sessionId": "judged"}
    client.call(METHOD, step="begin", **base)
    bad = event("judged", 1)
    del bad["content"]
    for events in ([bad], log("other", 1), log("judged", 1, first=2), [1]):
        with pytest.raises(Refusal):
            client.call(METHOD, step="events", events=events, **base)
    with pytest.raises(Refusal):
        client.call(METHOD, step="finish", lastSequence=1, **base)
    client.call(METHOD, step="abort", **base)


def test_the_extension_is_neither_advertised_nor_open_to_strangers(daemon: RunningDaemon) -> None:
    stranger = Client(daemon.socket, initialize=False)
    daemon.clients.append(stranger)
    answer = stranger.call("initialize", protocolVersion=PROTOCOL_VERSION)
    methods = within(answer, "capabilities", "daemon.methods")
    assert METHOD not in methods
    assert len(methods) == 42


def _staged(home: Path) -> int:
    """Return how many events there are of imports under way."""
    connection = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        sql = """select count(*) from events where session in
            (select key from sessions where state = 'importing')"""
        return int(connection.execute(sql).fetchone()[0])
    finally:
        connection.close()
