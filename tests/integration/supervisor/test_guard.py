"""Root ends in every way it can; its guard leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest
import trio

from roost.supervisor.spawn import child_argv, child_env
from tests.support.processes import SUPPORT, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = "roost.supervisor.guard"


class Guarded:
    """A guard with root and its tree below it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        env = child_env()
        env["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), env.get("PYTHONPATH", "")])
        root = [sys.executable, "-P", str(SUPPORT / "guarded.py"), str(home)]
        self.guard = subprocess.Popen([*child_argv(MODULE), *root], env=env)
        self.pids: list[int] = []

    async def wait_ready(self) -> None:
        with trio.fail_after(20):
            await until((self.home / "ready").exists)
        self.pids = [int(pid) for pid in (self.home / "ready").read_text().split()]
        assert (
            len(self.pids) == 10
        )  # root, zygote, two services, three children with a grandchild each

    @property
    def root(self) -> int:
        return self.pids[0]

    def living(self) -> list[int]:
        return [pid for pid in self.pids if psutil.pid_exists(pid)]

    async def wait_end(self, seconds: float) -> int:
        """Wait until the guard has ended; return its status. It is the last one to end."""
        with trio.fail_after(seconds):
            await until(lambda: self.guard.poll() is not None)
        assert self.living() == []
        return self.guard.returncode


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path)
    yield guarded
    guarded.guard.kill()
    guarded.guard.wait()


async def test_when_root_is_killed_nothing_is_left(guarded: Guarded) -> None:
    await guarded.wait_ready()
    os.kill(guarded.root, signal.SIGKILL)
    assert await guarded.wait_end(2.0) == 128 + signal.SIGKILL


async def test_a_request_to_stop_is_passed_on_and_roots_status_comes_back(
    guarded: Guarded,
) -> None:
    await guarded.wait_ready()
    guarded.guard.send_signal(signal.SIGTERM)
    assert await guarded.wait_end(10.0) == 17
    notes = (guarded.home / "note").read_text()
    assert "store: stop SIGTERM" in notes


async def test_when_the_guard_is_killed_root_stops_cleanly(guarded: Guarded) -> None:
    await guarded.wait_ready()
    guarded.guard.kill()
    guarded.guard.wait()
    with trio.fail_after(10):
        await until(lambda: reap_what_came_here() and not guarded.living())
    assert "store: stop SIGTERM" in (guarded.home / "note").read_text()


def reap_what_came_here() -> bool:
    """Take the statuses of what this process, a subreaper, has inherited."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return True


def run_guard(*argv: str) -> int:
    return subprocess.run(
        [*child_argv(MODULE), *argv], env=child_env(), timeout=20, check=False
    ).returncode


def test_the_exit_status_of_root_is_that_of_the_guard() -> None:
    assert run_guard(sys.executable, "-c", "raise SystemExit(3)") == 3
    assert run_guard("/bin/true") == 0
    assert run_guard("/no/such/program") == 127


def test_the_sweep_is_fast_and_reaches_a_whole_forest(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "for _ in range(5):\n"
        "    if not os.fork():\n"
        "        os.setsid()\n"
        "        for _ in range(5):\n"
        "            if not os.fork():\n"
        "                os.setsid()\n"
        "                time.sleep(600)\n"
        "        time.sleep(600)\n"
        "time.sleep(0.3)\n"
        f"open({str(tmp_path / 'end')!r}, 'w').write(repr(time.time()))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert run_guard(sys.executable, "-c", code) == 128 + 9
    assert time.time() - float((tmp_path / "end").read_text()) < 1.0
