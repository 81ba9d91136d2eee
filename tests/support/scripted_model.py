"""A model's server that plays a script: each request gets the next answer, and the last answer again and again.

Raw on purpose: what it sends may be no HTTP, stop in the middle, or never come.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

Json = dict[str, object]
Answer = Callable[["Stage"], Awaitable[None]]

SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Asked(msgspec.Struct):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


class Stage:
    """Where an answer plays: one request on one connection."""

    def __init__(self, stream: trio.SocketStream, asked: Asked) -> None:
        self._stream = stream
        self.asked = asked

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self._stream.send_all(data)

    async def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body; an empty one ends it."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, data: Json | str) -> None:
        """Send one event in a chunk of its own."""
        await self.chunk(event(data))

    async def until_hung_up(self) -> None:
        """Wait until the other side closes the connection."""
        while await self._stream.receive_some(4096):
            pass


class ScriptedModel:
    """The server's script, and what it has seen."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.address}/v1"
        self.asked: list[Asked] = []
        self.connections = 0
        self.hung_up = trio.Event()
        self._answers: list[Answer] = [says("Hello")]

    def play(self, *answers: Answer) -> None:
        """Answer the next requests with these, and with the last of them from then on."""
        self._answers = list(answers)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        buffer = b""
        try:
            while True:
                asked, buffer = await _read_request(stream, buffer)
                if asked is None:
                    return
                self.asked.append(asked)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                await answer(Stage(stream, asked))
        except (trio.BrokenResourceError, trio.ClosedResourceError, _Closed):
            pass
        finally:
            self.hung_up.set()
            await trio.aclose_forcefully(stream)


class _Closed(Exception):
    """The answer ends with the connection."""


@asynccontextmanager
async def scripted_model() -> AsyncGenerator[ScriptedModel]:
    """Run a scripted server in this event loop, on a free port of the loopback address."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = ScriptedModel(listeners[0].socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, server.handle, listeners)
        yield server
        nursery.cancel_scope.cancel()


@contextmanager
def scripted_model_in_thread() -> Generator[ScriptedModel]:
    """Run a scripted server in a thread, for tests without an event loop."""
    ready = threading.Event()
    found: list[tuple[ScriptedModel, Callable[[], None]]] = []

    async def serve() -> None:
        token = trio.lowlevel.current_trio_token()
        stop = trio.Event()
        async with scripted_model() as server:
            found.append((server, lambda: token.run_sync_soon(stop.set)))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert ready.wait(5.0)
    server, stop = found[0]
    try:
        yield server
    finally:
        stop()
        thread.join(5.0)


def event(data: Json | str) -> bytes:
    """Return one event as it is on the wire."""
    text = data if isinstance(data, str) else json.dumps(data)
    return b"data: " + text.encode() + b"\n\n"


def delta(**members: object) -> Json:
    """Return a chunk with a delta of these members."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": members}]}


def finish(reason: str = "stop") -> Json:
    """Return the chunk that names the finish reason."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def usage(input_tokens: int, output_tokens: int) -> Json:
    """Return the chunk with the usage."""
    counts = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
    return {"choices": [], "usage": counts}


def call_piece(index: int, arguments: str, *, call_id: str = "", name: str = "") -> Json:
    """Return a chunk with a piece of a tool call."""
    function: Json = {"arguments": arguments}
    piece: Json = {"index": index, "function": function}
    if call_id:
        piece |= {"id": call_id, "type": "function"}
        function["name"] = name
    return delta(tool_calls=[piece])


def events(items: Sequence[Json | str], *, interval: float = 0.0) -> Answer:
    """Answer with a stream of these events, each a chunk of its own."""

    async def play(stage: Stage) -> None:
        await stage.send(SSE_HEAD)
        for item in items:
            await stage.event(item)
            if interval:
                await trio.sleep(interval)
        await stage.chunk(b"")

    return play


def says(*pieces: str, interval: float = 0.0) -> Answer:
    """Answer with text in these pieces, as a well-behaved server does."""
    chunks: list[Json | str] = [delta(role="assistant", content=None)]
    chunks += [delta(content=piece) for piece in pieces]
    chunks += [finish(), usage(7, len(pieces)), "[DONE]"]
    return events(chunks, interval=interval)


def calls(name: str, *arguments: str, call_id: str = "call_abc") -> Answer:
    """Answer with one tool call whose arguments come in these pieces."""
    chunks: list[Json | str] = [call_piece(0, "", call_id=call_id, name=name)]
    chunks += [call_piece(0, piece) for piece in arguments]
    chunks += [finish("tool_calls"), "[DONE]"]
    return events(chunks)


def status(code: int, headers: dict[str, str] | None = None, body: Json | None = None) -> Answer:
    """Answer with a status and a JSON body."""

    async def play(stage: Stage) -> None:
        content = json.dumps(body or {"error": {"message": "no"}}).encode()
        lines = [f"HTTP/1.1 {code} Whatever", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += [f"Content-Length: {len(content)}", "", ""]
        await stage.send("\r\n".join(lines).encode() + content)

    return play


def body(content: bytes, kind: str = "application/json") -> Answer:
    """Answer with status 200 and this body."""

    async def play(stage: Stage) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        await stage.send(head.encode() + content)

    return play


def raw(data: bytes) -> Answer:
    """Send these bytes and close."""

    async def play(stage: Stage) -> None:
        await stage.send(data)
        raise _Closed

    return play


def cut_after(*pieces: str) -> Answer:
    """Begin a stream of text and close the connection in its middle."""

    async def play(stage: Stage) -> None:
        await stage.send(SSE_HEAD)
        for piece in pieces:
            await stage.event(delta(content=piece))
        raise _Closed

    return play


def silent_after(*items: Json | str) -> Answer:
    """Send these events (without any not even a head), and then nothing until the other side gives up."""

    async def play(stage: Stage) -> None:
        if items:
            await stage.send(SSE_HEAD)
        for item in items:
            await stage.event(item)
        await stage.until_hung_up()
        raise _Closed

    return play


def drips(interval: float) -> Answer:
    """Send one event byte by byte, without an end."""

    async def play(stage: Stage) -> None:
        await stage.send(SSE_HEAD)
        while True:
            await stage.chunk(b"x")
            await trio.sleep(interval)

    return play


def pours(piece: str) -> Answer:
    """Send text without an end."""

    async def play(stage: Stage) -> None:
        await stage.send(SSE_HEAD)
        while True:
            await stage.event(delta(content=piece))

    return play


async def _read_request(stream: trio.SocketStream, buffer: bytes) -> tuple[Asked | None, bytes]:
    while b"\r\n\r\n" not in buffer:
        data = await stream.receive_some(65_536)
        if not data:
            return None, b""
        buffer += data
    head, _, rest = buffer.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = [field.partition(":") for field in fields]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    while len(rest) < length:
        data = await stream.receive_some(65_536)
        if not data:
            return None, b""
        rest += data
    return Asked(line=line, headers=headers, body=rest[:length]), rest[length:]
