"""Run the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.abc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

LIMIT = 20


def command(home: Path, *arguments: str) -> list[str]:
    """Return the command line of `roost` for a home."""
    return [sys.executable, "-P", "-m", "roost.actors", "--home", str(home), *arguments]


def exec_command_line(home: Path, *arguments: str) -> list[str]:
    """Return the command line of `roost exec`."""
    return command(home, "exec", *arguments)


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


def roost_now(
    home: Path, *arguments: str, stdin: bytes = b"", limit: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """Run `roost` to its end in a test that is not asynchronous, at most so many seconds."""
    return subprocess.run(
        command(home, *arguments),
        input=stdin,
        capture_output=True,
        env=environ(),
        timeout=limit,
        check=False,
    )


def redirected(argv: Sequence[str], redirection: str) -> list[str]:
    """Return a command line that has a shell open or close standard files of a command first, as in `>&-`.

    A signal makes no file of the command's memory.
    """
    return ["sh", "-c", f'ulimit -c 0; exec "$@" {redirection}', "sh", *argv]


@asynccontextmanager
async def exec_running(
    home: Path, *arguments: str, stdin: int = subprocess.DEVNULL, redirection: str = ""
) -> AsyncGenerator[trio.Process]:
    """Run `roost exec` with pipes until the block is left, by when it has ended."""
    process = await trio.lowlevel.open_process(
        redirected(exec_command_line(home, *arguments), redirection),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(),
    )
    try:
        with trio.fail_after(LIMIT):
            yield process
            await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    await stream.aclose()


async def read_all(stream: object) -> bytes:
    """Return what comes from a process until its end."""
    assert isinstance(stream, trio.abc.ReceiveStream)
    return b"".join([data async for data in stream])
