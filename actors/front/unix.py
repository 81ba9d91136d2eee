"""The Unix socket: its listener, who is let in, and their connections, all served by the process's one poller."""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING

from roost.actors.errors import Overloaded
from roost.actors.front.auth import identify, is_cookie, is_trusted
from roost.actors.front.envelope import error_line
from roost.actors.front.limits import make_bucket
from roost.actors.front.router import Caller
from roost.actors.front.socket_peer import SocketDoor
from roost.actors.front.unix_connection import UnixConnection

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roost.actors.front.door import Door
    from roost.actors.front.services import Services
    from roost.supervisor.poller import Poller

ACCEPTS_AT_ONCE = 64
FULL_PAUSE = 0.1

_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)


class UnixDoor(SocketDoor):
    """The listener and its connections: the listener itself is a port of the poller."""

    transport = "unix"

    def __init__(self, services: Services, door: Door, poller: Poller) -> None:
        super().__init__(services, poller)
        self._door = door
        self._listener: socket.socket | None = None
        self._fd = -1

    def listen(self, listener: socket.socket) -> None:
        """Accept from this listener from now on."""
        self.stop_listening()
        listener.setblocking(False)
        self._listener, self._fd = listener, listener.fileno()
        self.poller.add(self)

    def stop_listening(self) -> None:
        """Accept no more; what waits in the backlog is the next front's."""
        if self._listener is not None:
            self.poller.remove(self)
            self._listener.close()
            self._listener = None

    def fileno(self) -> int:
        """Return the listener's descriptor."""
        return self._fd

    def on_readable(self) -> bool:
        """Accept what waits."""
        for _ in range(ACCEPTS_AT_ONCE):
            if self._listener is None:
                return False
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _FULL:
                    self._pause(error)
                return False
            self._welcome(sock)
        return False

    def flush(self) -> None:
        """A listener sends nothing."""

    def _welcome(self, sock: socket.socket) -> None:
        services = self.services
        limits = services.settings.limits
        if sum(services.connections.values()) >= limits.connections:
            _turn_away(sock, limits.connections)
            return
        sock.setblocking(False)
        identity = identify(sock)
        trusted = is_trusted(identity, services.boot.root_pid)
        connection = UnixConnection(self, sock)
        connection.caller = Caller(
            services,
            self._door,
            connection,
            authenticated=trusted is True,
            authenticate=self._cookie_check() if trusted is None else _never,
            bucket=make_bucket(limits.unix_rate, limits.unix_burst, services.timers.now()),
            identity=identity,
        )
        self.welcome(connection)

    def _cookie_check(self) -> Callable[[str], bool]:
        cookie = self.services.cookie
        return lambda given: is_cookie(given, cookie)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors the listener stays readable; look again when some may have been given back."""
        _log.warning("cannot accept a client: %s", error.strerror)
        self.poller.want_write(self, False, reading=False)
        self.services.timers.after(FULL_PAUSE, self._resume)

    def _resume(self) -> None:
        if self._listener is not None:
            self.poller.want_write(self, False, reading=True)


def _never(_given: str) -> bool:
    return False


def too_many_connections(limit: int) -> bytes:
    """Return what a connection over the limit is told before it is closed."""
    error = Overloaded(
        "TOO_MANY_CONNECTIONS",
        "the daemon has too many connections",
        {"maxConnections": limit, "retryAfterMs": 1000},
    )
    return error_line(None, error)


def _turn_away(sock: socket.socket, limit: int) -> None:
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(too_many_connections(limit))
    sock.close()
