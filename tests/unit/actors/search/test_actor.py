from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.search.actor import SearchActor
from roost.config.load import default_settings
from roost.config.model import encode_settings
from roost.schemas import control
from roost.schemas.boot import Boot
from roost.schemas.search import Search
from roost.supervisor.actor import Process
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from roost.schemas.base import Message


class Nobody:
    """A handler that is told nothing."""

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Nothing comes."""

    def on_closed(self, link: Link) -> None:
        """Nothing is lost."""


_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToChild)


async def test_what_an_older_front_has_asked_is_given_up() -> None:
    boot = Boot(
        home="/nowhere",
        settings=encode_settings(default_settings()),
        root_pid=1,
        started_at=0,
        version="",
    )
    payload = msgspec.msgpack.encode(boot)
    start = control.Start(child_id="search", kind="search", generation=1, payload=payload)
    with ExitStack() as sockets:
        async with trio.open_nursery() as nursery:
            poller = Poller()
            ours, theirs = socket.socketpair()
            sockets.enter_context(theirs)
            root = ControlLink(ours, poller, name="root", decoder=_decoder, handler=Nobody())
            actor = SearchActor(Process(poller, root, start, nursery))
            old, peer = socket.socketpair()
            sockets.enter_context(peer)
            actor.link_up("front", 1, old.detach())
            link = actor._link
            assert link is not None
            actor.on_message(link, 1, Search(number=1, query="a", roots=()))
            (job,) = actor._jobs.values()
            new, peer = socket.socketpair()
            sockets.enter_context(peer)
            actor.link_up("front", 2, new.detach())
            assert job.cancelled()
            nursery.cancel_scope.cancel()
        for each in (actor._link, root):
            assert each is not None
            each.close()
