"""Design: what each failure costs. Every test kills a real process and then looks at what clients and the log say."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from bench.daemon import Client
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    daemon_in,
    event_is,
    eventually,
    is_method,
    next_note,
    send_script,
    status_is,
    terminals,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow

SLOW_STREAM: Json = {"say": "0123456789" * 200, "chunks": 200, "interval_ms": 10}


def text_of(notes: list[Json], session: str) -> str:
    return "".join(str(p["delta"]) for p in carriers(notes, session) if "delta" in p)


def sequences(notes: list[Json], session: str) -> list[int]:
    return [int(str(p["sequence"])) for p in carriers(notes, session)]


def test_a_killed_agent_ends_its_turn_once_as_failed_and_its_next_message_works(
    daemon: RunningDaemon,
) -> None:
    client = daemon.client()
    agent, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, SLOW_STREAM)
    next_note(client, is_method("event.message_chunk", session))
    daemon.kill(agent)
    answer = client.answer(number)
    assert answer["outcome"] == "failed"
    errors = [note for note in client.notes if status_is(session, "error")(note)]
    assert len(errors) == 1
    assert client.answer(send_script(client, session, {"say": "again"}))["outcome"] == "completed"
    events = check_log(daemon.home)[session]
    assert terminals(events) == ["agent.turn.failed"]


def test_a_tool_that_was_running_in_a_killed_agent_ends_as_unknown_and_its_process_dies(
    daemon: RunningDaemon,
) -> None:
    client = daemon.client()
    agent, session = create_agent(client)
    attach(client, session)
    number = client.send("message.send", sessionId=session, content="$ sleep 1234")
    request: Json = next_note(client, is_method("event.permission_request", session))["params"]  # type: ignore[assignment]
    client.call("tool.approve", sessionId=session, requestId=request["requestId"])
    next_note(client, event_is(session, "tool_progress"))
    eventually(lambda: sleeping(daemon, "1234"))
    daemon.kill(agent)
    assert client.answer(number)["outcome"] == "failed"
    next_note(client, event_is(session, "tool_call_completed"))
    eventually(lambda: not sleeping(daemon, "1234"))
    kinds = [kind for _, _, kind in check_log(daemon.home)[session]]
    assert kinds.count("tool.call.failed") == 1


def sleeping(daemon: RunningDaemon, seconds: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in daemon.processes():
        try:
            if process.cmdline() == ["sleep", seconds]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_thirty_agents_that_crash_stop_nobody_else(daemon: RunningDaemon) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    crashing = [create_agent(client) for _ in range(30)]
    number = send_script(client, session, SLOW_STREAM)
    for _, victim in crashing:
        send_script(client, victim, {"crash": True})
    answer = client.answer(number)
    assert answer["outcome"] == "completed"
    assert text_of(client.notes, session) == SLOW_STREAM["say"]
    for _, victim in crashing:
        answer = client.answer(send_script(client, victim, {"say": "back"}))
        assert answer["outcome"] == "completed"


def test_a_killed_store_costs_no_event_and_living_turns_go_on(daemon: RunningDaemon) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, SLOW_STREAM)
    next_note(client, is_method("event.message_chunk", session))
    for _ in range(3):
        old = daemon.kill("store")
        daemon.restarted("store", old)
    answer = client.answer(number)
    assert answer["outcome"] == "completed"
    assert text_of(client.notes, session) == SLOW_STREAM["say"]
    seen = sequences(client.notes, session)
    assert seen == list(range(seen[0], seen[0] + len(seen)))
    check_log(daemon.home)


def test_a_killed_front_disconnects_clients_who_miss_nothing_when_they_come_back(
    daemon: RunningDaemon,
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    send_script(client, session, SLOW_STREAM, clientMessageId="m1")
    next_note(client, is_method("event.message_chunk", session))
    time.sleep(0.3)
    daemon.kill("front")
    read_until_closed(client)
    before = list(client.notes)
    last = sequences(before, session)[-1]
    eventually(lambda: reconnect(daemon, session, last))
    again = daemon.clients[-1]
    answer = again.call(
        "message.send",
        sessionId=session,
        content="go",
        metadata={"script": [SLOW_STREAM]},
        clientMessageId="m1",
    )
    assert answer["outcome"] == "completed"
    assert answer["disposition"] == "duplicate"
    after = again.notes
    assert sequences(after, session)[0] == last + 1
    assert text_of(before, session) + text_of(after, session) == SLOW_STREAM["say"]


def read_until_closed(client: Client) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            client.take(client.read())


def reconnect(daemon: RunningDaemon, session: str, cursor: int) -> bool:
    try:
        client = Client(daemon.socket, initialize=False)
        client.call(
            "initialize",
            protocolVersion="1.0.0",
            capabilities={"roost.cursors": {session: cursor}},
        )
    except OSError:
        return False
    daemon.clients.append(client)
    attach(client, session)
    return True


def test_a_killed_zygote_is_felt_by_nobody_and_the_next_start_uses_a_new_one(
    daemon: RunningDaemon,
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, SLOW_STREAM)
    next_note(client, is_method("event.message_chunk", session))
    daemon.kill("zygote")
    _, other = create_agent(client)
    assert client.answer(send_script(client, other, {"say": "new"}))["outcome"] == "completed"
    assert client.answer(number)["outcome"] == "completed"
    assert text_of(client.notes, session) == SLOW_STREAM["say"]


def test_when_root_is_killed_everything_is_gone_and_the_next_start_recovers(
    home: Path, daemon: RunningDaemon
) -> None:
    client = daemon.client()
    _, streaming = create_agent(client)
    _, tool = create_agent(client)
    attach(client, streaming)
    attach(client, tool)
    send_script(client, streaming, SLOW_STREAM)
    client.send("message.send", sessionId=tool, content="$ setsid sleep 4321 & sleep 4321")
    request: Json = next_note(client, is_method("event.permission_request", tool))["params"]  # type: ignore[assignment]
    client.call("tool.approve", sessionId=tool, requestId=request["requestId"])
    eventually(lambda: len(sleeping(daemon, "4321")) == 2)
    next_note(client, is_method("event.message_chunk", streaming))
    seen = sequences(client.notes, streaming)[-1]
    processes = daemon.processes()
    os.kill(daemon.root_pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(processes[1:], timeout=2)
    assert alive == []
    assert daemon.wait() == 128 + signal.SIGKILL
    before = check_log(home)
    assert len(before[streaming]) >= seen
    daemon.close_clients()
    daemon.start()
    log = check_log(home)
    for session in (streaming, tool):
        assert log[session][: len(before[session])] == before[session]
        assert terminals(log[session]) == ["agent.turn.failed"]
    client = daemon.client()
    for session in (streaming, tool):
        answer = client.answer(send_script(client, session, {"say": "back"}))
        assert answer["outcome"] == "completed"


def test_when_guard_is_killed_root_stops_cleanly(daemon: RunningDaemon) -> None:
    create_agent(daemon.client(), "hello")
    processes = daemon.processes()
    assert daemon.guard is not None
    daemon.guard.kill()
    daemon.guard.wait()
    _, alive = psutil.wait_procs(processes[1:], timeout=15)
    assert alive == []
    if daemon.guard.stdout is not None:
        daemon.guard.stdout.close()
    daemon.guard = None
    daemon.close_clients()
    assert not (daemon.home / "daemon.json").exists()


def test_when_root_and_guard_are_killed_the_next_start_sweeps_what_is_left(
    home: Path, daemon: RunningDaemon
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    client.send("message.send", sessionId=session, content="$ setsid sleep 5432 & sleep 5432")
    request: Json = next_note(client, is_method("event.permission_request", session))["params"]  # type: ignore[assignment]
    client.call("tool.approve", sessionId=session, requestId=request["requestId"])
    eventually(lambda: len(sleeping(daemon, "5432")) == 2)
    processes = daemon.processes()
    assert daemon.guard is not None
    os.kill(daemon.guard.pid, signal.SIGKILL)
    os.kill(daemon.root_pid, signal.SIGKILL)
    daemon.wait()
    daemon.close_clients()
    daemon.start()
    _, alive = psutil.wait_procs(processes[1:], timeout=5)
    assert alive == []
    assert terminals(check_log(home)[session]) == ["agent.turn.failed"]


def test_a_clean_stop_leaves_nothing_and_restores_everything(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        assert client.answer(send_script(client, session, {"say": "one"}))["outcome"] == "completed"
        processes = daemon.processes()
        assert daemon.stop() == 0
        _, alive = psutil.wait_procs(processes, timeout=1)
        assert alive == []
    with daemon_in(home) as daemon:
        client = daemon.client()
        answer = attach(client, session)
        assert answer["lastSequence"] == len(check_log(home)[session])
        assert client.answer(send_script(client, session, {"say": "two"}))["outcome"] == "completed"


def test_a_power_cut_takes_nothing_that_was_acknowledged(home: Path, daemon: RunningDaemon) -> None:
    """What the disk had at the last answer: the file as it is, its log cut at the size that it had then."""
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    assert client.answer(send_script(client, session, {"say": "kept"}))["outcome"] == "completed"
    seen = sequences(client.notes, session)[-1]
    size = (home / "store.db-wal").stat().st_size
    send_script(client, session, SLOW_STREAM)
    next_note(client, lambda note: within(note, "params").get("delta") == "0123456789")
    copy = home / "after"
    copy.mkdir(mode=0o700)
    for name in ("store.db", "store.db-wal"):
        shutil.copy(home / name, copy / name)
    os.truncate(copy / "store.db-wal", size)
    assert daemon.stop() == 0
    with daemon_in(copy) as again:
        log = check_log(copy)[session]
        assert len(log) >= seen
        other = again.client()
        attach(other, session)
        answer = other.answer(send_script(other, session, {"say": "on"}))
        assert answer["outcome"] == "completed"
        assert "kept" in text_of(other.notes, session)


def accepted(message_id: str) -> Callable[[Json], bool]:
    return lambda note: message_id in str(note) and "message_accepted" in str(note)


@pytest.mark.parametrize("clean", [True, False])
def test_messages_that_wait_are_run_after_a_restart_of_the_daemon(
    home: Path, daemon: RunningDaemon, clean: bool
) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    attach(client, session)
    send_script(client, session, {"sleep_ms": 60_000}, clientMessageId="first")
    next_note(client, event_is(session, "user_message"))
    for name in ("second", "third"):
        send_script(client, session, {"say": name}, clientMessageId=name)
        next_note(client, accepted(name))
    if clean:
        assert daemon.stop() == 0
    else:
        os.kill(daemon.root_pid, signal.SIGKILL)
        daemon.wait()
        daemon.close_clients()
    daemon.start()
    client = daemon.client()
    for name, outcome in {"first": "failed", "second": "completed", "third": "completed"}.items():
        step: Json = {"sleep_ms": 60_000} if name == "first" else {"say": name}
        answer = client.answer(send_script(client, session, step, clientMessageId=name))
        assert (answer["outcome"], answer["disposition"]) == (outcome, "duplicate")
