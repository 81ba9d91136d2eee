"""`roost exec -t` as people use it: full-screen programs and shells, in a window of tmux, through a real daemon."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from tests.support.commands import environ
from tests.support.daemon import daemon_in
from tests.support.exec import daemon_for_commands
from tests.support.tmux import Window, require, shell_window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

LIMIT = 60
INNER = "inner> "


@pytest.fixture(scope="module")
def daemon(shared_home: Path) -> Iterator[RunningDaemon]:
    require("tmux", "bash")
    with daemon_for_commands(shared_home) as running:
        yield running


@pytest.fixture
async def window(daemon: RunningDaemon, tmp_path: Path) -> AsyncIterator[Window]:
    with trio.fail_after(LIMIT):
        async with shell_window(tmp_path, daemon.home, environ()) as opened:
            yield opened


async def inner_shell(window: Window) -> None:
    await window.line(f"r -t --env PS1='{INNER}' bash --noprofile --norc -i")
    await inner_prompt(window)


async def inner_prompt(window: Window) -> None:
    """Wait until the inner shell wants a command; what is typed earlier a Ctrl-C or Ctrl-Z may throw away."""
    await window.expect(lambda shown: shown.endswith(INNER.strip()))


async def expect_as_before(window: Window, status: int) -> None:
    """Check that the outer shell has its terminal again, and the exit status of what it ran."""
    await window.wait_prompt()
    assert not await window.on_other_screen()
    assert (await window.ask("echo status $?")).strip() == f"status {status}"
    await expect_lines_can_be_typed(window)


async def expect_lines_can_be_typed(window: Window) -> None:
    modes = (await window.ask("stty -a")).split()
    assert {"icanon", "echo", "isig", "opost", "icrnl"} <= {mode.strip(";") for mode in modes}


async def test_vim_edits_a_file(window: Window, tmp_path: Path) -> None:
    require("vim")
    await window.line("r -t -- vim -u NONE -N -n notes.txt")
    await window.expect('"notes.txt"')
    assert await window.on_other_screen()
    await window.line("ihello from")
    await window.tell("send-keys", "-l", "vim äöü")
    await window.expect("vim äöü")
    await window.keys("Escape")
    await window.line(":wq")
    await expect_as_before(window, 0)
    assert (tmp_path / "notes.txt").read_text() == "hello from\nvim äöü\n"


async def test_top_draws_anew_at_another_size(window: Window) -> None:
    require("top")
    await window.resize(10, 40)
    await window.line("r -t -- top -d 60")
    shown = await window.expect("PID USER")
    assert "COMMAND" not in shown, "it knows how narrow the window is"
    await window.resize(30, 110)
    shown = await window.expect("COMMAND")
    await window.keys("q")
    await expect_as_before(window, 0)


async def test_less_scrolls_and_quits(window: Window, tmp_path: Path) -> None:
    require("less")
    (tmp_path / "long").write_text("".join(f"line {n}.\n" for n in range(1, 501)))
    await window.line("r -t --env LESS= -- less long")
    await window.expect("line 1.\n")
    await window.keys("Space")
    await window.expect("line 40.\n")
    await window.keys("G")
    await window.expect("line 500.\n")
    await window.keys("q")
    await expect_as_before(window, 0)


async def test_ctrl_c_interrupts_what_the_shell_runs_and_not_the_shell(window: Window) -> None:
    await inner_shell(window)
    await window.line("echo begun; sleep 100; echo not reached")
    await window.expect("\nbegun")
    await window.keys("C-c")
    await inner_prompt(window)
    await window.line("echo status $?.")
    await window.expect("status 130.")
    await window.line("exit 9")
    await expect_as_before(window, 9)


async def test_jobs_are_stopped_and_taken_up_again(window: Window, tmp_path: Path) -> None:
    await inner_shell(window)
    await window.line("echo begun; tee kept")
    await window.expect("\nbegun")
    await window.line("first")
    await window.expect("first\nfirst")
    await window.keys("C-z")
    await window.expect("Stopped")
    await inner_prompt(window)
    await window.line("jobs | wc -l; fg")
    await window.expect("1\ntee kept")
    await window.line("second")
    await window.expect("second\nsecond")
    await window.keys("C-d")
    await inner_prompt(window)
    await window.line("exit")
    await expect_as_before(window, 0)
    assert (tmp_path / "kept").read_text() == "first\nsecond\n"


async def test_the_end_of_the_input_ends_what_reads_it(window: Window) -> None:
    await window.line("r -t -- cat")
    await window.line("said")
    await window.expect("said\nsaid")
    await window.keys("C-d")
    await expect_as_before(window, 0)


async def test_piped_input_ends_at_a_terminal_too(window: Window) -> None:
    assert "a\nb" in await window.ask("printf 'a\\nb\\n' | r -t -- cat")
    await expect_as_before(window, 0)


async def test_a_client_that_is_stopped_gives_the_terminal_back_meanwhile(window: Window) -> None:
    await inner_shell(window)
    os.kill(await client_in(window), signal.SIGTSTP)
    await window.wait_prompt()
    await expect_lines_can_be_typed(window)
    await window.line("fg")
    await window.expect("exec")
    await window.keys("Enter")
    await inner_prompt(window)
    await window.line("echo begun; sleep 100")
    await window.expect("\nbegun")
    await window.keys("C-c")
    await window.expect("^C")
    await inner_prompt(window)
    await window.line("exit 0")
    await expect_as_before(window, 0)


async def test_the_terminal_is_restored_when_the_daemon_is_killed(tmp_path: Path) -> None:
    require("tmux", "bash", "vim")
    with trio.fail_after(LIMIT), daemon_in(tmp_path / "h") as other:
        async with shell_window(tmp_path, other.home, environ()) as window:
            await window.line("r -t -- vim -u NONE -N -n notes.txt")
            await window.expect('"notes.txt"')
            os.kill(other.root_pid, signal.SIGKILL)
            assert other.wait() != 0
            shown = await window.wait_prompt()
            # Its other processes end one after the other; the first of them may still be told of.
            assert "the daemon has gone" in shown or "has ended, and what it ran" in shown
            await expect_as_before(window, 1 if "has ended" in shown else 3)


async def client_in(window: Window) -> int:
    """Return the pid of what the outer shell runs."""
    (client,) = psutil.Process(await window.shell_pid()).children()
    return client.pid
