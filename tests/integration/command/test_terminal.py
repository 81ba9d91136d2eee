"""Commands on a terminal of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.command.actor import CommandActor, CommandEnded
from roost.actors.command.spawn import StartFailed
from roost.actors.command.terminal import DEFAULT_SIZE, NotATerminal, Size
from tests.integration.command.running import Collected, alive, command, descriptors, python

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

SHELL = ("/bin/bash", "--norc", "--noprofile", "-i")
QUIET = {"PATH": os.environ["PATH"], "PS1": "", "HISTFILE": "", "HOME": "/nonexistent"}


@pytest.fixture
def bash() -> tuple[str, ...]:
    if not os.access(SHELL[0], os.X_OK):
        pytest.skip("no bash on this machine")
    return SHELL


@pytest.fixture
def inheritable() -> Generator[int]:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    yield reader
    os.close(reader)
    os.close(writer)


async def test_a_command_leads_a_session_that_its_terminal_controls() -> None:
    output = Collected()
    script = (
        "import os\n"
        "assert os.isatty(0) and os.isatty(1) and os.isatty(2)\n"
        "assert os.getsid(0) == os.getpid() == os.tcgetpgrp(0)\n"
        "os.close(os.open('/dev/tty', os.O_RDWR))\n"
        "size = os.get_terminal_size()\n"
        "print(os.environ['TERM'], size.lines, size.columns)"
    )
    with trio.fail_after(10):
        ended = await command(output, python(script), tty=DEFAULT_SIZE).run()
    assert ended == CommandEnded(0)
    assert output.streams == {0: bytearray(b"xterm-256color 24 80\r\n")}


async def test_a_type_of_terminal_given_by_the_caller_stays() -> None:
    output = Collected()
    env = {"PATH": os.environ["PATH"], "TERM": "dumb"}
    with trio.fail_after(10):
        await command(output, 'echo "$TERM"', tty=Size(1, 1), env=env).run()
    assert output.text == b"dumb\r\n"


async def test_errors_come_on_the_stream_of_the_terminal_and_bytes_are_kept() -> None:
    output = Collected()
    script = r"printf '\377\000\200' >&2; printf 'a\tb\033[1m'"
    with trio.fail_after(10):
        await command(output, script, tty=Size(24, 80)).run()
    assert output.streams == {0: bytearray(b"\xff\x00\x80a\tb\x1b[1m")}


async def test_what_is_typed_is_echoed_and_the_end_of_input_is_typed_too() -> None:
    output = Collected()
    actor = command(output, "cat; echo over", tty=Size(24, 80))
    actor.write(b"hello\n")
    actor.close_stdin()
    actor.close_stdin()
    with trio.fail_after(10):
        assert await actor.run() == CommandEnded(0)
    assert output.text.replace(b"^D\b\b", b"") == b"hello\r\nhello\r\nover\r\n"


async def test_ctrl_c_interrupts_what_runs_in_the_foreground() -> None:
    output = Collected()
    actor = command(
        output, "trap 'echo interrupted; exit 5' INT; echo up; sleep 60 & wait", tty=Size(24, 80)
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_interrupt, actor, output)
            assert await actor.run() == CommandEnded(5)
    assert b"interrupted" in output.text


async def _interrupt(actor: CommandActor, output: Collected) -> None:
    await output.until(b"up")
    actor.write(b"\x03")


async def test_ctrl_c_ends_a_program_that_does_not_care_by_its_signal() -> None:
    output = Collected()
    actor = command(output, "echo up; exec sleep 60", tty=Size(24, 80))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_interrupt, actor, output)
            assert await actor.run() == CommandEnded(None, signal.SIGINT)


async def test_a_shell_stops_a_job_and_brings_it_back(bash: tuple[str, ...]) -> None:
    output = Collected()
    actor = command(output, bash, tty=Size(24, 80), env=QUIET)

    async def talk() -> None:
        actor.write(b"sh -c 'echo u''p; read line; echo \"got <$line>\"'\n")
        await output.until(b"up\r\n")
        actor.write(b"\x1a")
        await output.until(b"Stopped")
        actor.write(b"jobs; echo in''between\n")
        await output.until(b"inbetween\r\n")
        actor.write(b"fg\n")
        await output.until(b"sh -c", 3)
        actor.write(b"line\n")
        await output.until(b"got <line>")
        actor.write(b"exit 6\n")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            assert await actor.run() == CommandEnded(6)


async def test_a_shell_ends_at_the_end_of_its_input(bash: tuple[str, ...]) -> None:
    output = Collected()
    actor = command(output, bash, tty=Size(24, 80), env=QUIET | {"PS1": "type: "})

    async def close() -> None:
        await output.until(b"type: ")
        actor.close_stdin()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            assert await actor.run() == CommandEnded(0)


async def test_a_new_size_is_told_to_the_program_in_the_middle_of_its_output() -> None:
    output = Collected()
    script = (
        "import os, signal\n"
        "sizes = []\n"
        "def note(*_): sizes.append(os.get_terminal_size())\n"
        "signal.signal(signal.SIGWINCH, note)\n"
        "while len(sizes) < 2:\n"
        "    os.write(1, b'#' * 512 + b'\\n')\n"
        "print('sizes', *(f'{size.lines}x{size.columns}' for size in sizes))"
    )
    actor = command(output, python(script), tty=Size(24, 80))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"#" * 512)
            actor.resize(Size(50, 132))
            # The second change must not meet the first one's signal while it is still pending.
            await output.until(b"#", output.text.count(b"#") + 200_000)
            actor.resize(Size(65_535, 65_535))
    assert output.text.endswith(b"sizes 50x132 65535x65535\r\n")


async def test_a_size_set_before_the_start_is_the_first_one_and_after_the_end_nothing_happens() -> (
    None
):
    output = Collected()
    actor = command(output, "stty size", tty=Size(24, 80))
    actor.resize(Size(7, 9))
    with trio.fail_after(10):
        await actor.run()
    actor.resize(Size(8, 8))
    assert output.text == b"7 9\r\n"


async def test_pipes_have_no_size() -> None:
    with pytest.raises(NotATerminal):
        command(Collected(), "true").resize(Size(1, 1))


async def test_a_shell_that_ignores_sigterm_dies_with_its_jobs(bash: tuple[str, ...]) -> None:
    output = Collected()
    actor = command(output, bash, tty=Size(24, 80), env=QUIET)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            actor.write(b"sleep 61 & echo pid=$!; sleep 62 & echo pid=$!; echo u''p\n")
            await output.until(b"up\r\n")
            actor.write(b"sh -c 'echo there; exec sleep 63'\n")
            await output.until(b"there\r\n")
            actor.write(b"\x1a")
            await output.until(b"Stopped")
            actor.terminate()
    jobs = [int(pid) for pid in re.findall(rb"pid=(\d+)", output.text)]
    assert len(jobs) == 2
    assert not any(map(alive, jobs))


async def test_what_a_shell_leaves_in_the_background_dies_with_it(bash: tuple[str, ...]) -> None:
    output = Collected()
    actor = command(output, bash, tty=Size(24, 80), env=QUIET)
    actor.write(b"nohup sh -c 'trap \"\" TERM HUP; sleep 64' & echo pid=$!; disown; exit 3\n")
    with trio.fail_after(10):
        assert await actor.run() == CommandEnded(3)
    found = re.search(rb"pid=(\d+)", output.text)
    assert found is not None
    assert not alive(int(found[1]))


async def test_a_closed_terminal_is_the_end_of_its_output_and_not_of_the_command() -> None:
    output = Collected()
    script = "echo last; exec <&- >&- 2>&-; sleep 0.1; exit 9"
    with trio.fail_after(10):
        assert await command(output, script, tty=Size(24, 80)).run() == CommandEnded(9)
    assert output.text == b"last\r\n"


async def test_a_folder_and_a_program_are_found_from_the_command_s_own_point_of_view(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mine").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "bin" / "mine").chmod(0o755)
    (tmp_path / "bin" / "plain").write_text("x")
    here = os.getcwd()
    for tty in (None, Size(24, 80)):
        for name in ("mine", "./bin/mine"):
            output = Collected()
            actor = command(output, (name,), cwd=str(tmp_path), tty=tty, env={"PATH": "/no:bin"})
            with trio.fail_after(10):
                assert await actor.run() == CommandEnded(0)
            assert output.text.split() == [str(tmp_path).encode()]
        plain = command(Collected(), ("plain",), cwd=str(tmp_path), tty=tty, env={"PATH": "bin"})
        with pytest.raises(StartFailed, match="Permission denied"):
            await plain.run()
    assert os.getcwd() == here


@pytest.mark.parametrize(
    ("argv", "cwd", "text"),
    [
        (("/no/such/program",), "/", "No such file"),
        (("no-such-program",), "/", "No such file"),
        (("/etc/passwd",), "/", "Permission denied"),
        (("/bin",), "/", "Permission denied"),
        (("true",), "/no/such/folder", "No such file"),
        (("true",), "/etc/passwd", "Not a directory"),
        (("true", "a\0b"), "/", "null"),
        (("true", "x" * 3_000_000), "/", "too long"),
    ],
)
@pytest.mark.parametrize("tty", [None, Size(24, 80)])
async def test_what_cannot_be_started_says_why_and_leaves_nothing_open(
    tty: Size | None, argv: tuple[str, ...], cwd: str, text: str
) -> None:
    actor = command(Collected(), ("true",), tty=tty)
    with trio.fail_after(10):
        await actor.run()  # what is opened once is open now
    before = descriptors()
    with pytest.raises(StartFailed, match=text):
        await command(Collected(), argv, cwd=cwd, tty=tty).run()
    assert descriptors() == before


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")
@pytest.mark.parametrize("tty", [None, Size(24, 80)])
async def test_a_command_inherits_what_it_is_meant_to_and_nothing_else(tty: Size | None) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"handed on")
    os.close(writer)
    output = Collected()
    script = (
        f"import os; print(os.read({reader}, 99), sorted(map(int, os.listdir('/proc/self/fd'))))"
    )
    actor = command(output, python(script), tty=tty, inherit=(reader,))
    with trio.fail_after(10):
        assert await actor.run() == CommandEnded(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)
    assert output.text.split(b"[")[0].strip() == b"b'handed on'"
    numbers = [int(word) for word in output.text.split(b"[")[1].strip(b"]\r\n").split(b",")]
    assert [number for number in numbers if number not in {0, 1, 2, reader}] in ([3], [4])


@pytest.mark.usefixtures("inheritable")
async def test_a_terminal_s_command_does_not_get_descriptors_of_this_process() -> None:
    output = Collected()
    with trio.fail_after(10):
        await command(output, "ls /proc/self/fd", tty=Size(24, 80)).run()
    assert set(output.words()) <= {0, 1, 2, 3}


async def test_a_full_screen_program_draws_and_quits() -> None:
    if shutil.which("top") is None:
        pytest.skip("no top on this machine")
    output = Collected()
    actor = command(output, ("top",), tty=Size(24, 80))

    async def quit_it() -> None:
        await output.until(b"PID")
        actor.resize(Size(10, 60))
        actor.write(b"q")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quit_it)
            assert await actor.run() == CommandEnded(0)
