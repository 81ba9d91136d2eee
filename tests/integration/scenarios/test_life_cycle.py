from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client
from tests.support.daemon import (
    RunningDaemon,
    attach,
    check_log,
    create_agent,
    event_is,
    eventually,
    is_method,
    next_note,
    send_script,
    terminals,
    within,
)
from tests.support.scenarios import asked, brief, listed, request, web_socket

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow

WHILE_IT_RUNS = ("daemon.sock", "daemon.pid", "daemon.json")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 130)]
)
def test_scenario_55_a_signal_stops_the_daemon_with_its_status(
    home: Path, number: signal.Signals, status: int
) -> None:
    daemon = RunningDaemon(home)
    daemon.start()
    client = daemon.client()
    create_agent(client, "hello")
    for name in WHILE_IT_RUNS:
        assert (home / name).exists()
    assert (home / "daemon.pid").read_text() == f"{daemon.root_pid}\n"
    assert daemon.guard is not None
    processes = daemon.processes()
    os.kill(daemon.root_pid if number is signal.SIGHUP else daemon.guard.pid, number)
    assert daemon.wait() == status
    daemon.close_clients()
    assert not any(process.is_running() for process in processes)
    for name in WHILE_IT_RUNS:
        assert not (home / name).exists()
    # The cookie stays, so that clients are known again.
    assert (home / "daemon.cookie").exists()


def test_scenario_55_a_stop_in_the_moment_in_which_it_gets_ready_is_one(home: Path) -> None:
    """Clients find the daemon ready a little before it says so itself."""
    argv = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home)]
    root = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def is_ready() -> object:
        with (
            contextlib.suppress(OSError),
            contextlib.closing(Client(str(home / "daemon.sock"))) as c,
        ):
            return c.call("health.ready")["ready"]
        return False

    eventually(is_ready)
    root.send_signal(signal.SIGTERM)
    assert root.wait(30) == 0
    assert not any((home / name).exists() for name in WHILE_IT_RUNS)


def test_scenario_56_a_stop_answers_every_open_request(home: Path) -> None:
    daemon = RunningDaemon(home, "timeouts.agent_stop=0.5")
    daemon.start()
    client = daemon.client()
    _, running = create_agent(client)
    _, parked = create_agent(client)
    attach(client, running)
    attach(client, parked)
    turn = send_script(client, running, {"say": "on"}, {"hang": True})
    queued = send_script(client, running, {"say": "later"}, clientMessageId="q")
    waiting = client.send("message.send", sessionId=parked, content="$ echo parked")
    asked(client, parked)
    next_note(client, is_method("event.message_chunk", running))
    with web_socket(home) as web:
        cookie = (home / "daemon.cookie").read_text()
        web.send(request(1, "initialize", protocolVersion="1.0.0", authCookie=cookie))
        assert "result" in web.read()
        os.kill(daemon.root_pid, signal.SIGTERM)
        ends: dict[int, Json] = {}
        while len(ends) < 3:
            message = client.read()
            client.take(message)
            ends |= {
                number: client.answers[number]
                for number in (turn, queued, waiting)
                if number in client.answers
            }
        # What has ended is told as it ended, what will go on as not answered.
        for number in (queued, waiting):
            assert brief(within(ends[number], "error"))[:2] == (-32000, "SHUTTING_DOWN")
        if "error" in ends[turn]:
            assert brief(within(ends[turn], "error"))[:2] == (-32000, "SHUTTING_DOWN")
        else:
            assert within(ends[turn], "result")["outcome"] in {"failed", "interrupted"}
        with contextlib.suppress(ConnectionError):
            while True:
                client.take(client.read())
        assert web.close_code() == 1001
    assert daemon.wait() == 0
    daemon.close_clients()
    # The one that waited for a person still does, and the one that waited for its turn has it.
    daemon.start()
    client = daemon.client()
    attach(client, parked, "again")
    request_id = asked(client, parked)["requestId"]
    client.call("tool.approve", sessionId=parked, requestId=request_id)
    answer = client.answer(send_script(client, running, {"say": "later"}, clientMessageId="q"))
    assert (answer["outcome"], answer["disposition"]) == ("completed", "duplicate")
    assert daemon.stop() == 0


def test_scenario_56_a_runner_that_ignores_the_stop_does_not_hold_it_up(home: Path) -> None:
    daemon = RunningDaemon(home)
    daemon.start()
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, {"say": "on"}, {"hang": "hard"})
    next_note(client, is_method("event.message_chunk", session))
    processes = daemon.processes()
    began = time.monotonic()
    os.kill(daemon.root_pid, signal.SIGTERM)
    while number not in client.answers:
        client.take(client.read())
    daemon.wait()
    assert time.monotonic() - began < 10
    daemon.close_clients()
    assert not any(process.is_running() for process in processes)
    daemon.start()
    client = daemon.client()
    assert client.answer(send_script(client, session, {"say": "back"}))["outcome"] == "completed"
    assert terminals(check_log(home)[session])[:1] in (
        ["agent.turn.failed"],
        ["cancellation.completed"],
    )
    assert daemon.stop() == 0


def killed(daemon: RunningDaemon) -> None:
    """End the daemon as `kill -9` does."""
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()


def results(client: Client, session: str) -> dict[object, Json]:
    """Return how each call of a session ended, by its id."""
    found = [n for n in client.notes if event_is(session, "tool_call_completed")(n)]
    payloads = [within(note, "params", "event", "payload") for note in found]
    return {payload["callId"]: payload for payload in payloads}


def test_scenario_57_after_a_kill_in_a_turn_all_is_there_and_nothing_starts_by_itself(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    client = daemon.client()
    agent, session = create_agent(client, envOverrides={"SECRET": "x"})
    attach(client, session)
    client.answer(send_script(client, session, {"say": "before the kill"}))
    mark = tmp_path / "mark"
    steps: list[Json] = [
        {"tool": "shell", "args": {"command": f"echo x >> {mark}; exec sleep 4242"}},
        {"tool": "shell", "args": {"command": f"echo y >> {mark}"}},
    ]
    send_script(client, session, *steps, clientMessageId="m57")
    call_id = asked(client, session)["requestId"]
    client.call("tool.approve", sessionId=session, requestId=call_id)
    eventually(mark.exists)
    killed(daemon)
    daemon.start()
    client = daemon.client()
    (found,) = listed(client.call("agent.list"), "agents")
    metadata = within(found, "metadata")
    assert (found["agentId"], metadata["recovered"]) == (agent, True)
    assert within(metadata, "recovery")["envLost"] is True
    (kept,) = listed(client.call("session.list", agentId=agent), "sessions")
    assert (kept["sessionId"], kept["status"]) == (session, "idle")
    attach(client, session, "after")
    # The call that ran is never run again: what it has done is not known.
    log = check_log(daemon.home)[session]
    assert terminals(log) == ["agent.turn.failed"]
    answer = client.answer(send_script(client, session, *steps, clientMessageId="m57"))
    assert (answer["outcome"], answer["disposition"]) == ("failed", "duplicate")
    assert within(answer, "terminal")["code"] == 1
    assert check_log(daemon.home)[session] == log
    assert daemon.pid(agent) == 0
    assert mark.read_text() == "x\n"
    # The conversation is intact, and goes on.
    assert "before the kill" in str(client.call("agent.logs", agentId=agent)["transcript"])
    next_turn = client.answer(send_script(client, session, {"say": "and on"}))
    assert next_turn["outcome"] == "completed"
    transcript = str(client.call("agent.logs", agentId=agent)["transcript"])
    assert transcript.index("before the kill") < transcript.index("and on")
    assert results(client, session)[call_id]["isError"] is True


@pytest.mark.parametrize("tail", ["half a frame more", "half a frame less"])
def test_scenario_58_a_torn_end_of_the_write_ahead_log_costs_nothing_that_was_answered(
    daemon: RunningDaemon, tail: str
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    client.answer(send_script(client, session, {"say": "answered"}))
    epoch = attach(client, session)["epoch"]
    answered = check_log(daemon.home)[session]
    client.notes.clear()
    wal = daemon.home / "store.db-wal"
    size = wal.stat().st_size
    send_script(client, session, {"say": "cut" * 2_000, "chunks": 2_000, "interval_ms": 1})
    next_note(client, is_method("event.message_chunk", session))
    killed(daemon)
    assert wal.stat().st_size > size
    with wal.open("r+b") as file:
        if tail == "half a frame more":
            file.seek(0, os.SEEK_END)
            file.write(os.urandom(2_000))
        else:
            file.truncate(wal.stat().st_size - 2_000)
    daemon.start()
    client = daemon.client()
    result = attach(client, session)
    log = check_log(daemon.home)[session]
    assert log[: len(answered)] == answered
    assert terminals(log) == ["agent.turn.failed"]
    if tail == "half a frame more":
        assert result["epoch"] == epoch
    answer = client.answer(send_script(client, session, {"say": "on"}))
    assert answer["outcome"] == "completed"
    sequences = [sequence for sequence, _, _ in check_log(daemon.home)[session]]
    assert sequences == list(range(1, len(sequences) + 1))


def test_scenario_59_a_second_daemon_for_the_home_refuses_and_leaves_the_first_alone(
    daemon: RunningDaemon, home: Path
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    before = {name: (home / name).stat().st_ino for name in WHILE_IT_RUNS}
    number = send_script(client, session, {"say": "x" * 100, "chunks": 100, "interval_ms": 10})
    argv = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home)]
    for arguments in ([], ["--set", "websocket.enabled=false"]):
        ended = subprocess.run(
            [*argv, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 1
        assert "already" in ended.stderr
        assert ended.stdout == ""
    assert {name: (home / name).stat().st_ino for name in WHILE_IT_RUNS} == before
    assert client.answer(number)["outcome"] == "completed"
    assert client.call("health.ping")["ok"] is True
