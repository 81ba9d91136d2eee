"""What only the Linux kernel offers a process about itself, through ctypes; elsewhere each function returns False."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
CLONE_FS = 0x200
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33


def _open_libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


# Opened at import, and so once in the zygote: in every child it would cost a quarter of a MiB of copied pages.
_libc = _open_libc()


def die_with_parent(signal_number: int) -> bool:
    """Get a signal when the thread that started this process ends.

    The parent may have ended before: look at `os.getppid()` afterwards.
    """
    return _prctl(PR_SET_PDEATHSIG, signal_number)


def become_subreaper() -> bool:
    """Become the parent of every orphan among the descendants."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> bool:
    """Keep other processes of this user from reading this one's memory, and its core from being written."""
    return _prctl(PR_SET_DUMPABLE, 0)


def forbid_core_files() -> None:
    """Write no core file when a signal ends this process: a stack in the log is enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def own_folder() -> bool:
    """Let the working folder of this thread be its own from now on, so that changing it changes no other thread's."""
    return _libc is not None and bool(_libc.unshare(CLONE_FS) == 0)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the old soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def keep_descriptors() -> None:
    """Let no process started from now on inherit a descriptor that this one inherited, but the standard three."""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the listing's own is closed again
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def socket_maker(sock: socket.socket) -> int:
    """Return the pid of the process that made a socket pair, or 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(pid)


def widen(sock: socket.socket, size: int) -> None:
    """Give a socket large buffers, as large as the system allows."""
    for forced, plain in (
        (SO_SNDBUFFORCE, socket.SO_SNDBUF),
        (SO_RCVBUFFORCE, socket.SO_RCVBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, size)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, plain, size)


def thread_count() -> int:
    """Return the number of threads of this process, those that Python does not know included; 1 if not known."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def _prctl(option: int, value: int) -> bool:
    return _libc is not None and bool(_libc.prctl(option, value, 0, 0, 0) == 0)
