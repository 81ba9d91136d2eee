"""What the daemon listens on: bound once by root, used by each front in turn, so that a front's end changes no port."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import msgspec

from roost.config.errors import SettingsError
from roost.config.paths import Home
from roost.config.sockets import bind_unix, remove_socket, socket_identity

if TYPE_CHECKING:
    from roost.config.model import Settings

BACKLOG = 4096


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """The two listening sockets; `tcp` is None when WebSocket is switched off."""

    home: Home
    unix: socket.socket
    unix_identity: tuple[int, int, int]
    tcp: socket.socket | None
    websocket_url: str = ""

    def handles(self) -> list[tuple[str, int]]:
        """Return what each front is given, by name."""
        named = [("listener.unix", self.unix.fileno())]
        if self.tcp is not None:
            named.append(("listener.tcp", self.tcp.fileno()))
        return named

    def close(self) -> None:
        """Stop listening and remove the socket file, unless a successor's lies there."""
        self.unix.close()
        if self.tcp is not None:
            self.tcp.close()
        remove_socket(self.home.socket, self.unix_identity)


def open_listeners(home: Home, settings: Settings) -> Listeners:
    """Bind both.

    Raises:
        SocketInUse: a daemon answers on the Unix socket.
        HomeError: something that is no socket lies in its place.
        SettingsError: the TCP address cannot be bound.
    """
    unix = bind_unix(home.socket)
    identity = socket_identity(home.socket)
    tcp, url = None, ""
    if settings.websocket.enabled:
        try:
            tcp, url = _bind_tcp(settings)
        except SettingsError:
            unix.close()
            remove_socket(home.socket, identity)
            raise
    return Listeners(home=home, unix=unix, unix_identity=identity, tcp=tcp, websocket_url=url)


def _bind_tcp(settings: Settings) -> tuple[socket.socket, str]:
    host, port, path = (
        settings.websocket.host.strip("[]"),
        settings.websocket.port,
        settings.websocket.path,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        hint = "another program listens there; set websocket.port to another port, or 0"
        why = hint if error.errno == errno.EADDRINUSE else str(error.strerror)
        raise SettingsError(f"websocket: cannot listen on {host} port {port}: {why}") from None
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return listener, f"ws://{shown}:{listener.getsockname()[1]}{path}"
