"""Is every acknowledged event there once, in order, after SIGKILLs at random moments under load?

`store`: the store alone is killed again and again while agents stream through the whole daemon. `daemon`: all of its
processes are killed at once, and it is started again. A client's own record (`witness.py`) is held against the log.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.daemon import Daemon, end, kill_all, start_daemon, wait_until
from bench.report import Figure
from bench.witness import Witness, watched

if TYPE_CHECKING:
    import subprocess

STORE_KILLS = 200
DAEMON_KILLS = 50
AGENTS = 12
DELTAS = 60
INTERVAL_MS = 2.0
LONGEST_SECONDS = 0.25
# How many of the kills wait until something has come through again; the others may meet a start.
PROGRESS = 0.75
# The daemon counts a service's crashes within a period: a short one has it restarted every time, and soon.
PATIENT = ("processes.max_restarts=1000000", "processes.restart_period=0.1")


class Victim:
    """A daemon in a home, and how its processes are killed."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self.home = home
        self.chance = chance
        self.killed = 0
        self.process: subprocess.Popen[bytes]
        self.line = ""

    def start(self) -> None:
        self.process, self.line = start_daemon(self.home, *PATIENT)

    def stop(self) -> None:
        end(self.process)

    def kill_store(self) -> None:
        """Kill the store at a random moment of its life, which may lie before it is ready."""
        time.sleep(self.chance.uniform(0.0, LONGEST_SECONDS))
        wait_until(self._kill_another_store)

    def kill_daemon(self) -> None:
        """Kill every process of the daemon, and start it again."""
        time.sleep(self.chance.uniform(0.0, LONGEST_SECONDS))
        kill_all(self.process)
        self.start()

    def kill_root_and_guard(self) -> None:
        """Kill these two and leave the others to what they have been told for it."""
        time.sleep(self.chance.uniform(0.0, LONGEST_SECONDS))
        for pid in (self.process.pid, Daemon(self.home, self.process, self.line).root_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.start()

    def _kill_another_store(self) -> bool:
        """Kill the store unless it is the one that was killed last, or has no process now."""
        nodes = Daemon(self.home, self.process, self.line).tree()
        pid = next(int(str(node["pid"])) for node in nodes if node["childId"] == "store")
        if pid in (0, self.killed):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed = pid
        return self.killed == pid


def disturbed(
    home: Path, kind: str, kills: int, *, agents: int = AGENTS, seed: int = 7, accepted: int = 0
) -> tuple[Witness, list[str]]:
    """Kill `kind` so many times under load; return the record, and what is wrong (nothing).

    Goes on until more than `accepted` messages are, however slow the machine is.
    """
    victim = Victim(home, random.Random(seed))
    victim.start()
    try:
        path = str(home / "daemon.sock")
        witness = Witness(path, agents, deltas=DELTAS, interval_ms=INTERVAL_MS)
        kill = {
            "store": victim.kill_store,
            "daemon": victim.kill_daemon,
            "root": victim.kill_root_and_guard,
        }[kind]

        def disturb() -> None:
            for _ in range(kills):
                before = witness.received
                kill()
                if victim.chance.random() < PROGRESS:
                    wait_until(lambda before=before: witness.received > before)
            wait_until(lambda: witness.accepted > accepted)

        watched(witness, disturb)
    finally:
        victim.stop()
    return witness, witness.check(home)


def _figures(kind: str, title: str, kills: int) -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="roost-kills-"))
    try:
        witness, faults = disturbed(home, kind, kills)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    value = f"{witness.received:,} events and {witness.accepted:,} messages, all there once"
    fault = f"{len(faults)} faults: {'; '.join(faults[:3])}" if faults else ""
    name = f"{title} {kills} times at random moments under load: acknowledged"
    return [Figure(name, fault or value, bound="no fault", met=not faults)]


def run() -> list[Figure]:
    return [
        *_figures("store", "SIGKILL of the store", STORE_KILLS),
        *_figures("daemon", "SIGKILL of the whole daemon", DAEMON_KILLS // 2),
        *_figures("root", "SIGKILL of root and guard", DAEMON_KILLS // 2),
    ]
