"""Finds and kills what commands leave behind outside their process groups.

This process becomes a subreaper, so an orphan becomes its child. Which command an orphan comes from is told by a mark that
everything a command starts inherits: a resource limit that nothing uses, or else a variable of the environment. The mark
is read once, when the orphan is first seen, so that it cannot be changed after that. An orphan that belongs to nobody who
is still there, because it has got rid of its marks or its command has ended, is killed at once.
"""

from __future__ import annotations

import logging
import os
import resource
import secrets
import signal
import sys
from contextlib import contextmanager
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
_LIMIT_LINE = b"Max file locks"
_MARK_BITS = 62

_NOBODY = ""

_log = logging.getLogger(__name__)


class Leftovers:
    """The commands of this process, by name, and their orphans. A process has one of these.

    Children that were there before it are not touched. Any other child that is no command, like a helper program that is
    kept running, needs a name, too, or it is taken for an orphan: it is started within `starting`, named by `started`, and
    given up by `reaped` and `clear`. What it orphans lives as long as it does.
    """

    def __init__(self) -> None:
        self._running: dict[int, str] = {}
        self._marks: dict[str, int | None] = {}
        self._owners: dict[int, str] = {}
        self._orphans: dict[int, str] = {}
        self._out_of_reach: set[int] = set()
        self._others = set(children(os.getpid()))
        self._reaping = trio.Lock()

    @contextmanager
    def starting(self, command_id: str) -> Generator[None]:
        """Mark what is started in this block as of a command, which is known from then on until `clear`."""
        # Not before: the zygote has one of these without commands, and must not adopt what it forks.
        kernel.become_subreaper()
        mark, limits = secrets.randbits(_MARK_BITS), _limits()
        if limits is None or -1 < limits[1] < mark:
            yield
            self._marks[command_id] = None
            return
        resource.setrlimit(RLIMIT_LOCKS, (mark, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(RLIMIT_LOCKS, limits)
        self._marks[command_id] = mark
        self._owners[mark] = command_id

    def started(self, pid: int, command_id: str) -> None:
        """Take note of the process of a command."""
        self._running[pid] = command_id

    def reaped(self, pid: int) -> None:
        """The process of a command has been reaped; `clear` kills what it left."""
        self._running.pop(pid, None)
        if self._reaping.locked():
            self._reap_known()

    async def reap(self) -> None:
        """Reap orphans that end by themselves, until cancelled. Of several calls at a time one works."""
        async with self._reaping:
            with trio.open_signal_receiver(signal.SIGCHLD) as signals:
                self._kill_nobodys()
                self._reap_ended()
                async for _ in signals:
                    self._reap_ended()

    def signal(self, command_id: str, number: int) -> bool:
        """Send a signal to the orphans of a command, reap those that have ended; return whether there were any.

        Orphans of nobody count among them, and get SIGKILL.
        """
        found = self._look()
        for pid, owner in self._list(command_id):
            found = True
            if not self._reap(pid):
                self._send(pid, number if owner == command_id else signal.SIGKILL)
        return found

    async def wait_gone(self, command_id: str) -> None:
        """Wait until no orphan of a command runs. Cancelled, they run on."""
        pause = FIRST_PAUSE
        while self.signal(command_id, 0):
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def clear(self, command_id: str) -> bool:
        """Kill all that a reaped command has left, and forget it; return whether nothing is left.

        Bounded to a few seconds. What the kernel does not let go by then is nobody's concern any more.
        """
        pause = FIRST_PAUSE
        is_clear = False
        for _ in range(ROUNDS):
            is_clear = not self.signal(command_id, signal.SIGKILL)
            if is_clear:
                break
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        for pid, _ in self._list(command_id):
            self._give_up(pid)
        mark = self._marks.pop(command_id, None)
        if mark is not None:
            del self._owners[mark]
        return is_clear

    def _list(self, command_id: str) -> list[tuple[int, str]]:
        """Return the orphans of a command and of nobody."""
        owners = (command_id, _NOBODY)
        return [(pid, owner) for pid, owner in self._orphans.items() if owner in owners]

    def _look(self) -> bool:
        """Find out whose the orphans are that have come; return whether one had ended already.

        What is known is not looked at again: nobody else reaps an orphan, so its number stays its own.
        """
        found = set(children(os.getpid()))
        self._others &= found
        for pid in tuple(self._out_of_reach):
            self._reap(pid)
        known = self._orphans.keys() | self._running.keys() | self._out_of_reach
        has_ended = False
        for pid in found - known - self._others:
            if self._reap(pid):
                has_ended = True
            else:
                self._orphans[pid] = self._find_owner(pid)
        return has_ended

    def _find_owner(self, pid: int) -> str:
        limits = _limits(pid)
        owner = self._owners.get(limits[0]) if limits is not None else None
        if owner is None:
            names = (name.decode(errors="replace") for name in _marked_names(pid))
            owner = next((name for name in names if name in self._marks), _NOBODY)
        return owner

    def _reap_ended(self) -> None:
        """Reap the orphans that have ended, and kill those that have come and are nobody's."""
        ended = _any_ended()
        if not ended or ended in self._running:
            return  # a command's own end looks for orphans, too, and goes on here by `reaped`
        hiding = self._reap_known()
        self._kill_nobodys()
        if hiding:
            for pid in tuple(self._orphans):
                self._reap(pid)

    def _kill_nobodys(self) -> None:
        self._look()
        for pid, _ in self._list(_NOBODY):
            self._send(pid, signal.SIGKILL)

    def _reap_known(self) -> int:
        """Reap orphans without a look at each; return the child that ended and is no orphan, which hides others, or 0."""
        while (pid := _any_ended()) and pid not in self._running and pid not in self._others:
            self._reap(pid)
        return pid

    def _reap(self, pid: int) -> bool:
        """Reap an orphan that has ended; return whether it had."""
        try:
            has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            has_ended = True
        if has_ended:
            self._orphans.pop(pid, None)
            self._out_of_reach.discard(pid)
        return has_ended

    def _send(self, pid: int, number: int) -> None:
        """Send a signal to an orphan, which has not been reaped, so that the pid is still its own."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            _log.warning("process %d, which a command has left, may not be ended", pid)
            self._give_up(pid)

    def _give_up(self, pid: int) -> None:
        """Only wait for the end of what cannot be killed: another user's, or one that the kernel does not let go."""
        del self._orphans[pid]
        self._out_of_reach.add(pid)


def _any_ended() -> int:
    """Return a child that has ended and is not reaped, 0 if there is none."""
    try:
        status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return 0 if status is None else status.si_pid


def _marked_names(pid: int) -> list[bytes]:
    """Return the commands that a process is of by its environment; none if that may not be seen."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    start = f"{MARK}=".encode()
    return [entry.removeprefix(start) for entry in entries if entry.startswith(start)]


def _limits(pid: int = 0) -> tuple[int, int] | None:
    """Return the limit that serves as a mark; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)
    except PermissionError:
        return _listed_limits(pid)
    except (OSError, ValueError):
        return None


def _listed_limits(pid: int) -> tuple[int, int] | None:
    """Return the limit of another user's process, which everybody may read."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(_LIMIT_LINE):
            soft, hard = line.removeprefix(_LIMIT_LINE).split()[:2]
            return _number(soft), _number(hard)
    return None


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else resource.RLIM_INFINITY
