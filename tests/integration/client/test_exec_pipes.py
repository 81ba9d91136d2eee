"""`roost exec` with pipes through a real daemon: bytes, statuses and signals of real commands."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from tests.support.commands import environ, exec_command_line
from tests.support.daemon import RunningDaemon, daemon_in, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LIMIT = 30
BYTES = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with daemon_in(tmp_path_factory.mktemp("exec") / "h") as running:
        # Its process for commands is there from the first one on.
        client = running.client()
        policy = {"type": "dangerFullAccess"}
        client.call("commandExec.start", command=["true"], sandboxPolicy=policy)
        yield running


async def run(
    daemon: RunningDaemon, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(LIMIT):
        return await trio.run_process(
            exec_command_line(daemon.home, *arguments),
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environ(),
        )


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 200", 200), ("kill -9 $$", 137)]
)
async def test_the_exit_status_is_the_commands(
    daemon: RunningDaemon, script: str, status: int
) -> None:
    ended = await run(daemon, "sh", "-c", f"echo out; echo err >&2; {script}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, b"out\n", b"err\n")


async def test_bytes_pass_through_a_command_as_they_are(daemon: RunningDaemon) -> None:
    ended = await run(daemon, "-i", "cat", stdin=BYTES * 3)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == BYTES * 3


async def test_without_i_there_is_no_input(daemon: RunningDaemon) -> None:
    ended = await run(daemon, "cat", stdin=b"not read")
    assert (ended.returncode, ended.stdout) == (0, b"")


async def test_folder_and_variables_are_those_from_here(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    script = "pwd; echo $A"
    ended = await run(daemon, "--cwd", str(tmp_path), "--env", "A=b c", "sh", "-c", script)
    assert ended.stdout.decode() == f"{tmp_path}\nb c\n"


async def test_a_policy_refuses_by_an_error_that_the_command_can_tell(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    ended = await run(daemon, "--sandbox", "read-only", "touch", str(tmp_path / "file"))
    if b"SANDBOX_UNAVAILABLE" in ended.stderr:
        pytest.skip("there is no sandbox here")
    assert ended.returncode == 1
    assert b"touch: " in ended.stderr
    assert not (tmp_path / "file").exists()


async def test_the_time_limit_ends_the_command(daemon: RunningDaemon) -> None:
    ended = await run(daemon, "--timeout", "0.2", "sleep", "100")
    assert (ended.returncode, ended.stderr) == (
        124,
        b"roost: the command was ended after 0.2 s\n",
    )


@pytest.mark.parametrize(("name", "status"), [("/does/not/exist", 127), ("/etc/passwd", 126)])
async def test_what_is_no_program_is_told_once(
    daemon: RunningDaemon, name: str, status: int
) -> None:
    ended = await run(daemon, name)
    assert ended.returncode == status
    assert ended.stderr.count(b"failed to spawn command") == 1
    assert ended.stderr.endswith(b"\n")


async def test_a_reader_that_goes_ends_a_command_that_never_would(daemon: RunningDaemon) -> None:
    roost_exec = exec_command_line(daemon.home, "yes")
    process = subprocess.Popen(  # noqa: ASYNC220
        roost_exec, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        said = await trio.to_thread.run_sync(process.stderr.read)
        assert said == b""
        assert process.wait(LIMIT) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_all_that_the_command_has_started(
    daemon: RunningDaemon, number: signal.Signals
) -> None:
    script = "sleep 98765 & echo $$ $!; wait"
    process = subprocess.Popen(  # noqa: ASYNC220
        exec_command_line(daemon.home, "sh", "-c", script), stdout=subprocess.PIPE, env=environ()
    )
    assert process.stdout is not None
    with process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.send_signal(number)
        assert await trio.to_thread.run_sync(process.wait, LIMIT) == 128 + number
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_a_client_that_is_killed_takes_the_command_with_it(daemon: RunningDaemon) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220
        exec_command_line(daemon.home, "sh", "-c", "echo $$; exec sleep 98765"),
        stdout=subprocess.PIPE,
        env=environ(),
    )
    assert process.stdout is not None
    with process:
        pid = int(process.stdout.readline())
        process.kill()
    eventually(lambda: not psutil.pid_exists(pid), LIMIT)
