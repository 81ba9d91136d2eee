"""An owner of commands that is killed, or whose root is, leaves nothing of them."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.supervisor.intensity import Intensity
from roost.supervisor.process import ProcessSpec
from roost.supervisor.spec import Grace, Restart
from roost.supervisor.starter import Starting
from roost.supervisor.tree import Dynamic, ProcessTree
from tests.integration.command.owner import PIDS
from tests.integration.command.running import alive
from tests.support.processes import run_tree, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.supervisor.reports import Report

HERE = str(Path(__file__).parent)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [HERE, *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("mode", ["zygote", "spawn"])
async def test_a_killed_owner_leaves_nothing_because_root_takes_it(
    tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "pids"
    reports: list[Report] = []
    tree = _tree(tmp_path, mode, file, reports.append)
    async with run_tree(tree):
        tree.ensure_child("owner")
        await until(lambda: len(pids(file)) == PIDS)
        seen = pids(file)
        assert all(map(alive, seen))
        owner = next(child.pid for child in tree.snapshot() if child.child_id == "owner")
        os.kill(owner, signal.SIGKILL)
        await until(lambda: not any(map(alive, seen)))
    assert [report.event for report in reports if report.child_id == "owner"][-1] == "give_up"


@pytest.mark.usefixtures("importable")
async def test_a_stopped_owner_ends_its_commands_itself(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    tree = _tree(tmp_path, "spawn", file, lambda _: None)
    async with run_tree(tree):
        tree.ensure_child("owner")
        await until(lambda: len(pids(file)) == PIDS)
        await tree.stop_child("owner", "enough")
        assert not any(map(alive, pids(file)))


@pytest.mark.usefixtures("importable")
async def test_a_killed_root_leaves_nothing_because_the_guard_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    root = [sys.executable, "-P", "-m", "owner", str(file)]
    guard = [sys.executable, "-P", "-m", "roost.supervisor.guard", *root]
    with trio.fail_after(20):
        process = await trio.lowlevel.open_process(guard)
        try:
            await until(lambda: len(pids(file)) == PIDS)
            seen = pids(file)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            os.kill(int(children), signal.SIGKILL)
            assert await process.wait() == 128 + signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
    assert not any(map(alive, seen))


def _tree(home: Path, mode: str, file: Path, on_report: Callable[[Report], None]) -> ProcessTree:
    payload = msgspec.msgpack.encode({"file": str(file)})

    def make(name: str) -> ProcessSpec:
        return ProcessSpec(
            id=name,
            kind="owner",
            payload=lambda: payload,
            log=home / f"{name}.log",
            restart=Restart.TRANSIENT,
            shutdown=Grace(5.0),
            ready_timeout=10.0,
            sweeps=True,
        )

    return ProcessTree(
        starting=Starting(
            mode="zygote" if mode == "zygote" else "spawn",
            entry="owner:main",
            preload=("owner",),
            spawn_module="owner",
            log=home / "zygote.log",
        ),
        services=[],
        dynamic=Dynamic(name="owners", prefix="owner", make=make, budget=Intensity(0, 60.0)),
        on_report=on_report,
    )
