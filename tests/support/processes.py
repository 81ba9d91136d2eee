"""A tree of real processes for tests: children of `children.py`, what was reported of them, and waits for it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import psutil
import trio

from roost.supervisor.intensity import Intensity
from roost.supervisor.process import ProcessSpec
from roost.supervisor.spec import Grace, Restart
from roost.supervisor.starter import Starting
from roost.supervisor.tree import Dynamic, ProcessTree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    import pytest

    from roost.supervisor.reports import Report

SUPPORT = Path(__file__).parent
Mode = Literal["zygote", "spawn"]


def stand_still(pid: int) -> None:
    """Stop a process, and return once it stands still; SIGCONT lets it go on."""
    os.kill(pid, signal.SIGSTOP)
    process = psutil.Process(pid)
    while process.status() != psutil.STATUS_STOPPED:
        # The signal takes effect when the process next enters the kernel.
        time.sleep(0.001)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something outside that raises no event is so; a time limit is the caller's."""
    while not holds():  # noqa: ASYNC110 - what is outside raises no event
        await trio.sleep(0.01)


class Forest:
    """What a test says about a tree and sees of it."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
        self.home = home
        self.mode: Mode = mode
        self.reports: list[Report] = []
        self.note = home / "note"
        self._news = trio.Event()
        old = os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(SUPPORT), old])))

    def spec(
        self,
        name: str,
        kind: str,
        restart: Restart = Restart.TRANSIENT,
        *,
        commands: bool = False,
        sweeps: bool = False,
        grace: float = 2.0,
        ready_timeout: float = 10.0,
        hang_timeout: float | None = None,
        memory_limit: int | None = None,
        **plan: object,
    ) -> ProcessSpec:
        payload = msgspec.msgpack.encode({"note": str(self.note), **plan})
        return ProcessSpec(
            id=name,
            kind=kind,
            payload=lambda: payload,
            log=self.home / f"{name}.log",
            restart=restart,
            shutdown=Grace(grace),
            ready_timeout=ready_timeout,
            hang_timeout=hang_timeout,
            memory_limit=memory_limit,
            commands=commands,
            sweeps=sweeps,
        )

    def maker(
        self,
        kind: str,
        *,
        sweeps: bool = False,
        grace: float = 2.0,
        ready_timeout: float = 10.0,
        hang_timeout: float | None = None,
        memory_limit: int | None = None,
        **plan: object,
    ) -> Callable[[str], ProcessSpec]:
        """Return what makes the spec of a dynamic child of this kind."""
        return lambda name: self.spec(
            name,
            kind,
            Restart.TRANSIENT,
            commands=False,
            sweeps=sweeps,
            grace=grace,
            ready_timeout=ready_timeout,
            hang_timeout=hang_timeout,
            memory_limit=memory_limit,
            **plan,
        )

    def on_report(self, report: Report) -> None:
        self.reports.append(report)
        self._news.set()
        self._news = trio.Event()

    async def wait_for(self, child: str, event: str, count: int = 1) -> Report:
        """Wait until this has been reported of a child for the `count`-th time."""
        while True:
            found = [r for r in self.reports if r.child_id == child and r.event == event]
            if len(found) >= count:
                return found[count - 1]
            await self._news.wait()

    async def wait_for_note(self, text: str, count: int = 1) -> str:
        """Wait until children have noted so many lines with this text; return the last of them."""
        await until(lambda: sum(text in line for line in self.notes()) >= count)
        return [line for line in self.notes() if text in line][-1]

    def notes(self) -> list[str]:
        return self.note.read_text().splitlines() if self.note.exists() else []

    def events(self, child: str) -> list[str]:
        return [report.event for report in self.reports if report.child_id == child]

    def log(self, child: str) -> str:
        return (self.home / f"{child}.log").read_text()

    def starting(self) -> Starting:
        return Starting(
            mode=self.mode,
            entry="children:main",
            preload=("children",),
            warm_up="children:warm_up",
            spawn_module="children",
            log=self.home / "zygote.log",
        )

    def tree(
        self,
        make: Callable[[str], ProcessSpec] | None = None,
        *,
        services: Sequence[ProcessSpec] = (),
        links: Sequence[tuple[str, str]] = (),
        watchers: tuple[str, ...] = (),
        budget: Intensity | None = None,
        intensity: Intensity | None = None,
    ) -> ProcessTree:
        return ProcessTree(
            starting=self.starting(),
            services=services,
            dynamic=Dynamic(
                name="agents",
                prefix="agent:",
                make=make or (lambda name: self.spec(name, "well")),
                budget=budget or Intensity(5, 60.0),
                watchers=watchers,
            ),
            links=links,
            on_report=self.on_report,
            intensity=intensity or Intensity(10, 60.0),
        )


@asynccontextmanager
async def run_tree(tree: ProcessTree, limit: float = 30.0) -> AsyncGenerator[ProcessTree]:
    """Run a tree for the length of a block, and at most for `limit` seconds; stop it in order."""
    with trio.fail_after(limit):
        async with trio.open_nursery() as nursery:
            await nursery.start(tree.run)
            yield tree
            await tree.stop("the test ends")
