"""`roost exec` before a daemon that says what the test tells it: what is asked, written and returned."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from tests.support.commands import environ, exec_command_line, exec_running, read_all, roost
from tests.support.fake_commands import KILLED, FakeCommand, as_pair
from tests.support.fake_daemon import FakeDaemon, Refusal
from tests.support.terminal import Terminal, at_terminal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.slow

LIMIT = 20
FULL = bytes(range(256)) * 64


@pytest.fixture
def fake(daemon: FakeDaemon) -> FakeCommand:
    return FakeCommand(daemon)


@asynccontextmanager
async def at(daemon: FakeDaemon, *arguments: str) -> AsyncGenerator[Terminal]:
    argv = exec_command_line(daemon.home.path, "-t", *arguments)
    async with at_terminal(argv, environ(TERM="xterm-256color")) as terminal:
        with trio.fail_after(LIMIT):
            yield terminal


async def test_bytes_come_out_as_they_are_and_the_status_is_the_commands(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(
        daemon.home.path, "--env", "A=b", "--", "some", "-x", "--", ""
    ) as process:
        await fake.write(FULL)
        await fake.write(b"\xff\x00wrong", "stderr")
        await fake.write(FULL)
        await fake.end(exitCode=7)
        assert await read_all(process.stdout) == FULL * 2
        assert await read_all(process.stderr) == b"\xff\x00wrong"
    assert process.returncode == 7
    assert fake.start is not None
    assert fake.start.command == ["some", "-x", "--", ""]
    assert fake.start.cwd == os.getcwd()
    assert fake.start.env is not None
    assert fake.start.env["A"] == "b"
    assert fake.start.sandbox_policy == {"type": "dangerFullAccess"}
    assert not fake.start.stream_stdin


async def test_the_time_limit_and_what_was_left_out_are_told(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(
        daemon.home.path, "--timeout", "1.5", "--env", "MY_TOKEN=1", "some"
    ) as process:
        start = await fake.wait_started()
        assert start.timeout_ms == 1500
        await fake.end(exitCode=124, timedOut=True, droppedEnv=["MY_TOKEN", "OTHER"])
        said = await read_all(process.stderr)
    assert process.returncode == 124
    assert said.decode().splitlines() == [
        "roost: the command was ended after 1.5 s",
        "roost: MY_TOKEN was not passed on: its name is that of a secret",
    ]


async def test_a_refusal_is_told(daemon: FakeDaemon, fake: FakeCommand) -> None:
    async with exec_running(daemon.home.path, "--sandbox", "read-only", "some") as process:
        await fake.end(Refusal(-32000, "there is no sandbox", "SANDBOX_UNAVAILABLE"))
        said = await read_all(process.stderr)
    assert said == b"roost: there is no sandbox (SANDBOX_UNAVAILABLE)\n"
    assert process.returncode == 1


async def test_a_daemon_that_goes_away_is_told_after_all_that_it_said(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(daemon.home.path, "some") as process:
        await fake.write(b"half a li")
        await fake.lose()
        assert await read_all(process.stdout) == b"half a li"
        said = await read_all(process.stderr)
    assert said == b"roost: the daemon has gone, and the command with it\n"
    assert process.returncode == 3


async def test_a_signal_ends_the_command_and_is_the_status(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(daemon.home.path, "some") as process:
        await fake.write(b"a")
        assert await process.stdout.receive_some() == b"a"  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        await fake.wait(lambda: fake.terminated)
        await read_all(process.stdout)
        assert await read_all(process.stderr) == b""
    assert process.returncode == 128 + signal.SIGINT


async def test_the_words_of_a_command_that_is_ended_are_heard_and_its_own_status_counts(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    fake.is_stubborn = True
    async with exec_running(daemon.home.path, "some") as process:
        await fake.write(b"a")
        assert await process.stdout.receive_some() == b"a"  # type: ignore[union-attr]
        process.send_signal(signal.SIGTERM)
        await fake.wait(lambda: fake.terminated)
        await fake.write(b"cleaned up")
        await fake.end(exitCode=5)
        assert await read_all(process.stdout) == b"cleaned up"
    assert process.returncode == 5


async def test_a_second_signal_does_not_wait(daemon: FakeDaemon, fake: FakeCommand) -> None:
    fake.is_stubborn = True
    async with exec_running(daemon.home.path, "some") as process:
        await fake.write(b"a")
        assert await process.stdout.receive_some() == b"a"  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        await fake.wait(lambda: fake.terminated)
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert process.returncode == 130


async def test_an_output_that_nobody_reads_ends_the_command_quietly(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(daemon.home.path, "some") as process:
        await fake.write(b"a")
        assert await process.stdout.receive_some() == b"a"  # type: ignore[union-attr]
        await process.stdout.aclose()  # type: ignore[union-attr]
        await fake.write(b"b")
        await fake.wait(lambda: fake.terminated)
        assert await read_all(process.stderr) == b""
    assert process.returncode == 128 + signal.SIGPIPE


async def test_who_does_not_read_is_not_written_to_without_a_bound(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    piece = bytes(64 * 1024)
    async with exec_running(daemon.home.path, "some") as process:
        await fake.wait_started()
        written = 0
        while True:
            with trio.move_on_after(0.5) as scope:
                await fake.write(piece)
            if scope.cancelled_caught:
                break
            written += len(piece)
            assert written < 16 * 1024 * 1024, "it takes without an end"
        process.kill()


async def test_what_is_piped_in_is_passed_on_and_ended(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    data = FULL * 64
    async with exec_running(daemon.home.path, "-i", "some", stdin=subprocess.PIPE) as process:
        start = await fake.wait_started()
        assert (start.tty, start.stream_stdin) == (False, True)
        await process.stdin.send_all(data)  # type: ignore[union-attr]
        await process.stdin.aclose()  # type: ignore[union-attr]
        await fake.wait(lambda: fake.input_closed)
        await fake.end()
    assert process.returncode == 0
    assert fake.input == data


@pytest.mark.parametrize("text", ["", "some text"])
async def test_a_file_is_an_input_too(
    daemon: FakeDaemon, fake: FakeCommand, tmp_path: Path, text: str
) -> None:
    (tmp_path / "file").write_text(text)
    fd = os.open(tmp_path / "file" if text else os.devnull, os.O_RDONLY)
    async with exec_running(daemon.home.path, "-i", "some", stdin=fd) as process:
        os.close(fd)
        await fake.wait(lambda: fake.input_closed)
        await fake.end()
    assert process.returncode == 0
    assert fake.input == text.encode()


async def test_a_command_may_end_before_its_input_does(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with exec_running(daemon.home.path, "-i", "some", stdin=subprocess.PIPE) as process:
        await fake.end(exitCode=3)
        await process.wait()
    assert process.returncode == 3


async def test_without_a_daemon_there_is_a_clear_message(tmp_path: Path) -> None:
    ended = await roost(tmp_path / "nobody", "exec", "true")
    assert ended.returncode == 3
    assert b"no daemon runs in" in ended.stderr


async def test_keys_go_to_the_command_ctrl_c_and_ctrl_d_among_them(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with at(daemon, "--env", "TERM=vt100", "some") as terminal:
        start = await fake.wait_started()
        assert start.tty
        assert as_pair(start.size) == (24, 80)
        assert start.env is not None
        assert start.env["TERM"] == "vt100"
        await fake.write(b"line\r\n")
        await terminal.expect(b"line\r\n")
        terminal.type(b"x\x03\x1a\x04\x1c\r")
        await fake.wait(lambda: fake.input == b"x\x03\x1a\x04\x1c\r")
        assert not fake.input_closed
        await fake.end(exitCode=4)
        await terminal.expect(b"restored, status 4")


async def test_each_new_size_is_passed_on(daemon: FakeDaemon, fake: FakeCommand) -> None:
    async with at(daemon, "some") as terminal:
        await fake.write(b"ready")
        await terminal.expect(b"ready")
        terminal.resize(10, 40)
        await fake.wait(lambda: fake.sizes)
        terminal.resize(50, 200)
        await fake.wait(lambda: len(fake.sizes) == 2)
        assert fake.sizes == [(10, 40), (50, 200)]
        await fake.end()
        await terminal.expect(b"restored, status 0")


async def test_a_terminal_is_restored_when_the_daemon_dies(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with at(daemon, "some") as terminal:
        await fake.write(b"\x1b[?1049h\x1b[?25l\x1b[?2004hfull screen")
        await terminal.expect(b"full screen")
        await fake.lose()
        await terminal.expect(b"\x1b[?2004l\x1b[r\x1b[?1049l\x1b[?25h")
        await terminal.expect(b"roost: the daemon has gone, and the command with it\r\n")
        await terminal.expect(b"restored, status 3")


async def test_a_terminal_is_restored_when_we_are_terminated(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with at(daemon, "some") as terminal:
        await fake.write(b"ready")
        await terminal.expect(b"ready")
        os.kill(client_below(terminal), signal.SIGTERM)
        await fake.wait(lambda: fake.terminated)
        await terminal.expect(b"restored, status 143")


async def test_an_interrupt_from_elsewhere_is_the_key_for_it(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with at(daemon, "some") as terminal:
        await fake.write(b"ready")
        await terminal.expect(b"ready")
        os.kill(client_below(terminal), signal.SIGINT)
        await fake.wait(lambda: fake.input == b"\x03")
        assert not fake.terminated
        await fake.end(dict(KILLED))
        await terminal.expect(b"restored, status 143")


async def test_a_terminal_that_is_closed_ends_the_command(
    daemon: FakeDaemon, fake: FakeCommand
) -> None:
    async with at(daemon, "some") as terminal:
        await fake.write(b"ready")
        await terminal.expect(b"ready")
    with trio.fail_after(LIMIT):
        await fake.wait(lambda: fake.terminated)
    assert fake.terminated


def client_below(terminal: Terminal) -> int:
    """Return the pid of `roost exec` at a terminal."""
    (child,) = psutil.Process(terminal.pid).children()
    return child.pid
