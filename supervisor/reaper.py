"""The one place in root that waits for children: takes every status and hands it to its owner by pid.

Before a child is reaped its process group is killed: until then the pid, and with it the group's number, cannot belong
to anybody else. A status that nobody has claimed is kept only while a fork is outstanding, whose pid is not known yet.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec
import trio

from roost.supervisor import identity


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: an exit status, or the signal that ended it (the other one is None)."""

    code: int | None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit status {self.code}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(self.signal).name}"
        return f"ended by signal {self.signal}"


OnExit = Callable[[ExitStatus], None]


class Reaper:
    """Children of this process by pid, and who wants to know of their end."""

    def __init__(self) -> None:
        self._owners: dict[int, OnExit] = {}
        self._unclaimed: dict[int, ExitStatus] = {}
        self._before: set[int] = set()  # children that this process had already; not ours to kill
        self._outstanding = 0
        self._sweep_wanted = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reap until cancelled; this must be the main thread of the process."""
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            self._before = set(identity.children(os.getpid()))
            task_status.started()
            self.reap()
            async for _ in signals:
                self.reap()

    @contextmanager
    def fork_outstanding(self) -> Generator[None]:
        """Keep every status inside this block: one of them may be that of a child whose pid is on its way."""
        self._outstanding += 1
        try:
            yield
        finally:
            self._outstanding -= 1
            if not self._outstanding:
                if self._unclaimed:
                    self._unclaimed.clear()
                    self._sweep_wanted = True
                self._sweep()

    def claim(self, pid: int, on_exit: OnExit) -> None:
        """Call `on_exit` once when this child has ended, at once if it has already. It must not raise."""
        status = self._unclaimed.pop(pid, None)
        if status is None:
            self._owners[pid] = on_exit
        else:
            on_exit(status)

    def kill_strangers(self) -> None:
        """Kill the children of this process that nobody has claimed, and what they leave in turn.

        They are orphans of a child that has ended. While a fork is outstanding this waits for its end.
        """
        self._sweep_wanted = True
        self._sweep()

    def reap(self) -> None:
        """Take the status of every child that has ended."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            self._reap_one(found.si_pid)
        self._sweep()

    def _reap_one(self, pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        taken = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        if taken is None:
            return
        exited = taken.si_code == os.CLD_EXITED
        status = ExitStatus(taken.si_status) if exited else ExitStatus(None, taken.si_status)
        self._before.discard(pid)
        owner = self._owners.pop(pid, None)
        if owner is not None:
            owner(status)
        elif self._outstanding:
            self._unclaimed[pid] = status
        else:
            self._sweep_wanted = True  # a stranger may have left strangers

    def _sweep(self) -> None:
        if self._outstanding or not self._sweep_wanted:
            return
        self._sweep_wanted = False
        for pid in identity.children(os.getpid()):
            if pid not in self._owners and pid not in self._before:
                # It has not been reaped, so the pid is still its own. Its end raises SIGCHLD.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
