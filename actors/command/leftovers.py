"""Finds and kills what commands leave behind outside their process groups.

This process becomes a subreaper, so an orphan becomes its child. Which command an orphan comes from stands in its
environment, and for one that has cleared that in a resource limit; one that has changed both goes with the last command.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from roost.actors.command.spawn import MARK
from roost.supervisor import kernel
from roost.supervisor.identity import children

if TYPE_CHECKING:
    from collections.abc import Generator

ROUNDS = 200
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.02

# "Maximum number of file locks": enforced by Linux 2.4 only, inherited by every child since, and nobody sets it.
RLIMIT_LOCKS = 10
_NUMBERS = 1 << 20


class Leftovers:
    """The commands of this process that run; children that were there before any of them are not touched."""

    def __init__(self) -> None:
        self._running: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._others = frozenset(children(os.getpid()))
        self._reaping = trio.Lock()

    @contextmanager
    def starting(self, command_id: str) -> Generator[None]:
        """Mark what is started in this block as of a command."""
        # Not before: the zygote has one of these without commands, and must not adopt what it forks.
        kernel.become_subreaper()
        limits = _locks()
        if limits is None:
            yield
            return
        self._last = (self._last + 1) % _NUMBERS
        number = os.getpid() * _NUMBERS + self._last
        resource.setrlimit(RLIMIT_LOCKS, (number, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(RLIMIT_LOCKS, limits)
        self._numbers[command_id] = number

    def started(self, pid: int, command_id: str) -> None:
        """Take note of a command."""
        self._running[pid] = command_id

    def reaped(self, pid: int) -> None:
        """The process of a command has been reaped; `clear` kills what it left."""
        self._running.pop(pid, None)

    async def reap(self) -> None:
        """Reap orphans that end by themselves, until cancelled. Of several calls at a time one works."""
        async with self._reaping:
            with trio.open_signal_receiver(signal.SIGCHLD) as signals:
                self._reap_ended()
                async for _ in signals:
                    self._reap_ended()

    def signal(self, command_id: str, number: int) -> bool:
        """Send a signal to the orphans of a command, reap orphans that have ended; return whether there were any."""
        found = False
        for pid in self._orphans():
            if _reap(pid):
                found = True
            elif self._is_of(pid, command_id):
                found = True
                # It has not been reaped, so the pid is still its own.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        return found

    async def wait_gone(self, command_id: str) -> None:
        """Wait until no orphan of a command runs. Cancelled, they run on."""
        pause = FIRST_PAUSE
        while self.signal(command_id, 0):
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def clear(self, command_id: str) -> bool:
        """Kill all that a reaped command has left; return whether nothing is left. Bounded to a few seconds."""
        pause = FIRST_PAUSE
        is_clear = False
        for _ in range(ROUNDS):
            is_clear = not self.signal(command_id, signal.SIGKILL)
            if is_clear:
                break
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        self._numbers.pop(command_id, None)
        return is_clear

    def _orphans(self) -> list[int]:
        found = children(os.getpid())
        self._others &= frozenset(found)
        return [pid for pid in found if pid not in self._running and pid not in self._others]

    def _is_of(self, pid: int, command_id: str) -> bool:
        if not self._running or f"{MARK}={command_id}".encode() in _environment(pid):
            return True
        limits = _locks(pid)
        return limits is not None and limits[0] == self._numbers.get(command_id)

    def _reap_ended(self) -> None:
        for pid in self._orphans():
            _reap(pid)


def _reap(pid: int) -> bool:
    """Reap an orphan that has ended; return whether it had."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _environment(pid: int) -> frozenset[bytes]:
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def _locks(pid: int = 0) -> tuple[int, int] | None:
    """Return the limit that serves as a mark; None where there is none, or it may not be seen."""
    if sys.platform != "linux":
        return None
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)
    except (OSError, ValueError):
        return None
