"""Fixtures that every test may use; `no_process_left_behind` applies by itself.

Loopback only, port 0, `autojump_clock` only without real processes and sockets, `trio.fail_after` with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.micro_model import model_server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["model_server"]

PR_SET_CHILD_SUBREAPER = 36


def pytest_configure() -> None:
    """Make this process a subreaper, so that a daemon which detached itself is seen here; find `bench`."""
    # Last, so that an installed daemon comes before the checkout.
    sys.path.append(str(Path(__file__).parents[1]))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail the test that leaves a child process running or a zombie unreaped."""
    me = psutil.Process()
    before = _children(me)
    yield
    _reap_detached(me)
    left = {key: text for key, text in _children(me).items() if key not in before}
    for pid, _ in left:
        _end(pid)
    assert not left, f"left behind: {sorted(left.values())}"


def _reap_detached(process: psutil.Process) -> None:
    """Reap daemons that detached themselves and have ended: their end is nobody's business but init's, which is us."""
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE and os.getsid(child.pid) == child.pid:
                os.waitpid(child.pid, os.WNOHANG)


def _children(process: psutil.Process) -> dict[tuple[int, float], str]:
    """Return (pid, creation time) of every descendant with a text that says what it is."""
    found: dict[tuple[int, float], str] = {}
    for child in process.children(recursive=True):
        try:
            command = " ".join(child.cmdline()) or child.name()
            text = f"{child.pid} {child.status()} {command}"
            found[child.pid, child.create_time()] = text
        except psutil.NoSuchProcess:
            continue
    return found


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
