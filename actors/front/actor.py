"""The front: clients on one side, the services and root on the other; nothing of it is durable."""

from __future__ import annotations

import gc
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from roost.actors.errors import WrongState
from roost.actors.front.daemon_door import DOOR
from roost.actors.front.inprocess import InProcessDoor
from roost.actors.front.services import Services
from roost.actors.front.thread_door import THREAD_DOOR
from roost.actors.front.timers import Timers
from roost.actors.front.unix import UnixDoor
from roost.actors.front.websocket import GOING_AWAY, TcpDoor
from roost.actors.logs import adjust_log
from roost.config.errors import HomeError
from roost.config.files import read_cookie
from roost.config.model import decode_settings
from roost.config.paths import Home
from roost.schemas.boot import decode_boot
from roost.schemas.published import Published
from roost.schemas.unions import (
    front_from_commands,
    front_from_search,
    front_from_store,
    peer_from_providers,
)
from roost.supervisor.actor import ProcessActor
from roost.supervisor.bulk import BulkLink
from roost.supervisor.errors import StartRefused
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import msgspec

    from roost.actors.front.peer import Peer
    from roost.actors.front.router import Caller
    from roost.schemas.base import Message
    from roost.supervisor.actor import Process

FLUSH_SECONDS = 1.0
WORK_SECONDS = 1.0
STOPPING = "the daemon is shutting down"
KEPT_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class FrontActor(ProcessActor):
    """The root of the front's process."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        boot = decode_boot(process.start.payload)
        settings = decode_settings(boot.settings)
        timers = Timers()
        DOOR.thread = THREAD_DOOR
        self.services = Services(boot, settings, timers, process.nursery)
        self.unix = UnixDoor(self.services, DOOR, process.poller)
        self.tcp = TcpDoor(self.services, DOOR, process.poller)
        self.inprocess = InProcessDoor(self.services, DOOR)
        self._store: Link | None = None
        self._providers: Link | None = None
        self._search: Link | None = None
        self._commands: Link | None = None
        self._working = False
        self._opened = False
        self._listeners: list[tuple[str, int]] = []
        self.services.requests_open = self._requests_open
        self.services.root.connect(process.root)
        self.services.store.on_call = self.services.root.on_call = self._note_work
        process.nursery.start_soon(timers.run)

    async def open(self) -> None:
        """Read the cookie and begin to accept clients; what they ask waits for the store."""
        try:
            self.services.cookie = read_cookie(Home(Path(self.services.boot.home), explicit=True))
        except HomeError as error:
            raise StartRefused(str(error)) from None
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        _keep_freed_memory()
        self._opened = True
        for name, handle in self._listeners:
            self._listen(name, handle)
        await trio.lowlevel.checkpoint()

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take a link to a service, or a listener."""
        if name == "store":
            self._link_store(handle)
        elif name == "providers":
            old, self._providers = (
                self._providers,
                self._link(name, handle, peer_from_providers, _Other()),
            )
            self.services.providers.connect(self._providers)
            _close(old)
        elif name == "search":
            _close(self._search)
            self._search = self._link(name, handle, front_from_search, _FromSearch(self))
            self.services.search.connect(self._search)
        elif name == "commands":
            _close(self._commands)
            self._commands = link = BulkLink(
                socket.socket(fileno=handle),
                self.process.poller,
                name=name,
                decoder=front_from_commands,
                handler=_FromCommands(self),
                queue_bytes=self.services.settings.limits.link_bytes,
            )
            self.services.to_commands.connect(link)
        elif name in ("listener.unix", "listener.tcp"):
            if self._opened:
                self._listen(name, handle)
            else:
                self._listeners.append((name, handle))
        else:
            _log.error("no use for a link to %s", name)
            os.close(handle)

    def configure(self, payload: bytes) -> None:
        """Take over new settings, also for the connections that there are; one reads lines as long as at its start."""
        settings = decode_settings(payload)
        log, limits, services = settings.log, settings.limits, self.services
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        services.configure(settings)
        for gateway in (services.store, services.search, services.to_commands, services.providers):
            if gateway.link is not None:
                gateway.link.set_bound(limits.link_bytes)
        for connection in self.unix.connections:
            connection.caller.configure(limits.unix_rate, max(limits.unix_burst, 1))
        for connection in self.tcp.connections:
            connection.caller.configure(limits.tcp_rate, max(limits.tcp_burst, 1))
        for caller in self.inprocess.peers.values():
            caller.configure(0, 1)

    def draining(self, reason: str) -> None:
        """Refuse new requests; what is open goes on."""
        self.services.stopping = True
        for _, caller in self._clients():
            caller.connection.stopping = True
            if caller.thread is not None:
                caller.thread.warn("shutting_down", STOPPING)

    async def wind_down(self, reason: str, grace: float) -> None:
        """Answer what is open, write what is queued, close."""
        self.draining(reason)
        self.unix.stop_listening()
        self.tcp.stop_listening()
        for peer, caller in list(self._clients()):
            caller.shut_down()
            peer.finish(GOING_AWAY, STOPPING)
        with trio.move_on_after(min(FLUSH_SECONDS, grace)):
            await self.services.wait_empty()
        self.services.fanout.report_now()
        if self._store is not None:
            self._store.flush()

    def _clients(self) -> Iterator[tuple[Peer, Caller]]:
        for connection in (*self.unix.connections, *self.tcp.connections):
            yield connection, connection.caller
        yield from self.inprocess.peers.items()

    def _requests_open(self) -> int:
        return sum(caller.connection.open_requests for _, caller in self._clients())

    def _listen(self, name: str, handle: int) -> None:
        listener = socket.socket(fileno=handle)
        if name == "listener.unix":
            self.unix.listen(listener)
        else:
            self.process.nursery.start_soon(self.tcp.serve, listener)

    def _link(
        self,
        name: str,
        handle: int,
        decoder: msgspec.msgpack.Decoder[Message],
        handler: _Other,
    ) -> Link:
        return Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=decoder,
            handler=handler,
            queue_bytes=self.services.settings.limits.link_bytes,
        )

    def _link_store(self, handle: int) -> None:
        _close(self._store)
        services = self.services
        link = self._link("store", handle, front_from_store, _FromStore(self))
        self._store = link
        # What is followed is followed again before anything that waited is asked, so no end of a message is missed.
        services.store.connect(link, before=services.fanout.relink)

    def store_lost(self, link: Link) -> None:
        """Stand still until root hands over the next link."""
        if self._store is link:
            self._store = None
            self.services.store.disconnect(link)
            self.services.fanout.unlink()
            self.process.miss_link("store", lambda: self._store is not None)

    def search_lost(self, link: Link) -> None:
        """Let searches wait for the next link; root makes one when the service has been restarted."""
        if self._search is link:
            self._search = None
            self.services.search.disconnect(link)
            self.process.miss_link("search", lambda: self._search is not None)

    def commands_lost(self, link: Link) -> None:
        """Answer for the commands that ran; later ones wait for the next link."""
        if self._commands is link:
            self._commands = None
            self.services.to_commands.disconnect(link)
            # Services end before the front when the daemon stops.
            stopping = WrongState("SHUTTING_DOWN", STOPPING)
            self.services.commands.lost(stopping if self.services.stopping else None)
            self.process.miss_link("commands", lambda: self._commands is not None)

    def _note_work(self) -> None:
        """Be watched for hangs while somebody waits for an answer."""
        if not self._working:
            self._working = True
            self.process.set_working(True)
            self.services.timers.after(WORK_SECONDS, self._look_for_work)

    def _look_for_work(self) -> None:
        services = self.services
        if services.store.busy or services.root.busy:
            services.timers.after(WORK_SECONDS, self._look_for_work)
        else:
            self._working = False
            self.process.set_working(False)


class _Other:
    """Handler of a link on which nothing but answers is expected."""

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        _log.error("unexpected message from %s: %s", link.name, type(message).__name__)

    def on_closed(self, link: Link) -> None:
        """Calls have failed already."""


class _FromStore(_Other):
    def __init__(self, front: FrontActor) -> None:
        self._front = front
        self._take: Callable[[Published], None] = front.services.fanout.take

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        if isinstance(message, Published):
            self._take(message)
        else:
            super().on_message(link, ref, message)

    def on_closed(self, link: Link) -> None:
        self._front.store_lost(link)


class _FromSearch(_Other):
    def __init__(self, front: FrontActor) -> None:
        self._front = front

    def on_closed(self, link: Link) -> None:
        self._front.search_lost(link)


class _FromCommands(_Other):
    def __init__(self, front: FrontActor) -> None:
        self._front = front
        self._take = front.services.commands.take

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        if not self._take(message):
            super().on_message(link, ref, message)

    def on_closed(self, link: Link) -> None:
        self._front.commands_lost(link)


def _close(link: Link | None) -> None:
    if link is not None:
        link.close()


def _keep_freed_memory() -> None:
    """Have the C library keep up to twice `KEPT_BYTES` of freed memory: glibc learns that from a block which is freed.

    Otherwise the memory of each large answer goes back to the system at once, to be asked for again page by page.
    """
    bytes(KEPT_BYTES)
