"""The TCP port: plain HTTP answers, each by a task of its own; what becomes a WebSocket goes over to the poller."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING

import trio

from roost.actors.front.auth import bearer_of, is_cookie
from roost.actors.front.frames import accept_key
from roost.actors.front.http import (
    MAX_HEAD,
    Head,
    is_host_allowed,
    is_origin_allowed,
    parse_head,
    respond,
    switch,
)
from roost.actors.front.limits import make_bucket
from roost.actors.front.metrics import CONTENT_TYPE, render_metrics
from roost.actors.front.router import Caller
from roost.actors.front.socket_peer import SocketDoor
from roost.actors.front.ws_connection import WebSocketConnection

if TYPE_CHECKING:
    from roost.actors.front.door import Door
    from roost.actors.front.services import Services
    from roost.supervisor.poller import Poller

READ_BYTES = 64 * 1024
ANSWER_SECONDS = 5.0
GOING_AWAY = 1001
MAX_TURNED_AWAY = 64
"""Clients over the limit that are told so at one time; further ones are just closed, for they take descriptors, too."""

_log = logging.getLogger(__name__)


class TcpDoor(SocketDoor):
    """The TCP listener and its connections."""

    transport = "websocket"

    def __init__(self, services: Services, door: Door, poller: Poller) -> None:
        super().__init__(services, poller)
        self._door = door
        self._talking = 0
        self._turned_away = 0
        self._accepting: trio.CancelScope | None = None

    def count(self) -> None:
        """Tell how many connections there are, those included that speak HTTP."""
        self.services.count(self.transport, len(self.connections) + self._talking)

    async def serve(self, listener: socket.socket) -> None:
        """Accept from this listener until cancelled or `stop_listening`."""
        listener.setblocking(False)
        accepting = self._accepting = trio.CancelScope()
        listening = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        async with trio.open_nursery() as nursery:
            with accepting:
                await trio.serve_listeners(self._serve, [listening], handler_nursery=nursery)
            await listening.aclose()

    def stop_listening(self) -> None:
        """Accept no more."""
        if self._accepting is not None:
            self._accepting.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        connections = self.services.connections
        limits = self.services.settings.limits
        try:
            async with stream:
                if sum(connections.values()) >= limits.connections:
                    await self._turn_away(stream)
                else:
                    await self._count_talk(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            _log.info("a client of the TCP port is gone: %r", error)

    async def _turn_away(self, stream: trio.SocketStream) -> None:
        if self._turned_away >= MAX_TURNED_AWAY:
            return
        self._turned_away += 1
        try:
            await self._reply(stream, respond(503, b"too many connections\n"))
        finally:
            self._turned_away -= 1

    async def _count_talk(self, stream: trio.SocketStream) -> None:
        self._talking += 1
        self.count()
        try:
            await self._talk(stream)
        finally:
            self._talking -= 1
            self.count()

    async def _talk(self, stream: trio.SocketStream) -> None:
        handshake = self.services.settings.timeouts.handshake or float("inf")
        data = b""
        with trio.move_on_after(handshake):
            data = await _read_head(stream)
        if not data:
            return
        end = data.find(b"\r\n\r\n")
        head = parse_head(data[: end + 2]) if end >= 0 else None
        if head is None:
            status = 431 if end < 0 and len(data) >= MAX_HEAD else 400
            await self._reply(stream, respond(status, b"bad request\n"))
            return
        answer = self._judge(head)
        if answer is not None:
            await self._reply(stream, answer)
            return
        self._upgrade(stream, head, data[end + 4 :])

    def _judge(self, head: Head) -> bytes | None:
        """Return the answer to a plain or refused request; None if it may become a WebSocket."""
        settings = self.services.settings
        own, anywhere = settings.websocket.host, settings.websocket.allow_nonloopback
        if not is_host_allowed(head, own, anywhere=anywhere):
            return respond(403, b"host rejected\n")
        if not head.wants_websocket:
            return self._plain(head)
        if head.path != settings.websocket.path:
            return respond(404, b"not found\n")
        if not is_origin_allowed(head, settings.websocket.allowed_origins):
            return respond(403, b"origin rejected\n")
        if self.services.stopping:
            return respond(503, b"not ready\n")
        if head.method != "GET":
            return respond(405, b"method not allowed\n")
        if not head.first("sec-websocket-key") or head.first("sec-websocket-version") != "13":
            return respond(426, b"this is no WebSocket request of version 13\n")
        if head.all_of("authorization") and not self._has_token(head):
            return respond(401, b"unauthorized\n")
        return None

    def _plain(self, head: Head) -> bytes:
        services = self.services
        if head.path not in ("/healthz", "/readyz", "/metrics"):
            return respond(404, b"not found\n")
        if head.method != "GET":
            return respond(405, b"method not allowed\n")
        if head.path == "/healthz":
            return respond(200, b"ok\n")
        if head.path == "/readyz":
            return respond(200, b"ok\n") if services.ready else respond(503, b"not ready\n")
        if not services.settings.metrics.open and not self._has_token(head):
            return respond(401, b"unauthorized\n")
        return respond(200, render_metrics(services), CONTENT_TYPE)

    def _has_token(self, head: Head) -> bool:
        return is_cookie(bearer_of(head.first("authorization")), self.services.cookie)

    async def _reply(self, stream: trio.SocketStream, answer: bytes) -> None:
        with trio.move_on_after(ANSWER_SECONDS):
            await stream.send_all(answer)
            # What was sent behind the head is read, so that closing does not take the answer back.
            await stream.send_eof()
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some(READ_BYTES):
                    pass

    def _upgrade(self, stream: trio.SocketStream, head: Head, behind: bytes) -> None:
        """Take the socket away from its stream, and go on with it as a WebSocket."""
        services = self.services
        limits, cookie = services.settings.limits, services.cookie
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        connection = WebSocketConnection(self, sock)
        connection.caller = Caller(
            services,
            self._door,
            connection,
            authenticated=self._has_token(head),
            authenticate=lambda given: is_cookie(given, cookie),
            bucket=make_bucket(limits.tcp_rate, limits.tcp_burst, services.timers.now()),
        )
        self.welcome(connection)
        connection.begin(switch(accept_key(head.first("sec-websocket-key"))), behind)


async def _read_head(stream: trio.SocketStream) -> bytes:
    """Return what comes up to the empty line, and what came with it; at most a little over the limit."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < MAX_HEAD:
        more = await stream.receive_some(MAX_HEAD)
        if not more:
            break
        data += more
    return data
