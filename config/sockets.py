"""The daemon's Unix socket as a file: made so that nobody else can open it, and removed only while it is ours."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import TYPE_CHECKING, Literal

from roost.config.errors import HomeError, SocketInUse
from roost.config.paths import FILE_MODE

if TYPE_CHECKING:
    from pathlib import Path

BACKLOG = 4096

SocketState = Literal["absent", "alive", "stale", "foreign"]


def probe_socket(path: Path) -> SocketState:
    """Return what is at the path: nothing, a socket that accepts, one that does not, or something else."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return "absent"
    if not stat.S_ISSOCK(mode):
        return "foreign"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            # A full backlog: somebody listens and is slow.
            return "alive"
        except OSError:
            return "stale"
    return "alive"


def bind_unix(path: Path, backlog: int = BACKLOG) -> socket.socket:
    """Return a listening socket at `path` with mode 0600; a stale one is replaced.

    Raises:
        SocketInUse: something accepts connections there.
        HomeError: something that is no socket is there, or it cannot be made.
    """
    match probe_socket(path):
        case "alive":
            raise SocketInUse(f"{path} is in use: something answers there")
        case "foreign":
            raise HomeError(f"{path} is not a socket; move it away")
        case "stale":
            path.unlink(missing_ok=True)
        case "absent":
            pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The umask closes the moment between bind and chmod; one thread, so nothing else is made meanwhile.
    mask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
        path.chmod(FILE_MODE)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise HomeError(f"cannot listen at {path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener


def socket_identity(path: Path) -> tuple[int, int, int]:
    """Return what tells this socket file from a successor's: device, inode and change time."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_ctime_ns


def remove_socket(path: Path, identity: tuple[int, int, int]) -> None:
    """Remove the socket file if it is still the one with this identity."""
    with contextlib.suppress(FileNotFoundError):
        if socket_identity(path) == identity:
            path.unlink()
