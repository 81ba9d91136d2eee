"""A real daemon for tests: start it, kill its processes, start it again on the same home, and look into its log."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

from bench.daemon import Client, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

TIMEOUT = 30.0


def eventually(claim: Callable[[], object], timeout: float = TIMEOUT) -> object:
    """Return the first true value of `claim`, asked again and again; fail when the time is over."""
    end = time.monotonic() + timeout
    while not (value := claim()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
    return value


class RunningDaemon:
    """A daemon in a home; may be started several times, one after the other."""

    def __init__(self, home: Path, *settings: str) -> None:
        self.home = home
        self.socket = str(home / "daemon.sock")
        self.settings = settings
        self.clients: list[Client] = []
        self.guard: subprocess.Popen[bytes] | None = None
        self.root_pid = 0

    def start(self) -> None:
        """Start guard and root; return when the daemon says that it is ready."""
        root = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(self.home)]
        for item in self.settings:
            root += ["--set", item]
        self.guard = subprocess.Popen(
            [sys.executable, "-P", "-m", "roost.supervisor.guard", *root],
            stdout=subprocess.PIPE,
            cwd=self.home.parent,
        )
        assert self.guard.stdout is not None
        line = self.guard.stdout.readline().decode()
        assert line.startswith("roost ready"), f"the daemon did not get ready: {line!r}"
        self.root_pid = int(line.split("pid ")[1].split(")")[0])

    def configure(self, text: str) -> None:
        """Write the configuration that the next start reads."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.toml").write_text(text)
        (self.home / "config.toml").chmod(0o600)

    def stop(self) -> int:
        """Ask it to stop; return guard's exit status."""
        self.close_clients()
        assert self.guard is not None
        self.guard.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until guard has ended and return its status."""
        assert self.guard is not None
        status = self.guard.wait(TIMEOUT)
        if self.guard.stdout is not None:
            self.guard.stdout.close()
        self.guard = None
        return status

    def client(self) -> Client:
        """Return a new initialized connection, closed with the daemon."""
        client = Client(self.socket)
        self.clients.append(client)
        return client

    def close_clients(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()

    def tree(self) -> list[Json]:
        """Return the processes as `health.stats` tells them."""
        client = Client(self.socket)
        try:
            nodes: list[Json] = client.call("health.stats")["tree"]  # type: ignore[assignment]
            return nodes
        finally:
            client.close()

    def pid(self, child_id: str) -> int:
        """Return the pid of a service or an agent; 0 while it has none."""
        for node in self.tree():
            if node["childId"] == child_id:
                return int(str(node["pid"]))
        return 0

    def processes(self) -> list[psutil.Process]:
        """Return every process below guard, guard included."""
        assert self.guard is not None
        guard = psutil.Process(self.guard.pid)
        return [guard, *guard.children(recursive=True)]

    def kill(self, child_id: str) -> int:
        """Kill a child with SIGKILL and return the pid that it had."""
        pid = self.pid(child_id)
        os.kill(pid, signal.SIGKILL)
        return pid

    def restarted(self, child_id: str, old_pid: int) -> int:
        """Wait until a service has a new process; return its pid."""

        def other() -> int:
            with contextlib.suppress(ConnectionError, FileNotFoundError):
                pid = self.pid(child_id)
                return pid if pid != old_pid else 0
            return 0

        return int(str(eventually(other)))


@contextlib.contextmanager
def daemon_in(home: Path, *settings: str) -> Generator[RunningDaemon]:
    """Run a daemon in `home` and leave nothing of it behind."""
    daemon = RunningDaemon(home, *settings)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close_clients()
        if daemon.guard is not None:
            daemon.stop()


def within(message: Json, *names: str) -> Json:
    """Return the object inside an object."""
    for name in names:
        inner: Json = message[name]  # type: ignore[assignment]
        message = inner
    return message


def create_agent(client: Client, objective: str = "", **params: object) -> tuple[str, str]:
    """Create an agent that may do anything; return its id and its session's."""
    metadata = {"sandbox": "dangerFullAccess"}
    first: Json = (
        {"objective": objective} if objective else {"objective": "work", "initialContent": []}
    )
    agent = client.call("agent.create", metadata=metadata, **first, **params)
    return str(agent["agentId"]), str(agent["sessionId"])


def attach(client: Client, session: str, name: str = "test") -> Json:
    return client.call("session.attach", sessionId=session, clientId=name)


def send_script(client: Client, session: str, *steps: Json, **params: object) -> int:
    """Send a message whose turn plays a script; return the request's number."""
    return client.send(
        "message.send", sessionId=session, content="go", metadata={"script": list(steps)}, **params
    )


def next_note(client: Client, wanted: Callable[[Json], object], timeout: float = TIMEOUT) -> Json:
    """Return the first notification, of those kept or to come, that is wanted and was not returned before."""
    client.sock.settimeout(timeout)
    at = 0
    while True:
        for note in client.notes[at:]:
            if id(note) not in client.returned and wanted(note):
                client.returned.add(id(note))
                return note
        at = len(client.notes)
        client.take(client.read())


def status_is(session: str, *statuses: str) -> Callable[[Json], bool]:
    """Return a test for an `event.agent_status` of a session."""

    def matches(note: Json) -> bool:
        params: Json = note["params"]  # type: ignore[assignment]
        return (
            note["method"] == "event.agent_status"
            and params["sessionId"] == session
            and params["status"] in statuses
        )

    return matches


def event_is(session: str, kind: str) -> Callable[[Json], bool]:
    """Return a test for an `event.session_event` of a type."""

    def matches(note: Json) -> bool:
        params: Json = note["params"]  # type: ignore[assignment]
        if note["method"] != "event.session_event" or params["sessionId"] != session:
            return False
        event: Json = params["event"]  # type: ignore[assignment]
        return event["type"] == kind

    return matches


def is_method(method: str, session: str) -> Callable[[Json], bool]:
    """Return a test for a notification's method and session."""
    return lambda note: note["method"] == method and note["params"]["sessionId"] == session  # type: ignore[index]


def carriers(notes: list[Json], session: str) -> list[Json]:
    """Return the params of the notifications that carry a stored event of the session."""
    found: list[Json] = []
    for note in notes:
        params: Json = note.get("params", {})  # type: ignore[assignment]
        metadata: Json = params.get("metadata", {})  # type: ignore[assignment]
        if params.get("sessionId") != session or "sequence" not in params:
            continue
        if not metadata.get("derived") and not metadata.get("redelivered"):
            found.append(params)
    return found


def check_log(home: Path) -> dict[str, list[tuple[int, str, str]]]:
    """Return each session's events as (sequence, id, type), having checked sequences and ids."""
    database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "select s.session_id, e.sequence, e.event_id, e.type from events e"
            " join sessions s on s.key = e.session order by s.session_id, e.sequence"
        ).fetchall()
    finally:
        database.close()
    log: dict[str, list[tuple[int, str, str]]] = {}
    for session, sequence, event_id, kind in rows:
        events = log.setdefault(session, [])
        assert sequence == len(events) + 1, f"{session}: {sequence} follows {len(events)}"
        events.append((sequence, event_id, kind))
    ids = [event_id for events in log.values() for _, event_id, _ in events]
    assert len(ids) == len(set(ids)), "an event id is used twice"
    return log


def terminals(events: list[tuple[int, str, str]]) -> list[str]:
    """Return the types of the events that end a turn in failure or by cancellation."""
    ends = {"agent.turn.failed", "agent.turn.exhausted", "cancellation.completed"}
    return [kind for _, _, kind in events if kind in ends]
