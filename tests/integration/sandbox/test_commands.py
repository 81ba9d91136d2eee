"""Commands in a sandbox as the daemon runs them: terminals, signals, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest
import trio

from roost.actors.command.actor import CommandEnded
from roost.actors.command.terminal import Size
from roost.actors.sandbox.launch import Launch, launch
from tests.integration.command.running import Collected, command, python
from tests.support.cage import WORKSPACE, Cage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.schemas.boot import Backend

ENV = {"PATH": os.environ["PATH"]}
STARTER = """
import subprocess, sys
import msgspec
from roost.actors.sandbox.launch import launch
from roost.actors.sandbox.policy import Policy
from roost.config.model import Sandbox
from roost.schemas.boot import Backend
read = msgspec.json.decode
policy, backend, rules = (
    read(text, type=kind) for text, kind in zip(sys.argv[1:4], (Policy, Backend, Sandbox))
)
argv = ("/bin/sh", "-c", "echo ready; exec sleep 300")
wanted = launch(policy, backend, argv, sys.argv[4], {}, home=sys.argv[5], rules=rules)
print(subprocess.Popen(wanted.argv, cwd=wanted.cwd, env=wanted.env).pid, flush=True)
sys.stdin.read()
"""
SIZED = """
import os, signal, sys
def tell(*_): os.write(1, b'size %d %d\\n' % tuple(os.get_terminal_size(0)))
signal.signal(signal.SIGWINCH, tell)
tell()
sys.stdin.buffer.raw.readline()
"""
CAUGHT = """
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: os.write(1, b'caught\\n'))
os.write(1, b'ready\\n')
os.write(1, sys.stdin.buffer.raw.readline())
"""


def confined(cage: Cage, backend: Backend, argv: Sequence[str]) -> Launch:
    return launch(
        WORKSPACE, backend, argv, str(cage.work), ENV, home=str(cage.home), rules=cage.rules()
    )


async def test_ctrl_c_reaches_the_command_and_ends_nothing_else(
    cage: Cage, backend: Backend
) -> None:
    output = Collected()
    wanted = confined(cage, backend, python(CAUGHT))
    actor = command(output, wanted.argv, cwd=wanted.cwd, env=dict(wanted.env), tty=Size(24, 80))

    async def interrupt() -> None:
        await output.until(b"ready")
        actor.write(b"\x03")
        await output.until(b"caught")
        actor.write(b"still here\n")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            assert await actor.run() == CommandEnded(0)
    assert output.text.count(b"still here") == 2, "typed and written"


async def test_a_terminals_new_size_reaches_the_command(cage: Cage, backend: Backend) -> None:
    output = Collected()
    wanted = confined(cage, backend, python(SIZED))
    actor = command(output, wanted.argv, cwd=wanted.cwd, env=dict(wanted.env), tty=Size(24, 80))

    async def resize() -> None:
        await output.until(b"size 80 24")
        actor.resize(Size(40, 120))
        await output.until(b"size 120 40")
        actor.write(b"\n")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resize)
            assert await actor.run() == CommandEnded(0)


async def test_a_command_that_ignores_terminate_is_killed_with_all_it_started(
    cage: Cage, backend: Backend
) -> None:
    output = Collected()
    script = "trap '' TERM; setsid sleep 300 & echo ready; while :; do sleep 0.1; done"
    wanted = confined(cage, backend, ("/bin/sh", "-c", script))
    actor = command(output, wanted.argv, cwd=wanted.cwd, env=dict(wanted.env), grace=0.1)

    async def terminate() -> None:
        await output.until(b"ready")
        actor.terminate()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminate)
            ended = await actor.run()
    assert signal.SIGKILL in {ended.signal, (ended.exit_code or 128) - 128}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
async def test_a_signal_that_ends_the_command_is_told(
    cage: Cage, backend: Backend, number: int
) -> None:
    wanted = confined(cage, backend, ("/bin/sh", "-c", f"kill -{number} $$"))
    with trio.fail_after(20):
        ended = await command(Collected(), wanted.argv, cwd=wanted.cwd, env=dict(wanted.env)).run()
    if backend.name == "bubblewrap":
        assert ended.exit_code == 128 + number
    else:
        assert ended.signal == number


def test_a_command_ends_with_the_process_that_started_it(cage: Cage, backend: Backend) -> None:
    given = [msgspec.json.encode(each).decode() for each in (WORKSPACE, backend, cage.rules())]
    with subprocess.Popen(
        (sys.executable, "-c", STARTER, *given, str(cage.work), str(cage.home)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    ) as starter:
        assert starter.stdout is not None
        process = psutil.Process(int(starter.stdout.readline()))
        assert starter.stdout.readline() == "ready\n"
        started = [process, *process.children(recursive=True)]
        starter.kill()
    # They come to the test process, which is a subreaper.
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


def test_a_command_whose_starter_has_ended_before_it_began_is_not_run(
    cage: Cage, backend: Backend
) -> None:
    wanted = confined(cage, backend, ("/bin/sh", "-c", "echo begun"))
    shell = ("/bin/sh", "-c", '"$@" 2>&1; exit', "sh", *wanted.argv)
    ended = cage.start(Launch(shell, wanted.cwd, wanted.env))
    assert ended.said == "roost: what started this command has ended\n"
