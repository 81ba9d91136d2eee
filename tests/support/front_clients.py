"""Clients of the front over each of its transports, all used alike."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from roost.actors.errors import DaemonError
from roost.schemas.frame import LineReader
from tests.support.checked import check_message
from tests.support.commands import command, environ

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from roost.actors.front.inprocess import InProcess
    from roost.actors.front.promise import Promise
    from tests.support.front import FrontHouse

COOKIE = "c" * 64
Json = dict[str, object]


class Client:
    """A client of any transport: `send` and `receive` JSON objects; notifications are kept apart from answers."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self._answers: dict[object, Json] = {}
        self._last = 0

    async def send_raw(self, data: bytes) -> None:
        raise NotImplementedError

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        raise NotImplementedError

    async def receive_raw(self) -> bytes:
        """Return the next message; nothing at the end."""
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError

    async def send(self, method: str, params: Json | None = None, **extra: object) -> int:
        """Send a request and return its id."""
        self._last += 1
        request: Json = {"jsonrpc": "2.0", "id": self._last, "method": method, **extra}
        request["params"] = params or {}
        await self.send_raw(msgspec.json.encode(request))
        return self._last

    async def read(self) -> Json | None:
        """Return the next message, whatever it is."""
        raw = await self.receive_raw()
        if not raw:
            return None
        message: Json = msgspec.json.decode(raw, type=Json)
        check_message(message)
        return message

    async def answer(self, request_id: object) -> Json:
        """Return the answer to a request; what comes before is kept."""
        while request_id not in self._answers:
            message = await self.read()
            assert message is not None, f"the connection ended; waiting for {request_id}"
            if "method" in message:
                self.events.append(message)
            else:
                self._answers[message["id"]] = message
        return self._answers.pop(request_id)

    async def call(self, method: str, params: Json | None = None) -> Json:
        """Return the result of a request."""
        answer = await self.answer(await self.send(method, params))
        assert "result" in answer, answer
        return cast("Json", answer["result"])

    async def refused(self, method: str, params: Json | None = None) -> Json:
        """Return the error of a request."""
        answer = await self.answer(await self.send(method, params))
        assert "error" in answer, answer
        return cast("Json", answer["error"])

    async def until(self, wanted: str) -> Json:
        """Return the params of the next notification whose method, type or status is this one."""
        while True:
            params = cast("dict[str, Any]", (await self.event())["params"])
            kind = params["event"]["type"] if "event" in params else params.get("status", "")
            if kind == wanted or (wanted == "chunk" and "delta" in params):
                return params

    async def event(self) -> Json:
        """Return the next notification."""
        while not self.events:
            message = await self.read()
            assert message is not None, "the connection ended; waiting for an event"
            if "method" in message:
                self.events.append(message)
            else:
                self._answers[message["id"]] = message
        return self.events.pop(0)

    async def initialize(self, **params: object) -> Json:
        """Open the logical connection."""
        return await self.call(
            "initialize", {"protocolVersion": "1.0.0", "authCookie": COOKIE, **params}
        )


class LineClient(Client):
    """Newline JSON on a pair of byte streams."""

    def __init__(self, source: trio.abc.ReceiveStream, target: trio.abc.SendStream) -> None:
        super().__init__()
        self._source = source
        self._target = target
        self._reader = LineReader(64 * 1024 * 1024)
        self._lines: list[bytes] = []

    async def send_raw(self, data: bytes) -> None:
        await self.send_bytes(data + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        await self._target.send_all(data)

    async def end_input(self) -> None:
        """Say that nothing more will come."""
        raise NotImplementedError

    async def receive_raw(self) -> bytes:
        while not self._lines:
            try:
                data = await self._source.receive_some(262_144)
            except trio.BrokenResourceError:
                return b""
            if not data:
                return b""
            self._lines.extend(self._reader.feed(bytes(data)))
        return self._lines.pop(0)


class UnixClient(LineClient):
    """The Unix socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream, stream)
        self.stream = stream

    async def end_input(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()


class StdioClient(LineClient):
    """A process `roost connect` between its standard input and output and the Unix socket."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin)
        self.process = process
        self._stdin = process.stdin

    async def end_input(self) -> None:
        await self._stdin.aclose()

    async def aclose(self) -> None:
        self.process.kill()
        await self.process.wait()
        await self._source.aclose()
        await self._target.aclose()


class InProcessClient(Client):
    """A handle in the front's own process."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: InProcess
        self._messages: deque[bytes] = deque()
        self._news = trio.Event()

    def take(self, message: bytes | None) -> None:
        """Keep a message for `receive_raw`; an empty one is the end, None is nothing."""
        if message is not None:
            self._messages.append(message)
            self._news.set()

    async def send_raw(self, data: bytes) -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            promise = self.handle.dispatch(data)
            promise.then(lambda: self._take_answer(promise))

    def _take_answer(self, promise: Promise[bytes | None]) -> None:
        # What is still open when the handle is closed gets no message, as on a socket.
        with contextlib.suppress(DaemonError):
            self.take(promise.result())

    async def receive_raw(self) -> bytes:
        while not self._messages:
            self._news = trio.Event()
            await self._news.wait()
        return self._messages.popleft()

    async def aclose(self) -> None:
        self.handle.close()
        await trio.lowlevel.checkpoint()


class WebSocketClient(Client):
    """One object in each text frame."""

    def __init__(self, socket: WebSocketConnection, stream: trio.SocketStream) -> None:
        super().__init__()
        self.socket = socket
        self.stream = stream

    async def send_raw(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self.socket.send_message(data.decode())

    async def send_bytes(self, data: bytes) -> None:
        await self.stream.send_all(data)

    @staticmethod
    def frame(
        payload: bytes, *, opcode: int = 1, final: bool = True, masked: bool = True, rsv: int = 0
    ) -> bytes:
        """Return a client's frame; the mask is nothing but zeros, which is allowed."""
        size = len(payload)
        head = bytes((final << 7 | rsv << 4 | opcode,))
        bit = masked << 7
        if size < 126:
            head += bytes((bit | size,))
        elif size < 2**16:
            head += bytes((bit | 126,)) + size.to_bytes(2)
        else:
            head += bytes((bit | 127,)) + size.to_bytes(8)
        return head + bytes(4 if masked else 0) + payload

    async def receive_raw(self) -> bytes:
        try:
            message = await self.socket.get_message()
        except ConnectionClosed:
            return b""
        return message.encode() if isinstance(message, str) else message

    async def aclose(self) -> None:
        await self.socket.aclose()
        await self.stream.aclose()


@contextlib.asynccontextmanager
async def open_client(
    house: FrontHouse, transport: str = "unix", *, initialize: bool = True, **params: object
) -> AsyncGenerator[Client]:
    """Connect to the front."""
    client = await _OPEN[transport](house)
    try:
        if initialize:
            await client.initialize(**params)
        yield client
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await client.aclose()


async def _open_unix(house: FrontHouse) -> Client:
    return UnixClient(await trio.open_unix_socket(house.socket_path))


async def _open_websocket(house: FrontHouse) -> Client:
    stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
    host = f"127.0.0.1:{house.tcp_port}"
    socket = await wrap_client_stream(
        house.nursery, stream, host, "/", max_message_size=64 * 1024 * 1024
    )
    return WebSocketClient(socket, stream)


async def _open_stdio(house: FrontHouse) -> Client:
    process = await trio.lowlevel.open_process(
        command(house.home, "connect"), stdin=-1, stdout=-1, env=environ()
    )
    return StdioClient(process)


async def _open_inprocess(house: FrontHouse) -> Client:
    client = InProcessClient()
    client.handle = house.front.inprocess.connect(client.take)
    client.handle.ended.then(lambda: client.take(b""))
    await trio.lowlevel.checkpoint()
    return client


_OPEN = {
    "unix": _open_unix,
    "websocket": _open_websocket,
    "stdio": _open_stdio,
    "in-process": _open_inprocess,
}
TRANSPORTS = tuple(_OPEN)
