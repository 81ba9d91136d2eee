"""A shell in a window of tmux, a terminal that keeps a real screen: keys are typed and the screen is read."""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from tests.support.commands import exec_command_line
from tests.support.terminal import wait_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path

LIMIT = 20
POLL = 0.05
PROMPT = "outer> "


def require(*programs: str) -> None:
    """Skip the test on a machine that has not all of these."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")


class Window:
    """The only window of a tmux of its own."""

    def __init__(self, socket: Path) -> None:
        self.argv = ["tmux", "-S", os.fspath(socket), "-f", "/dev/null"]

    async def tell(self, *arguments: str) -> str:
        """Give tmux a command and return what it says."""
        done = await trio.run_process([*self.argv, *arguments], capture_stdout=True)
        return done.stdout.decode()

    async def keys(self, *names: str) -> None:
        """Type keys by their names in tmux."""
        await self.tell("send-keys", *names)

    async def line(self, text: str) -> None:
        """Type a text and Enter."""
        await self.tell("send-keys", "-l", text)
        await self.keys("Enter")

    async def screen(self) -> str:
        """Return what is shown, without empty lines at the end."""
        return (await self.tell("capture-pane", "-p")).rstrip()

    async def expect(self, claim: str | Callable[[str], object]) -> str:
        """Return the screen as soon as it has a text, or is as the claim says; fail if it does not come to that."""
        shown = ""
        with trio.move_on_after(LIMIT):
            while True:
                shown = await self.screen()
                if claim in shown if isinstance(claim, str) else claim(shown):
                    return shown
                await trio.sleep(POLL)
        raise AssertionError(f"{claim!r} is not what is shown:\n{shown}")

    async def wait_prompt(self) -> str:
        """Wait until the outer shell wants a command; return the screen."""
        return await self.expect(lambda shown: shown.endswith(PROMPT.strip()))

    async def ask(self, text: str) -> str:
        """Have the outer shell run a command; return what is shown behind its line."""
        await self.keys("C-l")
        await self.expect(lambda shown: shown.strip() == PROMPT.strip())
        await self.line(text)
        prompt = PROMPT.strip()
        # The first is the one of this line.
        shown = await self.expect(lambda now: now.count(prompt) > 1 and now.endswith(prompt))
        return shown.partition("\n")[2].rpartition("\n")[0]

    async def resize(self, rows: int, cols: int) -> None:
        await self.tell("resize-window", "-x", str(cols), "-y", str(rows))

    async def shell_pid(self) -> int:
        return int(await self.tell("display-message", "-p", "#{pane_pid}"))

    async def on_other_screen(self) -> bool:
        """Return whether a full-screen program has the screen."""
        return (await self.tell("display-message", "-p", "#{alternate_on}")).strip() == "1"


@asynccontextmanager
async def shell_window(
    folder: Path, home: Path, env: Mapping[str, str], rows: int = 24, cols: int = 80
) -> AsyncGenerator[Window]:
    """Run a shell in `folder`, in which `r` is `roost exec` for a home; all of it ends with the block."""
    call = shlex.join(exec_command_line(home))
    (folder / "rc").write_text(
        f"PS1='{PROMPT}'\nHISTFILE=\nset +o history\nr() {{ {call} \"$@\"; }}\n"
    )
    window = Window(folder / "tmux")
    environment = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    # In the foreground, so that it is our child.
    serve = partial(trio.run_process, [*window.argv, "-D"], check=False, env=environment)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await _until_exists(folder / "tmux")
        shell = ["bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i"]
        size = ["-x", str(cols), "-y", str(rows)]
        await window.tell("new-session", "-d", *size, "-c", str(folder), *shell)
        inside = psutil.Process(await window.shell_pid())
        try:
            await window.wait_prompt()
            yield window
        finally:
            processes = [inside, *inside.children(recursive=True)]
            with trio.CancelScope(shield=True):
                await window.tell("kill-server")
                for process in processes:
                    await wait_end(process.pid)


async def _until_exists(path: Path) -> None:
    with trio.fail_after(LIMIT):
        while not path.exists():  # noqa: ASYNC110 # another process makes it
            await trio.sleep(POLL)
