"""The process above root: starts it, waits, and leaves nothing behind when it ends for whatever reason.

Run as `python -P -m roost.supervisor.guard ROOT_ARGV…`. It is a subreaper, so every process that root had, at any
depth and in any session, becomes its child when its own parent dies; it kills children until there are none. It
imports next to nothing, so that nothing in it can break.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_STARTED = 127
STEP = 0.001


def main(argv: list[str]) -> int:
    """Run root and return its exit status, 128 and the signal's number if a signal ended it."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Until root exists, signals wait; a handler that runs earlier would have nobody to pass them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    me = os.getpid()
    root = os.fork()  # noqa: TID251 - nothing else runs here yet
    if root == 0:
        _be_root(argv, me)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(root, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    status = _wait_for(root)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    _sweep()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _be_root(argv: list[str], guard: int) -> None:
    # A group of its own: what is typed at a terminal comes from the guard, and only once.
    os.setpgid(0, 0)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guard:
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    os._exit(NOT_STARTED)


def _pass_on(root: int, number: int) -> None:
    # Root is not reaped while this can run, so the pid is still its own.
    os.kill(root, number)


def _wait_for(root: int) -> int:
    """Wait for root; reap what else has come to us meanwhile."""
    while True:
        # Seen first and reaped with signals blocked: a signal must not be passed on to a pid that is free again.
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if found is None:
            continue
        if found.si_pid == root:
            signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
            _, status = os.waitpid(root, 0)
            for number in PASSED_ON:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
            return status
        os.waitpid(found.si_pid, 0)


def _sweep() -> None:
    """Kill and reap children until there are none; the children of a killed one come to us, too."""
    while True:
        for pid in _children():
            # A child that has not been reaped keeps its pid: this cannot hit anybody else.
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        # The kernel's list may miss a child while others end: never wait for one that nobody killed.
        time.sleep(STEP)  # noqa: TID251 - nothing else to do


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == me]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
