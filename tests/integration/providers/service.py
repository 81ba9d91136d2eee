"""The providers process without a process: its actor, and peers at the other ends of real links."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.providers.actor import ProvidersActor
from roost.config.load import default_settings
from roost.config.model import Provider, encode_settings
from roost.schemas import control
from roost.schemas.boot import Boot
from roost.schemas.model import AskModel, ChatMessage, ModelAnswer, ModelDelta
from roost.schemas.unions import peer_from_providers
from roost.supervisor.actor import Process
from roost.supervisor.link import Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from roost.schemas.base import Message
    from roost.schemas.model import ToolSpec

TIMEOUT = 5.0


class Peer:
    """An agent, or the front, as the service sees it."""

    def __init__(self, sock: socket.socket, poller: Poller) -> None:
        self.pieces: dict[int, list[str]] = {}
        self.heard = trio.Event()
        self.link = Link(sock, poller, name="providers", decoder=peer_from_providers, handler=self)

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        assert isinstance(message, ModelDelta)
        self.pieces.setdefault(message.stream, []).append(message.text)
        self.heard.set()

    def on_closed(self, link: Link) -> None:
        self.heard.set()

    def text(self, stream: int) -> str:
        """Return the text that has come on a stream."""
        return "".join(self.pieces.get(stream, []))

    async def call(self, message: Message) -> Message:
        """Return the answer to a call."""
        return await self.link.call(message, timeout=TIMEOUT)

    async def answer(self, message: AskModel) -> ModelAnswer:
        """Return the answer of the model; fail if there is none."""
        answer = await self.call(message)
        assert isinstance(answer, ModelAnswer), answer
        assert self.text(message.stream) == answer.text
        return answer


class Service:
    """The actor, and what root does for it."""

    def __init__(self, providers: Mapping[str, Provider], nursery: trio.Nursery) -> None:
        self.poller = Poller()
        self.working = False
        settings = msgspec.structs.replace(default_settings(), providers=dict(providers))
        boot = Boot(
            home="/nowhere",
            settings=encode_settings(settings),
            root_pid=1,
            started_at=0,
            version="0",
        )
        payload = msgspec.msgpack.encode(boot)
        start = control.Start(child_id="providers", kind="providers", generation=1, payload=payload)
        ours, theirs = socket.socketpair()
        root = self._link(ours, control.ToChild)
        self._root = self._link(theirs, control.ToRoot)
        self.process = Process(self.poller, root, start, nursery)
        self.actor = ProvidersActor(self.process)
        self._generation = 0
        self._links: list[Link] = [root, self._root]

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Hear as root whether there is work."""
        assert isinstance(message, control.Busy)
        self.working = message.working

    def on_closed(self, link: Link) -> None:
        """Closing is part of every end."""

    def connect(self, name: str, *, read: bool = True) -> Peer:
        """Make a link between the actor and a new peer; one that does not read has a poller nobody runs."""
        ours, theirs = socket.socketpair()
        self._generation += 1
        self.actor.link_up(name, self._generation, ours.detach())
        peer = Peer(theirs, self.poller if read else Poller())
        self._links.append(peer.link)
        return peer

    def _link(self, sock: socket.socket, union: object) -> Link:
        decoder = msgspec.msgpack.Decoder(union)
        return Link(sock, self.poller, name="root", decoder=decoder, handler=self)

    def close(self) -> None:
        """Close what the actor's process would close by ending."""
        for link in self._links:
            link.close()
        self.poller.close()


@asynccontextmanager
async def serving(**providers: Provider) -> AsyncGenerator[Service]:
    """Run the actor with these providers, and wind it down in the end."""
    async with trio.open_nursery() as nursery:
        service = Service(providers, nursery)
        nursery.start_soon(service.poller.run)
        try:
            with trio.fail_after(3 * TIMEOUT):
                await service.actor.open()
                yield service
        finally:
            with trio.move_on_after(TIMEOUT, shield=True):
                await service.actor.wind_down("over", TIMEOUT)
            service.close()
            nursery.cancel_scope.cancel()


def ask(
    stream: int = 1,
    *,
    provider: str = "p",
    text: str = "Hi",
    tools: tuple[ToolSpec, ...] = (),
) -> AskModel:
    """Return a request."""
    messages = (ChatMessage(role="user", content=text),)
    return AskModel(stream=stream, provider=provider, model="", messages=messages, tools=tools)
