"""Finds and kills what commands leave behind outside their process groups.

This process is a subreaper, so an orphan becomes its child. Which command an orphan comes from stands in its
environment; one that has cleared that goes with the last command.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import trio

from roost.actors.command.spawn import MARK
from roost.supervisor.identity import children

ROUNDS = 200
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.02


class Leftovers:
    """The commands of this process that run; children that were there before any of them are not touched."""

    def __init__(self) -> None:
        self._running: dict[int, str] = {}
        self._others = frozenset(children(os.getpid()))

    def started(self, pid: int, command_id: str) -> None:
        """Take note of a command."""
        self._running[pid] = command_id

    def reaped(self, pid: int) -> None:
        """The process of a command has been reaped; `clear` kills what it left."""
        self._running.pop(pid, None)

    async def clear(self, command_id: str) -> bool:
        """Kill all that a reaped command has left; return whether nothing is left. Bounded to a few seconds."""
        pause = FIRST_PAUSE
        for _ in range(ROUNDS):
            if not self._kill(command_id):
                return True
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return False

    def _kill(self, command_id: str) -> bool:
        """Send SIGKILL to orphans and reap those that have ended; return whether there were any."""
        found = False
        mark = f"{MARK}={command_id}".encode()
        for pid in children(os.getpid()):
            if pid in self._running or pid in self._others:
                continue
            if _reap(pid):
                found = True
            elif not self._running or mark in _environment(pid):
                found = True
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        return found


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
