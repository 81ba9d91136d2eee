"""One task that looks after running processes: signs of life, memory, the size of their logs.

It sleeps until the next moment at which one of them is due; a process without work costs one look a minute. A sleep that
ends far too late means that this process was stopped or suspended, and perhaps all of them with it: every deadline
begins anew.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import trio

from roost.supervisor import identity
from roost.supervisor.childlog import rotate
from roost.supervisor.patience import GAP

if TYPE_CHECKING:
    from pathlib import Path

    from roost.supervisor.liveness import Liveness

WORKING_PERIOD = 5.0
IDLE_PERIOD = 60.0
MIB = 1024 * 1024


class Watched(Protocol):
    """What is needed of a process to look after it."""

    liveness: Liveness

    @property
    def pid(self) -> int:
        """Return its pid."""
        ...

    @property
    def memory_limit(self) -> int | None:
        """Return how many bytes it may have resident, None for any number."""
        ...

    @property
    def log_path(self) -> Path | None:
        """Return the file that its standard error goes to."""
        ...

    def ping(self) -> None:
        """Ask it for a sign of life."""
        ...

    def abort(self, reason: str) -> None:
        """End it by force, with a trace of what it does in its log."""
        ...


class Watch:
    """The processes that are looked after."""

    def __init__(self) -> None:
        self._look_at: dict[Watched, float] = {}
        self._until = math.inf
        self._touched = trio.Event()

    def add(self, process: Watched) -> None:
        """Look after a process from now on."""
        self._look_at[process] = math.inf
        process.liveness.reset(trio.current_time())
        self.touch(process)

    def remove(self, process: Watched) -> None:
        """Stop looking after a process; unknown ones are ignored."""
        self._look_at.pop(process, None)

    def touch(self, process: Watched) -> None:
        """Take notice that a process has begun or ended to work."""
        if process not in self._look_at:
            return
        due = trio.current_time() + self._period(process)
        self._look_at[process] = min(self._look_at[process], due)
        if min(process.liveness.due, due) < self._until:
            self._touched.set()

    async def run(self) -> None:
        """Look after the processes until cancelled."""
        while True:
            self._until = self._next_due()
            with trio.move_on_at(self._until):
                await self._touched.wait()
            self._touched = trio.Event()
            now = trio.current_time()
            if now > self._until + GAP:
                self._begin_anew(now)
            else:
                self._act(now)

    def _next_due(self) -> float:
        dues = (min(process.liveness.due, look_at) for process, look_at in self._look_at.items())
        return min(dues, default=math.inf)

    def _begin_anew(self, now: float) -> None:
        for process in self._look_at:
            process.liveness.reset(now)
            self._look_at[process] = now + self._period(process)

    def _act(self, now: float) -> None:
        for process, look_at in list(self._look_at.items()):
            action = process.liveness.act(now)
            if action == "ping":
                process.ping()
            elif action == "hung":
                process.abort("hung: its event loop gave no sign of life in time")
            elif now >= look_at:
                self._look_at[process] = now + self._period(process)
                self._look(process)

    def _look(self, process: Watched) -> None:
        rotate(process.log_path)
        limit = process.memory_limit
        if limit is not None:
            size = identity.rss(process.pid)
            if size > limit:
                process.abort(f"memory: {size // MIB} MiB resident, {limit // MIB} MiB allowed")

    def _period(self, process: Watched) -> float:
        if process.memory_limit is None and process.log_path is None:
            return math.inf
        return WORKING_PERIOD if process.liveness.working else IDLE_PERIOD
