"""Commands for tests: what they print is collected, and what they may leave is looked for."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.leftovers import Leftovers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.command.terminal import Size

_count = itertools.count()


class Collected:
    """What a command has printed."""

    def __init__(self) -> None:
        self.streams: dict[int, bytearray] = {}
        self.order: list[int] = []
        self.largest = 0
        self._grown = trio.Event()

    def __call__(self, number: int, data: bytes) -> None:
        assert data
        self.streams.setdefault(number, bytearray()).extend(data)
        self.order.append(number)
        self.largest = max(self.largest, len(data))
        self._grown.set()
        self._grown = trio.Event()

    @property
    def text(self) -> bytes:
        return bytes(self.streams.get(0, b""))

    def words(self) -> list[int]:
        """Return the numbers that were printed."""
        return [int(word) for word in self.text.split() if word.isdigit()]

    async def until(self, text: bytes, count: int = 1) -> None:
        """Wait until a text has been printed so many times."""
        while b"".join(self.streams.values()).count(text) < count:
            await self._grown.wait()


def command(
    output: Collected,
    script: str | Sequence[str],
    *,
    cwd: str = "/",
    timeout: float = 0.0,
    grace: float = 0.2,
    linger: float = 0.25,
    merge: bool = False,
    stdin: bool = False,
    tty: Size | None = None,
    leftovers: Leftovers | None = None,
    env: dict[str, str] | None = None,
    inherit: Sequence[int] = (),
) -> CommandActor:
    """Return the actor of a shell script, or of a command line, that prints into `output`."""
    spec = CommandSpec(
        command_id=f"cmd-{os.getpid()}-{next(_count)}",
        argv=("/bin/sh", "-c", script) if isinstance(script, str) else script,
        cwd=cwd,
        env={"PATH": os.environ["PATH"]} if env is None else env,
        timeout=timeout,
        grace=grace,
        linger=linger,
        merge=merge,
        stdin=stdin,
        tty=tty,
        inherit=inherit,
    )
    return CommandActor(spec, leftovers or Leftovers(), output)


def python(script: str) -> tuple[str, ...]:
    """Return the command line of a Python script."""
    return (sys.executable, "-IS", "-c", script)


def state(pid: int) -> str:
    """Return the letter of a process's state, empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return state(pid) not in {"", "Z"}


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
