"""A terminal with a program at it, as a user has one: what is shown can be expected, keys typed, the size changed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import shlex
import signal
import struct
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psutil
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

LIMIT = 20
# What stands around a program, which is thus not alone in its session, and looks after the terminal's modes.
CHECKED = """
before=$(stty -g)
{command}
status=$?
if [ "$before" = "$(stty -g)" ]; then echo "restored, status $status"; else echo "changed, status $status"; fi
"""


class Terminal:
    """The user's side of it."""

    def __init__(self, fd: int, pid: int) -> None:
        self._fd = fd
        self.pid = pid
        self.seen = b""
        self._at = 0

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    async def expect(self, text: bytes) -> None:
        """Read until `text` is shown, behind what was expected before; fail if it is not."""
        with trio.fail_after(LIMIT):
            while (found := self.seen.find(text, self._at)) < 0:
                assert await self.read(), f"{text!r} is not in {self.seen[self._at :]!r}"
        self._at = found + len(text)

    async def read(self) -> bytes:
        """Return what is shown next, nothing when there will be no more."""
        await trio.lowlevel.wait_readable(self._fd)
        try:
            data = os.read(self._fd, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""
        self.seen += data
        return data

    def resize(self, rows: int, cols: int) -> None:
        set_size(self._fd, rows, cols)


def set_size(fd: int, rows: int, cols: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))


@asynccontextmanager
async def at_terminal(
    argv: Sequence[str], env: Mapping[str, str], rows: int = 24, cols: int = 80
) -> AsyncGenerator[Terminal]:
    """Run a program at a terminal; the last line says whether the terminal is as it was, and the exit status.

    When the block is left the terminal is closed, which is to end who is at it.
    """
    ours, theirs = pty.openpty()
    set_size(theirs, rows, cols)
    pid = _start(CHECKED.format(command=shlex.join(argv)), env, os.ttyname(theirs))
    os.close(theirs)
    try:
        yield Terminal(ours, pid)
    finally:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.close(ours)
        with trio.CancelScope(shield=True):
            for process in processes:
                await wait_end(process.pid)


def _start(script: str, env: Mapping[str, str], name: str) -> int:
    """Run a script as the leader of a session at the terminal of that name; return its pid."""
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", script],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )


async def wait_end(pid: int) -> None:
    """Wait until a process has ended, and reap it if it is ours or was left to us."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            with trio.move_on_after(LIMIT) as scope:
                await trio.lowlevel.wait_readable(pidfd)
            if scope.cancelled_caught:
                os.kill(pid, signal.SIGKILL)
                await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 # it has ended
