"""Commands of a client (`commandExec.*`) for tests: started, fed, their output gathered, and nothing of them left."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from tests.support.daemon import daemon_in, eventually, next_note

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from bench.daemon import Client, Json
    from tests.support.daemon import RunningDaemon

FULL: Json = {"sandboxPolicy": {"type": "dangerFullAccess"}}
STREAMED: Json = {"streamStdoutStderr": True, "processId": "p"}


@contextmanager
def daemon_for_commands(home: Path) -> Generator[RunningDaemon]:
    """Run a daemon whose process for commands is there already; it comes with the first one."""
    with daemon_in(home) as running:
        assert run(running.client(), "true")["exitCode"] == 0
        yield running


def start(client: Client, *argv: str, **params: object) -> int:
    """Ask for a command; return the request's number."""
    return client.send("commandExec.start", command=list(argv), **{**FULL, **params})


def run(client: Client, *argv: str, **params: object) -> Json:
    """Run a command to its end and return the answer."""
    return client.answer(start(client, *argv, **params))


def shell(client: Client, script: str, **params: object) -> Json:
    """Run a script to its end and return the answer."""
    return run(client, "sh", "-c", script, **params)


def deltas(client: Client, process_id: str = "p") -> list[Json]:
    """Return the params of the output notifications that have come for a command."""
    found: list[Json] = []
    for note in client.notes:
        params: Json = note["params"]  # type: ignore[assignment]
        if note["method"] == "commandExec.outputDelta" and params["processId"] == process_id:
            found.append(params)
    return found


def output(client: Client, process_id: str = "p", stream: str = "stdout") -> bytes:
    """Return the output that has come for a command."""
    return b"".join(
        base64.b64decode(str(delta["deltaBase64"]), validate=True)
        for delta in deltas(client, process_id)
        if delta["stream"] == stream
    )


def wait_output(client: Client, wanted: bytes, process_id: str = "p") -> bytes:
    """Read until the output of a command has something in it; return all of it."""
    while wanted not in (found := output(client, process_id)):
        next_note(client, lambda note: note["method"] == "commandExec.outputDelta")
    return found


def write(client: Client, data: bytes, process_id: str = "p", **params: object) -> Json:
    """Write to a command's input and wait for the answer."""
    delta = base64.b64encode(data).decode()
    return client.call("commandExec.write", processId=process_id, deltaBase64=delta, **params)


def below(daemon: RunningDaemon) -> list[psutil.Process]:
    """Return what runs below the commands service."""
    pid = daemon.pid("commands")
    if not pid:
        return []
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def none_left(daemon: RunningDaemon) -> bool:
    """Return whether no process of any command is left, running or not reaped."""
    return not below(daemon)


def wait_none_left(daemon: RunningDaemon) -> None:
    """Wait until no process of any command is left."""
    eventually(lambda: none_left(daemon))
