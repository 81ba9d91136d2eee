"""A real front in this process, with fakes behind its links, and clients of both transports."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from roost.actors.front.actor import FrontActor
from roost.config.load import load_settings
from roost.config.model import Settings, encode_settings
from roost.config.paths import Home
from roost.schemas import control
from roost.schemas.approval import Permissions
from roost.schemas.base import Done, Message
from roost.schemas.boot import Boot
from roost.schemas.frame import LineReader
from roost.schemas.unions import agent_from_front, store_from_front
from roost.supervisor.actor import Process
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller
from tests.support.front_store import NOW, RULE, FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

COOKIE = "c" * 64
Json = dict[str, object]

_to_root: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)
_to_child: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToChild)


class FakeRoot:
    """Root's end of the control link."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer a call."""
        self.heard.append(message)
        if isinstance(message, control.AskTree):
            node = control.TreeNode(
                child_id="front",
                parent="root",
                kind="front",
                state="ready",
                pid=1,
                generation=1,
                restarts=0,
                uptime=1.5,
                rss=1024,
            )
            link.reply(ref, control.Tree(nodes=(node,)))
        else:
            link.reply(ref, Done())

    def on_closed(self, link: Link) -> None:
        """Nothing is lost with it."""


class FakeAgent:
    """An agent's end of its link to the front."""

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer `ListPermissions`."""
        link.reply(ref, Permissions(permissions=(RULE,)))

    def on_closed(self, link: Link) -> None:
        """Nothing is lost with it."""


def settings_for(home: Path, **changes: dict[str, object]) -> Settings:
    """Return the settings as shipped, with changed members: `limits={"connections": 2}`."""
    settings = load_settings(Home(home, explicit=True), {}, {}).settings
    for table, members in changes.items():
        changed = msgspec.structs.replace(getattr(settings, table), **members)
        settings = msgspec.structs.replace(settings, **{table: changed})
    return settings


class FrontHouse:
    """A running front and everything around it."""

    def __init__(
        self, home: Path, settings: Settings, nursery: trio.Nursery, root_pid: int
    ) -> None:
        self.home = home
        self.store = FakeStore()
        self.root = FakeRoot()
        self.poller = Poller()
        self.nursery = nursery
        ours, theirs = socket.socketpair()
        self._root_link = ControlLink(
            ours, self.poller, name="front", decoder=_to_root, handler=self.root
        )
        boot = Boot(
            home=str(home),
            settings=encode_settings(settings),
            root_pid=root_pid,
            started_at=NOW,
            version="0.1.0",
        )
        start = control.Start(
            child_id="front", kind="front", generation=1, payload=msgspec.msgpack.encode(boot)
        )
        link = ControlLink(theirs, self.poller, name="root", decoder=_to_child, handler=self.root)
        self.process = Process(self.poller, link, start, nursery)
        self.front = FrontActor(self.process)
        self.socket_path = str(home / "daemon.sock")
        self.tcp_port = 0
        self.settings = settings

    def link_store(self) -> None:
        """Give the front a new link to the store."""
        if self.store.link is not None:
            self.store.link.close()
        ours, theirs = socket.socketpair()
        self.store.link = Link(
            ours, self.poller, name="front", decoder=store_from_front, handler=self.store
        )
        self.front.link_up("store", 1, theirs.detach())

    def link_agent(self, agent_id: str) -> Link:
        """Give the front a link to an agent."""
        ours, theirs = socket.socketpair()
        link = Link(ours, self.poller, name="front", decoder=agent_from_front, handler=FakeAgent())
        self.front.link_up(f"agent:{agent_id}", 1, theirs.detach())
        return link

    def listen(self) -> None:
        """Give the front its listeners."""
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(self.socket_path)
        unix.listen(512)
        self.front.link_up("listener.unix", 1, unix.detach())
        tcp = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.tcp_port = tcp.getsockname()[1]
        self.front.link_up("listener.tcp", 1, tcp.detach())

    @property
    def url(self) -> str:
        """The WebSocket's address."""
        return f"ws://127.0.0.1:{self.tcp_port}/"


@contextlib.asynccontextmanager
async def open_front(
    home: Path, *, root_pid: int = 2**22, **changes: dict[str, object]
) -> AsyncGenerator[FrontHouse]:
    """Run a front with these settings until the block is left."""
    cookie = home / "daemon.cookie"
    cookie.write_text(COOKIE + "\n")
    cookie.chmod(0o600)
    async with trio.open_nursery() as nursery:
        house = FrontHouse(home, settings_for(home, **changes), nursery, root_pid)
        nursery.start_soon(house.poller.run)
        await house.front.open()
        house.link_store()
        house.listen()
        try:
            yield house
        finally:
            nursery.cancel_scope.cancel()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(house.socket_path)


class Client:
    """A client of either transport: `send` and `receive` JSON objects; notifications are kept apart from answers."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self._answers: dict[object, Json] = {}
        self._last = 0

    async def send_raw(self, data: bytes) -> None:
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
        if params is not None:
            request["params"] = params
        await self.send_raw(msgspec.json.encode(request))
        return self._last

    async def read(self) -> Json | None:
        """Return the next message, whatever it is."""
        raw = await self.receive_raw()
        return msgspec.json.decode(raw, type=Json) if raw else None

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


class UnixClient(Client):
    """Newline JSON."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__()
        self.stream = stream
        self._reader = LineReader(64 * 1024 * 1024)
        self._lines: list[bytes] = []

    async def send_raw(self, data: bytes) -> None:
        await self.stream.send_all(data + b"\n")

    async def receive_raw(self) -> bytes:
        while not self._lines:
            try:
                data = await self.stream.receive_some(262_144)
            except trio.BrokenResourceError:
                return b""
            if not data:
                return b""
            self._lines.extend(self._reader.feed(data))
        return self._lines.pop(0)

    async def aclose(self) -> None:
        await self.stream.aclose()


class WebSocketClient(Client):
    """One object in each text frame."""

    def __init__(self, socket: WebSocketConnection, stream: trio.SocketStream) -> None:
        super().__init__()
        self.socket = socket
        self.stream = stream

    async def send_raw(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self.socket.send_message(data.decode())

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
    if transport == "unix":
        client: Client = UnixClient(await trio.open_unix_socket(house.socket_path))
    else:
        stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
        host = f"127.0.0.1:{house.tcp_port}"
        socket = await wrap_client_stream(house.nursery, stream, host, "/")
        client = WebSocketClient(socket, stream)
    try:
        if initialize:
            await client.initialize(**params)
        yield client
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await client.aclose()
