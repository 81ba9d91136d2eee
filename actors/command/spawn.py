"""Starts the process of a command: a session of its own, no terminal, its output in one pipe or two."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARK = "ROOST_COMMAND"
"""The environment variable by which everything that a command starts is known."""

PLAIN_DESCRIPTORS = 1024


class StartFailed(Exception):
    """The command cannot be started; the text says why."""


class Started(msgspec.Struct, frozen=True):
    """A running command: its process, and the reading ends of its output (one when it is merged)."""

    pid: int
    pidfd: int
    outputs: tuple[int, ...]


def start_process(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], command_id: str, *, merge: bool
) -> Started:
    """Start a command in the main thread; its standard input is empty.

    No function runs between fork and exec, so that Popen takes its vfork path whatever the size of this process.

    Raises:
        StartFailed: no such program or folder, not allowed, or the system is out of processes or descriptors.
    """
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, MARK: command_id},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise StartFailed(text or "cannot start") from error
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    outputs = tuple(os.dup(pipe.fileno()) for pipe in pipes)
    for pipe in pipes:
        pipe.close()
    for output in outputs:
        os.set_blocking(output, False)
    pidfd = os.pidfd_open(process.pid)
    process.returncode = 0  # the status is taken through the pidfd, and not by Popen
    _lower_limit(process.pid)
    return Started(process.pid, pidfd, outputs)


def _lower_limit(pid: int) -> None:
    """Give the command the usual soft limit of open files; the daemon's own is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= PLAIN_DESCRIPTORS:
        return
    with suppress(OSError):  # it may have ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (PLAIN_DESCRIPTORS, hard))
