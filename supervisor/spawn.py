"""The command line and the environment of a fresh Python child, and its start without a fork of this process's memory."""

from __future__ import annotations

import functools
import os
import signal
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import roost

if TYPE_CHECKING:
    import socket

CONTROL_FD = 3
_DEFAULT_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGQUIT,
    signal.SIGPIPE,
)


def child_argv(module: str, *arguments: str) -> list[str]:
    """Return the command line for `module`; ``-P`` keeps the working directory off ``sys.path``."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child_env() -> dict[str, str]:
    """Return the environment of a child; an uninstalled checkout passes on its import root."""
    env = dict(os.environ)
    if not _installed():
        roots = [str(os.path.abspath(os.path.dirname(path))) for path in roost.__path__]
        more = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(roots + more))
    return env


def spawn_python(module: str, control: socket.socket, stderr: int) -> int:
    """Start a fresh interpreter in a session of its own and return its pid; the caller reaps it.

    The child finds its end of the control link as file descriptor `CONTROL_FD`, its standard output and error on
    `stderr`, nothing else open. Call this in the main thread only: the child dies with the thread that started it.
    """
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, stderr, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, control.fileno(), CONTROL_FD),
    ]
    return os.posix_spawn(
        sys.executable,
        child_argv(module, str(CONTROL_FD)),
        child_env(),
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


@functools.cache
def _installed() -> bool:
    try:
        metadata.distribution("roost")
    except metadata.PackageNotFoundError:
        return False
    return True
