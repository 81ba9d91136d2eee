"""Find the processes that a test leaves behind, and end them."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Generator


@contextlib.contextmanager
def none_left_behind() -> Generator[None]:
    """Fail if a child process, running or a zombie, is there at the end that was not there before."""
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
