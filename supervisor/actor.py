"""The actor at the root of a child process, and what runs it: control link, readiness, stop.

A domain actor overrides a few methods; it says nothing about processes. The process ends when the actor has wound
down, when the control link ends (root is gone), or when the actor crashes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.schemas import control
from roost.schemas.base import Done, Refused
from roost.supervisor.errors import StartError, StartRefused
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.poller import Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roost.schemas.base import Message

START_TIMEOUT = 30.0
DEFAULT_GRACE = 5.0
RELINK_SECONDS = 0.5

_log = logging.getLogger(__name__)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToChild)


class Process:
    """What the actor of a child process may use of its process."""

    def __init__(
        self, poller: Poller, root: Link, start: control.Start, nursery: trio.Nursery
    ) -> None:
        self.poller = poller
        self.root = root
        self.start = start
        self.nursery = nursery
        self._working = False
        self._stop = trio.Event()
        self.stop_grace = DEFAULT_GRACE
        self.stop_reason = ""

    def set_working(self, working: bool) -> None:
        """Tell root whether there is work, so that it watches for hangs only then; repeated values cost nothing."""
        if working is not self._working:
            self._working = working
            self.root.cast(control.Busy(working=working))

    def request_stop(self, reason: str, grace: float = DEFAULT_GRACE) -> None:
        """End this process as if root had asked for it; the first request counts."""
        if not self._stop.is_set():
            self.stop_reason = reason
            self.stop_grace = grace
            self._stop.set()

    def miss_link(self, name: str, is_back: Callable[[], bool]) -> None:
        """Ask root for a new end of a link that was closed, unless one has come by itself a little later.

        When the process at the other end has died, root hands out a new end after its restart; when the link alone was
        cut (one side did not read, or sent garbage), both processes live on and somebody has to ask.
        """
        if not (self._stop.is_set() or self.nursery.cancel_scope.cancel_called):
            self.nursery.start_soon(self._ask_for_link, name, is_back)

    async def _ask_for_link(self, name: str, is_back: Callable[[], bool]) -> None:
        await trio.sleep(RELINK_SECONDS)
        if not is_back():
            self.root.cast(control.Relink(name=name))

    async def wait_stop(self) -> None:
        """Wait until the process is asked to end."""
        await self._stop.wait()


class ProcessActor:
    """Base of the actors that are the root of a process. All state belongs to the process's one loop."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def open(self) -> None:
        """Get ready; links may come up meanwhile.

        Raises:
            StartError: not now; the text says why.
            StartRefused: a restart would not help.
        """

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take over a new end of a link, or a listener (a file descriptor); it replaces an older one of that name."""
        os.close(handle)

    def child_report(self, report: control.ChildReport) -> None:
        """Hear what happened to a child of the dynamic supervisor."""

    def configure(self, payload: bytes) -> None:
        """Take over new settings, also before `open` has returned. What it raises is the answer, and the old ones follow."""

    def draining(self, reason: str) -> None:
        """Hear that the daemon is about to stop; `wind_down` follows later."""

    async def wind_down(self, reason: str, grace: float) -> None:
        """Finish what must be finished; after `grace` seconds this is cancelled and the process ends."""


class _Control:
    """Handler of the control link of a child."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.start: control.Start | None = None
        self.actor: ProcessActor | None = None
        self.process: Process | None = None
        self.make: Callable[[control.Start], None] = lambda _: None

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        match message:
            case control.Start():
                self.start = message
                self.make(message)
                self.started.set()
            case control.Handle(name=name, generation=generation) if self.actor is not None:
                self.actor.link_up(name, generation, link.take_handle())
            case control.Ping():
                link.cast(control.Pong())
            case control.Stop(reason=reason, grace=grace) if self.process is not None:
                self.process.request_stop(reason, grace)
            case control.Drain(reason=reason) if self.actor is not None:
                self.actor.draining(reason)
            case control.Configure(payload=payload) if self.actor is not None:
                link.reply(ref, _configure(self.actor, payload))
            case control.ChildReport() if self.actor is not None:
                self.actor.child_report(message)
            case _:
                _log.error("unexpected message from root: %s", type(message).__name__)

    def on_closed(self, link: Link) -> None:
        os._exit(0)


def _configure(actor: ProcessActor, payload: bytes) -> Message:
    try:
        actor.configure(payload)
    except Exception as error:  # noqa: BLE001 # it is the answer
        _log.exception("the new settings cannot be taken over")
        return Refused(code="INTERNAL", message=f"{type(error).__name__}: {error}")
    return Done()


async def serve_process(
    control_fd: int, actors: Mapping[str, Callable[[Process], ProcessActor]]
) -> None:
    """Run the actor that root's `Start` names; return when it has ended.

    A crash of the actor is raised; the caller turns it into the exit status.
    """
    poller = Poller()
    handler = _Control()
    async with trio.open_nursery() as nursery:
        sock = socket.socket(fileno=control_fd)
        link = ControlLink(sock, poller, name="root", decoder=_decoder, handler=handler)

        def make(start: control.Start) -> None:
            handler.process = Process(poller, link, start, nursery)
            handler.actor = actors[start.kind](handler.process)

        handler.make = make
        nursery.start_soon(poller.run)
        with trio.fail_after(START_TIMEOUT):
            await handler.started.wait()
        assert handler.process is not None
        assert handler.actor is not None
        await _live(handler.process, handler.actor, link)
        nursery.cancel_scope.cancel()


async def _live(process: Process, actor: ProcessActor, link: Link) -> None:
    process.nursery.start_soon(_stop_on_signal, process)
    try:
        await actor.open()
    except StartError as error:
        link.cast(control.Failed(error=str(error), final=isinstance(error, StartRefused)))
        link.flush()
        return
    link.cast(control.Ready())
    await process.wait_stop()
    with trio.move_on_after(process.stop_grace) as scope:
        await actor.wind_down(process.stop_reason, process.stop_grace)
    if scope.cancelled_caught:
        _log.warning("%s did not wind down in %s s", process.start.child_id, process.stop_grace)
    link.flush()


async def _stop_on_signal(process: Process) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            process.request_stop(signal.Signals(number).name)
