"""Orphans that hide whose they are, and children that are no orphans: each ends with whom it is of, and not before."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.agent.tools.tool import Prepared, Surroundings
from roost.actors.agent.tools.toolbox import BY_NAME
from roost.actors.command.actor import CommandEnded
from roost.actors.command.leftovers import Leftovers
from roost.actors.command.spawn import MARK
from roost.actors.command.terminal import Size
from roost.config.load import default_settings
from roost.schemas.base import CallId
from roost.supervisor.identity import children
from tests.integration.command.running import Collected, alive, command, python, state
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

both = pytest.mark.parametrize("tty", [None, Size(24, 80)], ids=["pipes", "terminal"])

# `daemon` starts a shell that belongs to no process group or session of the command's, and returns what it says first.
DAEMON = """
import os, resource, sys, time
def daemon(script, hides):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if hides:
                resource.setrlimit(10, (resource.RLIM_INFINITY,) * 2)
            os.dup2(writer, 1)
            os.closerange(3, 100)
            env = {} if hides else os.environ
            os.execve('/bin/sh', ['sh', '-c', script], env)
        os._exit(0)
    os.close(writer)
    os.wait()
    return os.read(reader, 99)
"""
SLEEPER = "echo $$; exec sleep 91 >/dev/null 2>&1"
HIDDEN = f"{DAEMON}\nos.write(1, daemon('{SLEEPER}', True))"
HOPS = """
import os
for hop in range(10**9):
    if hop == 20:
        os.write(1, b'1')
        os.closerange(0, 3)
    if os.fork():
        os._exit(0)
    os.setsid()
"""
# It tells once it has got rid of its marks by becoming another program.
LATER = """
import os, resource, sys
os.write(1, b'%d\\n' % os.getpid())
open(sys.argv[1]).read()
resource.setrlimit(10, (resource.RLIM_INFINITY,) * 2)
os.execve('/bin/sh', ['sh', '-c', 'echo hidden; exec sleep 92'], {})
"""


@asynccontextmanager
async def running(leftovers: Leftovers, script: str) -> AsyncGenerator[Collected]:
    """Run a shell script besides, until the end of the block; nothing of it is left then."""
    output = Collected()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command(output, script, leftovers=leftovers).run)
        await output.until(b"\n")
        yield output
        nursery.cancel_scope.cancel()
    assert not any(map(alive, output.words()))


@both
async def test_an_orphan_without_any_mark_ends_with_its_command_while_another_runs(
    tty: Size | None,
) -> None:
    leftovers, output = Leftovers(), Collected()
    with trio.fail_after(20):
        async with running(leftovers, "(setsid sleep 93 & echo $!) ; exec sleep 93") as other:
            ended = await command(output, python(HIDDEN), tty=tty, leftovers=leftovers).run()
            assert ended == CommandEnded(0)
            assert [state(pid) for pid in output.words()] == [""]
            assert all(map(alive, other.words()))


async def test_one_that_also_never_stays_the_same_process_is_caught() -> None:
    leftovers, output = Leftovers(), Collected()
    hops = f'exec {sys.executable} -IS -c "{HOPS}"'
    script = f"{DAEMON}\nos.write(1, daemon({hops!r}, True))"
    with trio.fail_after(20):
        async with running(leftovers, "echo; exec sleep 93"):
            before = children(os.getpid())
            await command(output, python(script), leftovers=leftovers).run()
            assert children(os.getpid()) == before


async def test_an_orphan_that_the_shell_tool_left_without_any_mark_ends_with_its_call(
    tmp_path: Path,
) -> None:
    (tmp_path / "home").mkdir()
    leftovers, settings = Leftovers(), default_settings()
    around = Surroundings(
        agent_id="a",
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        sandbox="dangerFullAccess",
        env=os.environ,
        limits=settings.tools,
        leftovers=leftovers,
        rules=settings.sandbox,
    )
    (tmp_path / "hide.py").write_text(HIDDEN)
    prepared = BY_NAME["shell"].prepare({"command": f"{sys.executable} hide.py"}, around)
    assert isinstance(prepared, Prepared)
    with trio.fail_after(20):
        async with running(leftovers, "echo; exec sleep 93"):
            result = msgspec.convert(await prepared.run(CallId("call")), dict[str, object])
            assert state(int(str(result["output"]))) == ""


async def test_an_orphan_without_any_mark_does_not_outlive_its_arrival_in_a_long_command() -> None:
    output = Collected()
    script = f"{HIDDEN}\ntime.sleep(60)"
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(command(output, python(script)).run)
            await output.until(b"\n")
            (orphan,) = output.words()
            await until(lambda: state(orphan) == "")
            assert len(nursery.child_tasks) == 1, "the command itself goes on"
            nursery.cancel_scope.cancel()


async def test_an_orphan_that_hides_once_it_is_known_lives_as_long_as_its_command(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    leftovers = Leftovers()
    later = f'(setsid {sys.executable} -IS -c "$LATER" {fifo} &) ; exec sleep 94'
    script = f"LATER='{LATER.replace(chr(39), chr(34))}'; {later}"
    with trio.fail_after(20):
        async with running(leftovers, script) as other:
            pid = other.words()[0]
            await until(lambda: pid in children(os.getpid()))
            assert await command(Collected(), "true", leftovers=leftovers).run() == CommandEnded(0)
            fifo.write_text("")
            await other.until(b"hidden")
            assert await command(Collected(), "true", leftovers=leftovers).run() == CommandEnded(0)
            assert alive(pid)


async def test_each_orphan_is_looked_at_once_however_many_commands_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[int] = Counter()
    prlimit = resource.prlimit

    def count(pid: int, which: int, *limits: tuple[int, int]) -> tuple[int, int]:
        looks[pid] += 1
        return prlimit(pid, which, *limits)

    monkeypatch.setattr(resource, "prlimit", count)
    leftovers = Leftovers()
    script = "for i in 1 2 3 4 5 6; do (setsid sleep 95 & echo $!) ; done; exec sleep 95"
    with trio.fail_after(20):
        async with running(leftovers, script) as other:
            await other.until(b"\n", 6)
            await until(lambda: set(other.words()) <= set(children(os.getpid())))
            for _ in range(5):
                await command(Collected(), "true", leftovers=leftovers).run()
            assert [looks[pid] for pid in other.words()] == [1] * 6


async def test_a_named_helper_and_what_it_orphans_live_until_it_is_given_up() -> None:
    leftovers = Leftovers()
    with leftovers.starting("helper"):
        helper = subprocess.Popen(  # noqa: ASYNC220 - it must be marked in one step
            ("/bin/sh", "-c", "(setsid sleep 96 & echo $!) ; exec sleep 96"),
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: "helper"},
        )
    leftovers.started(helper.pid, "helper")
    assert helper.stdout is not None
    with trio.fail_after(20), helper.stdout:
        orphan = int(helper.stdout.readline())
        for script in ("true", "setsid sleep 97 & exit 1"):
            await command(Collected(), script, leftovers=leftovers).run()
        assert alive(helper.pid)
        assert alive(orphan)
        helper.kill()
        helper.wait()
        leftovers.reaped(helper.pid)
        assert await leftovers.clear("helper")
        assert state(orphan) == ""


async def test_what_may_not_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Collected()
    kill = os.kill

    def refuse(pid: int, number: int) -> None:
        if pid in output.words():
            raise PermissionError
        kill(pid, number)

    monkeypatch.setattr(os, "kill", refuse)
    leftovers = Leftovers()
    script = f"{DAEMON}\nos.write(1, daemon('{SLEEPER}', False))"
    with trio.fail_after(20):
        await command(output, python(script), leftovers=leftovers).run()
    assert alive(output.words()[0])
    monkeypatch.undo()
    kill(output.words()[0], signal.SIGKILL)
    with trio.fail_after(20):
        while state(output.words()[0]):
            await command(Collected(), "true", leftovers=leftovers).run()
