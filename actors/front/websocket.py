"""The TCP port: plain HTTP answers, and WebSocket connections with one JSON message in each text frame."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import trio
from trio_websocket import (
    ConnectionClosed,
    HandshakeError,
    WebSocketConnection,
    wrap_server_stream,
)

from roost.actors.errors import DaemonError
from roost.actors.front.auth import bearer_of, is_cookie
from roost.actors.front.envelope import error_line
from roost.actors.front.http import (
    MAX_HEAD,
    Head,
    is_host_allowed,
    is_origin_allowed,
    parse_head,
    respond,
)
from roost.actors.front.limits import make_bucket
from roost.actors.front.metrics import CONTENT_TYPE, render_metrics
from roost.actors.front.peer import Batch, Peer
from roost.actors.front.router import Caller

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roost.actors.front.router import Door
    from roost.actors.front.services import Services
    from roost.actors.front.timers import Timer

READ_BYTES = 64 * 1024
ANSWER_SECONDS = 5.0
FINISH_SECONDS = 1.0
GOING_AWAY = 1001
TOO_BIG = 1009

_log = logging.getLogger(__name__)


class _Resumed(trio.abc.Stream):
    """A stream of which the beginning has been read already."""

    def __init__(self, stream: trio.abc.Stream, head: bytes) -> None:
        self._stream = stream
        self._head = head

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._head:
            await trio.lowlevel.checkpoint()
            size = max_bytes or len(self._head)
            head, self._head = self._head[:size], self._head[size:]
            return head
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class WebSocketPeer(Peer):
    """One client's WebSocket: a queue, and a task that writes it."""

    transport = "websocket"

    def __init__(self, socket: WebSocketConnection, services: Services) -> None:
        limits = services.settings.limits
        super().__init__(
            answer_limit=limits.unsent_response_bytes, event_limit=limits.client_queue_bytes
        )
        self.scope = trio.CancelScope()
        self._socket = socket
        self._services = services
        self._wanted = trio.Event()
        self._finish: tuple[int, str] | None = None
        self._timers: list[Timer] = []

    def wake(self) -> None:
        """Let the writer go on."""
        self._wanted.set()

    def finish(self, code: int = 1000, reason: str = "") -> None:
        """Close with this code once what is queued has been sent, or soon anyway."""
        if self._finish is None and not self.closed:
            self._finish = (code, reason)
            self._after(FINISH_SECONDS, self.scope.cancel)
            self._wanted.set()

    def abort(self, reason: str) -> None:
        """Close now."""
        _log.info("a client is disconnected: %s", reason)
        self.forget()
        self.scope.cancel()

    def expect_greeting(self, seconds: float, caller: Caller) -> None:
        """Close if the client has not initialized in so many seconds."""
        self._after(seconds, lambda: self._look_greeted(caller))

    def forget(self) -> None:
        """Drop what is queued and what was to be done later; the connection has ended."""
        super().forget()
        for timer in self._timers:
            timer.cancel()

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._services.timers.after(seconds, callback))

    def _look_greeted(self, caller: Caller) -> None:
        if not caller.connection.greeted and not self.closed:
            self.abort("it did not initialize in time")

    @property
    def finishing(self) -> bool:
        """Whether nothing more is to be read."""
        return self._finish is not None

    async def write(self) -> None:
        """Send what is queued until the connection ends."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                while self._queue:
                    entry = self._queue.popleft()
                    self._begun = (entry,)
                    await self._send(entry)
                    self._begun = ()
                if self._finish is not None:
                    code, reason = self._finish
                    await self._socket.aclose(code, reason)
                    return
                self._wanted = trio.Event()
                if not self._queue and self._finish is None:
                    await self._wanted.wait()

    async def _send(self, entry: bytes | Batch) -> None:
        if isinstance(entry, bytes):
            await self._send_line(entry)
            self._answers -= len(entry)
            return
        for line in entry.lines:
            await self._send_line(line)

    async def _send_line(self, line: bytes) -> None:
        stall = self._services.settings.timeouts.client_stall or float("inf")
        with trio.move_on_after(stall) as scope:
            await self._socket.send_message(line[:-1].decode())
        if scope.cancelled_caught:
            self.abort("nothing could be written to it")
            await trio.lowlevel.checkpoint_if_cancelled()
        if not self.closed:
            self.took(len(line))


class TcpDoor:
    """The TCP listener and its connections."""

    def __init__(self, services: Services, door: Door) -> None:
        self.services = services
        self.peers: dict[WebSocketPeer, Caller] = {}
        self._door = door
        self._open = 0
        self._accepting: trio.CancelScope | None = None

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
                    await self._reply(stream, respond(503, b"too many connections\n"))
                else:
                    await self._count(stream)
        except* (
            ConnectionClosed,
            HandshakeError,
            trio.BrokenResourceError,
            trio.ClosedResourceError,
        ) as group:
            _log.info("a client of the TCP port is gone: %r", group.exceptions)

    async def _count(self, stream: trio.SocketStream) -> None:
        self._open += 1
        self.services.count("websocket", self._open)
        try:
            await self._talk(stream)
        finally:
            self._open -= 1
            self.services.count("websocket", self._open)

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
        await self._upgrade(_Resumed(stream, data), head)

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

    async def _upgrade(self, stream: trio.abc.Stream, head: Head) -> None:
        services = self.services
        limits, timeouts = services.settings.limits, services.settings.timeouts
        async with trio.open_nursery() as nursery:
            socket: WebSocketConnection | None = None
            with trio.move_on_after(timeouts.handshake or float("inf")):
                request = await wrap_server_stream(
                    nursery,
                    stream,
                    message_queue_size=1,
                    max_message_size=limits.line_bytes,
                    receive_buffer_size=READ_BYTES,
                )
                socket = await request.accept()
            if socket is not None:
                await self._serve_socket(socket, authenticated=self._has_token(head))
            nursery.cancel_scope.cancel()

    async def _serve_socket(self, socket: WebSocketConnection, *, authenticated: bool) -> None:
        services = self.services
        limits, cookie = services.settings.limits, services.cookie
        peer = WebSocketPeer(socket, services)
        caller = Caller(
            services,
            self._door,
            peer,
            authenticated=authenticated,
            authenticate=lambda given: is_cookie(given, cookie),
            bucket=make_bucket(limits.tcp_rate, limits.tcp_burst, services.timers.now()),
        )
        self.peers[peer] = caller
        handshake = services.settings.timeouts.handshake
        if handshake:
            peer.expect_greeting(handshake, caller)
        try:
            with peer.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(peer.write)
                    await _read(socket, peer, caller, limits.line_bytes)
                    if not peer.finishing:
                        nursery.cancel_scope.cancel()
        finally:
            del self.peers[peer]
            peer.forget()
            caller.end()


async def _read_head(stream: trio.SocketStream) -> bytes:
    """Return what comes up to the empty line, and what came with it; at most a little over the limit."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < MAX_HEAD:
        more = await stream.receive_some(MAX_HEAD)
        if not more:
            break
        data += more
    return data


async def _read(
    socket: WebSocketConnection, peer: WebSocketPeer, caller: Caller, limit: int
) -> None:
    """Handle messages until the client closes or the connection is to be finished."""
    with contextlib.suppress(ConnectionClosed):
        while not peer.finishing and not peer.closed:
            message = await socket.get_message()
            if not isinstance(message, str):
                continue
            line = message.encode(errors="surrogatepass")
            if len(line) > limit:
                text = f"a message has at most {limit} bytes"
                error = DaemonError("MESSAGE_TOO_LARGE", text, {"limit": limit})
                peer.answer(error_line(None, error))
                peer.finish(TOO_BIG, text)
                return
            answer = caller.receive(line)
            if answer is not None:
                peer.answer(answer)
