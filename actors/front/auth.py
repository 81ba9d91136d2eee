"""Who may connect: the cookie, and the user and ancestry of a Unix socket's peer."""

from __future__ import annotations

import hmac
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

MAX_ANCESTORS = 128
WALKS = 3

_CREDENTIALS = struct.Struct("3i")


class PeerIdentity(NamedTuple):
    """What the kernel says of the process at the other end."""

    pid: int
    uid: int


def is_cookie(given: str, cookie: str) -> bool:
    """Return whether the given text is the cookie; white space around it does not count. Constant time."""
    found = given.strip().encode(errors="surrogatepass")
    return bool(cookie) and hmac.compare_digest(found, cookie.encode())


def bearer_of(header: str) -> str:
    """Return the token of an `Authorization` header, or nothing."""
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def identify(sock: socket.socket) -> PeerIdentity | None:
    """Return the peer of a Unix socket, or None where the system does not tell."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    except OSError:
        return None
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return PeerIdentity(pid, uid)


def is_trusted(peer: PeerIdentity | None, root_pid: int) -> bool | None:
    """Return whether a Unix peer is let in, or None if only the cookie can tell.

    A process that the daemon started, or that such a process started, is nobody's client: an agent's command must not
    approve its own agent's calls.
    """
    if peer is None:
        return None
    if peer.uid not in (os.getuid(), 0):
        return False
    return not descends_from(peer.pid, root_pid)


def descends_from(pid: int, ancestor: int) -> bool:
    """Return whether a process has this ancestor. One that has ended is taken to have it: nobody can tell any more.

    0 is a process outside of this system's view, which none of the daemon's children can be.
    """
    if pid == 0:
        return False
    for _ in range(WALKS):
        found = _walk(pid, ancestor)
        if found is not None:
            return found
    return True


def _walk(pid: int, ancestor: int) -> bool | None:
    """Return None if the process, or one of its ancestors, ended meanwhile."""
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            return False
        parent = _parent(pid)
        if parent is None:
            return None
        if parent == ancestor:
            return True
        pid = parent
    return None


def _parent(pid: int) -> int | None:
    try:
        # The name of a process may hold anything, so the fields are counted from its closing bracket.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[1])
    except (OSError, IndexError, ValueError):
        return None
