"""How long a command in a sandbox takes from its start to its known end, on each backend that works here."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from bench.report import Figure
from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.leftovers import Leftovers
from roost.actors.sandbox.launch import launch
from roost.actors.sandbox.policy import Policy
from roost.actors.sandbox.probe import find_backend
from roost.config.load import default_settings

if TYPE_CHECKING:
    from roost.schemas.boot import Backend

ROUNDS = 100
WARM_UP = 10
POLICY = Policy(type="workspaceWrite")


def run() -> list[Figure]:
    """Run `true` under `workspaceWrite`, in turns with `subprocess.run`; the launch itself is counted too."""
    rules = default_settings().sandbox
    found = [
        find_backend(msgspec.structs.replace(rules, backend=name))
        for name in ("bubblewrap", "landlock")
    ]
    return [trio.run(_measure, backend) for backend in found if backend.name]


async def _measure(backend: Backend) -> Figure:
    true = shutil.which("true") or "true"
    ours: list[float] = []
    bare: list[float] = []
    leftovers = Leftovers()
    with tempfile.TemporaryDirectory() as folder:
        _make_folders(folder)
        for _ in range(WARM_UP + ROUNDS):
            bare.append(_bare(true))
            ours.append(await _once(backend, true, folder, leftovers))
    mine, floor = statistics.median(ours[WARM_UP:]), statistics.median(bare[WARM_UP:])
    name = f"`true` in a sandbox ({backend.name}), start to end, p50"
    text = f"{mine * 1e3:.1f} ms, {mine / floor:.1f} × `subprocess.run`"
    return Figure(name, text, f"{floor * 1e3:.2f} ms", "", None)


def _make_folders(folder: str) -> None:
    for name in ("home", "work"):
        Path(folder, name).mkdir()


def _bare(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([program], check=True)
    return time.perf_counter() - began


async def _once(backend: Backend, program: str, folder: str, leftovers: Leftovers) -> float:
    began = time.perf_counter()
    wanted = launch(
        POLICY,
        backend,
        (program,),
        f"{folder}/work",
        dict(os.environ),
        home=f"{folder}/home",
        rules=default_settings().sandbox,
    )
    spec = CommandSpec(command_id="true", argv=wanted.argv, cwd=wanted.cwd, env=wanted.env)
    ended = await CommandActor(spec, leftovers, _nothing).run()
    assert ended.exit_code == 0
    return time.perf_counter() - began


def _nothing(stream: int, data: bytes) -> None:
    raise AssertionError((stream, data))
