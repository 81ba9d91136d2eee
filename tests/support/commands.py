"""Run the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

LIMIT = 20


def command(home: Path, *arguments: str) -> list[str]:
    """Return the command line of `roost` for a home."""
    return [sys.executable, "-P", "-m", "roost.actors", "--home", str(home), *arguments]


ONLY_EXEC = """
import sys
from roost.actors.client.context import Context, RoostGroup
from roost.actors.client.exec_command import exec_command
RoostGroup(commands={"exec": exec_command}).main(["exec", *sys.argv[2:]], obj=Context(sys.argv[1]))
"""


def exec_command_line(home: Path, *arguments: str) -> list[str]:
    """Return a command line that does what `roost exec` does, without loading the other commands."""
    return [sys.executable, "-P", "-c", ONLY_EXEC, str(home), *arguments]


def environ(**further: str) -> dict[str, str]:
    """Return the environment for it: the modules of this process, and no daemon by itself."""
    path = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": path, "ROOST_AUTOSTART": "0", **further}


async def roost(
    home: Path, *arguments: str, stdin: bytes = b"", limit: float = LIMIT
) -> subprocess.CompletedProcess[bytes]:
    """Run `roost` to its end, at most so many seconds."""
    with trio.fail_after(limit):
        return await trio.run_process(
            command(home, *arguments),
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environ(),
        )
