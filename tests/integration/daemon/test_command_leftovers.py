"""Programs that hide what they have started: nothing of it outlives its command, whatever ends that, over a real daemon."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.cage import BACKENDS, BackendName, backend_of
from tests.support.daemon import RunningDaemon, daemon_in, eventually
from tests.support.exec import STREAMED, below, output, run, start, wait_none_left, wait_output
from tests.support.left_behind import none_left_behind
from tests.support.scenarios import brief, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow

# It detaches twice, gets rid of all marks that it may, and says who it is, before its command goes on.
PROGRAM = """
import os, resource, signal, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            resource.setrlimit(10, (resource.RLIM_INFINITY,) * 2)
        except (OSError, ValueError):
            pass
        os.dup2(writer, 1)
        os.dup2(os.open('/dev/null', os.O_RDWR), 2)
        os.closerange(3, 100)
        os.execve('/bin/sh', ['sh', '-c', 'echo $$; exec >/dev/null; exec sleep 1000'], {})
    os._exit(0)
os.wait()
os.write(1, os.read(reader, 99))
time.sleep(float(sys.argv[1]))
"""
HIDING = (sys.executable, "-IS", "-c", PROGRAM)
FULL: Json = {"type": "dangerFullAccess"}
WORKSPACE: Json = {"type": "workspaceWrite"}
KINDS: dict[str, Json] = {
    "pipes": {**STREAMED, "sandboxPolicy": FULL},
    "terminal": {"tty": True, "processId": "t", "sandboxPolicy": FULL},
    "sandbox": {"streamStdoutStderr": True, "processId": "s", "sandboxPolicy": WORKSPACE},
}
each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    with none_left_behind():
        yield


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> BackendName:
    found: BackendName = request.param
    backend_of(found)
    return found


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, backend: BackendName
) -> Iterator[RunningDaemon]:
    with daemon_in(tmp_path_factory.mktemp("d"), f"sandbox.backend={backend}") as running:
        yield running


@pytest.fixture
def other(shared: RunningDaemon) -> Iterator[psutil.Process]:
    """A command of another client that runs during the test; nothing else may be left at the end."""
    client = shared.client()
    start(client, "sleep", "1000")
    eventually(lambda: below(shared))
    yield below(shared)[0]
    client.close()
    wait_none_left(shared)


@each
def test_what_hides_ends_with_its_command_though_another_goes_on(
    shared: RunningDaemon, other: psutil.Process, kind: str
) -> None:
    client = shared.client()
    assert run(client, *HIDING, "0", **KINDS[kind])["exitCode"] == 0
    assert below(shared) == [other]
    assert output(client, str(KINDS[kind]["processId"])).strip().isdigit()


@each
def test_what_hides_ends_with_the_owner_of_its_command(
    shared: RunningDaemon, other: psutil.Process, kind: str
) -> None:
    client = shared.client()
    start(client, *HIDING, "1000", **KINDS[kind])
    wait_output(client, b"\n", str(KINDS[kind]["processId"]))
    client.close()
    eventually(lambda: below(shared) == [other])
    assert other.is_running()


@pytest.mark.parametrize("killed", ["commands", "front", "root"])
def test_what_hides_ends_when_a_process_of_the_daemon_is_killed(
    home: Path, backend: BackendName, killed: str
) -> None:
    with daemon_in(home, f"sandbox.backend={backend}") as daemon:
        client = daemon.client()
        numbers = [start(client, *HIDING, "1000", **params) for params in KINDS.values()]
        for params in KINDS.values():
            wait_output(client, b"\n", str(params["processId"]))
        left = below(daemon)
        assert len(left) >= 2 * len(KINDS)
        if killed == "root":
            os.kill(daemon.root_pid, signal.SIGKILL)
            assert daemon.wait() != 0
            assert not any(map(is_alive, left))
            return
        daemon.kill(killed)
        if killed == "commands":
            for number in numbers:
                assert brief(refusal(client, number))[:2] == (-32603, "INTERNAL")
        eventually(lambda: not any(map(is_alive, left)))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
