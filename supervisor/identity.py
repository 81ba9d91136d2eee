"""Which process is which: (pid, creation time), memory, processor time, process trees. The only user of psutil.

A pid alone may belong to somebody else by now; it is good only for a child of our own that has not been reaped.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import setproctitle

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessId(msgspec.Struct, frozen=True):
    """A process, known by its pid and the time at which it was created (seconds since 1970)."""

    pid: int
    created: float


def identify(pid: int) -> ProcessId | None:
    """Return who has a pid now, or None."""
    try:
        return ProcessId(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_running(process: ProcessId) -> bool:
    """Return whether this very process still runs; a zombie does not."""
    try:
        found = psutil.Process(process.pid)
        return found.create_time() == process.created and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def send_signal(process: ProcessId, number: int) -> bool:
    """Send a signal to this very process; return whether it still existed."""
    try:
        found = psutil.Process(process.pid)
        if found.create_time() != process.created:
            return False
        found.send_signal(number)
    except psutil.Error:
        return False
    return True


def rss(pid: int) -> int:
    """Return the resident memory of a process in bytes, or -1."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return -1


class Usage(NamedTuple):
    """What a process uses: resident memory, that of its own data, what of the resident is not shared; in bytes.

    And the processor time that it has used, in seconds. -1 where not known.
    """

    rss: int = -1
    data: int = -1
    own: int = -1
    cpu_seconds: float = -1.0


def usage(pid: int) -> Usage:
    """Return what a process uses now."""
    try:
        process = psutil.Process(pid)
        memory, times = process.memory_info(), process.cpu_times()
    except psutil.Error:
        return Usage()
    rss = int(memory.rss)
    return Usage(
        rss=rss,
        data=int(getattr(memory, "data", memory.vms)),
        own=max(0, rss - int(getattr(memory, "shared", 0))),
        cpu_seconds=float(times.user + times.system),
    )


def children(pid: int) -> list[int]:
    """Return the pids of the children of a process, zombies included."""
    try:
        found: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:
        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []
    return found


def parent(pid: int) -> ProcessId | None:
    """Return the parent of a process, or None if one of them is gone."""
    try:
        return identify(psutil.Process(pid).ppid())
    except psutil.Error:
        return None


def descendants(pid: int) -> list[ProcessId]:
    """Return all processes below a process, nearest first."""
    found: list[ProcessId] = []
    waiting = children(pid)
    while waiting:
        below: list[int] = []
        for child in waiting:
            process = identify(child)
            if process is not None:
                found.append(process)
                below += children(child)
        waiting = below
    return found


def find_by_environment(name: str, value: str) -> list[ProcessId]:
    """Return the processes of this user that were started with an environment variable of this value, but not this one."""
    found: list[ProcessId] = []
    mine = os.getuid()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.uids().real != mine:
                continue
            if process.environ().get(name) == value:
                found.append(ProcessId(process.pid, process.create_time()))
    return found


def set_title(title: str) -> None:
    """Set what `ps` shows for this process."""
    setproctitle.setproctitle(title)
