"""How long a command takes from its start to its known end, against `subprocess.run` in turns with it."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

import trio

from bench.report import Figure
from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.leftovers import Leftovers
from roost.actors.command.terminal import DEFAULT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.command.terminal import Size

ROUNDS = 400
WARM_UP = 50
MOST = 2.0


def run() -> list[Figure]:
    """Run `true` on pipes and on a terminal, in turns with `subprocess.run` that captures nothing, and something."""
    return trio.run(_measure)


async def _measure() -> list[Figure]:
    env = dict(os.environ)
    true = shutil.which("true") or "true"
    leftovers = Leftovers()
    plain: list[float] = []
    captured: list[float] = []
    pipes: list[float] = []
    terminal: list[float] = []
    for count in range(WARM_UP + ROUNDS):
        if count == WARM_UP:
            for times in (plain, captured, pipes, terminal):
                times.clear()
        _timed(plain, lambda: subprocess.run([true], check=True))
        await _command(pipes, true, env, None, leftovers)
        _timed(captured, lambda: subprocess.run([true], check=True, capture_output=True))
        await _command(terminal, true, env, DEFAULT_SIZE, leftovers)
    return [
        _figure("`true` on pipes, start to end, p50", pipes, plain, bound=True),
        _figure("… against `subprocess.run` with `capture_output`", pipes, captured, bound=True),
        _figure("`true` on a terminal, start to end, p50", terminal, plain, bound=False),
    ]


def _timed(times: list[float], call: Callable[[], object]) -> None:
    began = time.perf_counter()
    call()
    times.append(time.perf_counter() - began)


async def _command(
    times: list[float], true: str, env: dict[str, str], tty: Size | None, leftovers: Leftovers
) -> None:
    spec = CommandSpec(command_id="true", argv=(true,), cwd="/", env=env, tty=tty)
    began = time.perf_counter()
    ended = await CommandActor(spec, leftovers, _nothing).run()
    times.append(time.perf_counter() - began)
    assert ended.exit_code == 0


def _nothing(stream: int, data: bytes) -> None:
    raise AssertionError((stream, data))


def _figure(name: str, ours: list[float], floor: list[float], *, bound: bool) -> Figure:
    mine, bare = statistics.median(ours), statistics.median(floor)
    ratio = mine / bare
    return Figure(
        name,
        f"{mine * 1e3:.2f} ms, {ratio:.2f} × `subprocess.run`",
        f"{bare * 1e3:.2f} ms",
        f"at most {MOST} ×" if bound else "",
        ratio <= MOST if bound else None,
    )
