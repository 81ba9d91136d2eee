"""A real front in this process, with fakes behind its links, and clients of all transports."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.front.actor import FrontActor
from roost.config.load import load_settings
from roost.config.model import Settings, encode_settings
from roost.config.paths import Home
from roost.schemas import control
from roost.schemas.base import Done, Message
from roost.schemas.boot import Boot
from roost.schemas.unions import store_from_front
from roost.supervisor.actor import Process
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller
from tests.support.front_clients import (
    COOKIE,
    TRANSPORTS,
    Client,
    Json,
    UnixClient,
    WebSocketClient,
    open_client,
)
from tests.support.front_rows import NOW
from tests.support.front_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

__all__ = [
    "COOKIE",
    "TRANSPORTS",
    "Client",
    "FrontHouse",
    "Json",
    "UnixClient",
    "WebSocketClient",
    "open_client",
    "open_front",
    "settings_for",
]

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
            )
            link.reply(ref, control.Tree(nodes=(node,)))
        else:
            link.reply(ref, Done())

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
