"""`roost exec` with pipes through a real daemon: bytes, statuses and signals of real commands."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from tests.support.commands import command, environ, exec_command_line, exec_running, read_all
from tests.support.daemon import RunningDaemon, eventually
from tests.support.exec import daemon_for_commands

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LIMIT = 30
BYTES = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def daemon(shared_home: Path) -> Iterator[RunningDaemon]:
    with daemon_for_commands(shared_home) as running:
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


async def first_line(process: trio.Process) -> bytes:
    """Return the first line that is written, or less if nothing more comes."""
    line = b""
    assert process.stdout is not None
    while not line.endswith(b"\n") and (more := await process.stdout.receive_some(1)):
        line += more
    return line


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
    async with exec_running(daemon.home, "yes") as process:
        assert process.stdout is not None
        assert (await process.stdout.receive_some()).startswith(b"y\n")
        await process.stdout.aclose()
        assert await read_all(process.stderr) == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_all_that_the_command_has_started(
    daemon: RunningDaemon, number: signal.Signals
) -> None:
    script = "sleep 98765 & echo $$ $!; wait"
    async with exec_running(daemon.home, "sh", "-c", script) as process:
        pids = [int(pid) for pid in (await first_line(process)).split()]
        process.send_signal(number)
    assert process.returncode == 128 + number
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_in_a_sandbox_the_status_names_the_signal_that_came_here(
    daemon: RunningDaemon,
) -> None:
    sandboxed = ("--sandbox", "read-only", "sh", "-c", "echo ready; sleep 98765")
    async with exec_running(daemon.home, *sandboxed) as process:
        if await first_line(process) != b"ready\n":
            assert b"SANDBOX_UNAVAILABLE" in await read_all(process.stderr)
            pytest.skip("there is no sandbox here")
        process.send_signal(signal.SIGINT)
        assert await read_all(process.stderr) == b""
    assert process.returncode == 128 + signal.SIGINT


async def test_a_client_that_is_killed_takes_the_command_with_it(daemon: RunningDaemon) -> None:
    async with exec_running(daemon.home, "sh", "-c", "echo $$; exec sleep 98765") as process:
        pid = int(await first_line(process))
        process.kill()
    eventually(lambda: not psutil.pid_exists(pid), LIMIT)
    assert process.returncode == -signal.SIGKILL


async def test_an_input_that_cannot_be_read_is_told(daemon: RunningDaemon) -> None:
    async with exec_running(daemon.home, "-i", "cat", redirection="0>/dev/null") as process:
        assert await read_all(process.stderr) == b"roost: standard input: Bad file descriptor\n"
    assert process.returncode == 1


@pytest.mark.parametrize("arguments", [("ps",), ("status",), ("up",), ("exec", "true")])
@pytest.mark.parametrize("autostart", ["0", "1"])
async def test_roost_in_a_command_says_that_it_is_not_let_in(
    daemon: RunningDaemon, arguments: tuple[str, ...], autostart: str
) -> None:
    inner = ("--env", f"ROOST_AUTOSTART={autostart}", "--", *command(daemon.home, *arguments))
    path = ("--env", "PYTHONPATH")
    ended = await run(daemon, *path, *inner)
    assert ended.returncode == 1
    assert b"lets only its own user in, and no process that runs under it" in ended.stderr
    assert daemon.pid("front"), "the daemon goes on"
