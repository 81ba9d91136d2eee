"""The commands process: starts what clients ask for, reads it as fast as they read, and ends it with them."""

from __future__ import annotations

import gc
import logging
import socket
from typing import TYPE_CHECKING

import trio

from roost.actors.command.leftovers import Leftovers
from roost.actors.commands.outlet import Outlet
from roost.actors.commands.run import Run
from roost.actors.commands.shared import Shared
from roost.actors.errors import InvalidArgument, Overloaded
from roost.actors.logs import adjust_log
from roost.config.model import decode_settings
from roost.schemas.boot import decode_boot
from roost.schemas.commands import (
    AbandonCommand,
    EndCommand,
    InputTaken,
    OutputTaken,
    ResizeCommand,
    StartCommand,
    WriteCommand,
)
from roost.schemas.unions import commands_from_front
from roost.supervisor import kernel
from roost.supervisor.actor import Process, ProcessActor
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from roost.schemas.base import Message

MIN_WINDOW = 128 * 1024
WINDOWS_BYTES = 16 * 1024 * 1024
"""What may be under way to all connections together, so that the link never comes near its own bound."""
RETRY_AFTER_MS = 1_000

_log = logging.getLogger(__name__)


class CommandsActor(ProcessActor):
    """Runs the commands of all clients; they live no longer than the link to the front."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        boot = decode_boot(process.start.payload)
        settings = decode_settings(boot.settings)
        kernel.become_subreaper()
        self._shared = Shared(boot, settings, Leftovers())
        self._link: Link | None = None
        self._runs: dict[int, Run] = {}
        self._outlets: dict[int, Outlet] = {}
        self._under_way = 0
        self._empty = trio.Event()

    async def open(self) -> None:
        """Get ready."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        await trio.lowlevel.checkpoint()

    def link_up(self, name: str, generation: int, handle: int) -> None:
        """Take over the link to the front; what came over an older one is ended."""
        self._abandon_all()
        old = self._link
        self._link = Link(
            socket.socket(fileno=handle),
            self.process.poller,
            name=name,
            decoder=commands_from_front,
            handler=self,
            queue_bytes=self._shared.settings.limits.link_bytes,
        )
        if old is not None:
            old.close()

    def configure(self, payload: bytes) -> None:
        """Take over new settings: commands that come later go by them."""
        settings = decode_settings(payload)
        log = settings.log
        adjust_log(level=log.level, rotate_bytes=log.rotate_bytes, keep=log.keep)
        self._shared.settings = settings
        if self._link is not None:
            self._link.set_bound(settings.limits.link_bytes)
        self._share()

    async def wind_down(self, reason: str, grace: float) -> None:
        """End every command."""
        self._abandon_all()
        while self._under_way:
            self._empty = trio.Event()
            await self._empty.wait()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle what the front says."""
        match message:
            case OutputTaken(connection=connection, size=size):
                self._taken(connection, size)
            case StartCommand():
                self._begin(link, ref, message)
            case WriteCommand():
                self._write(link, ref, message)
            case ResizeCommand(number=number, size=size):
                if number in self._runs:
                    self._runs[number].resize(size)
            case EndCommand(number=number):
                if number in self._runs:
                    self._runs[number].end()
            case AbandonCommand(number=number):
                if number in self._runs:
                    self._runs.pop(number).abandon()
            case _:
                _log.error("unexpected message from %s: %s", link.name, type(message).__name__)

    def on_closed(self, link: Link) -> None:
        """End what came over that link."""
        if self._link is link:
            self._link = None
            self._abandon_all()
            self.process.miss_link("front", lambda: self._link is not None)

    def _abandon_all(self) -> None:
        runs, self._runs = self._runs, {}
        self._outlets = {}
        for run in runs.values():
            run.abandon()

    def _begin(self, link: Link, ref: int, start: StartCommand) -> None:
        most = self._shared.settings.commands.parallel
        if self._under_way >= most:
            text = f"too many commands are running (at most {most})"
            error = Overloaded("OVERLOADED", text, {"retryAfterMs": RETRY_AFTER_MS})
            link.reply(ref, error.refused())
            return
        outlet = self._outlets.get(start.connection)
        if outlet is None:
            outlet = self._outlets[start.connection] = Outlet(MIN_WINDOW)
            self._share()
        run = Run(link, ref, start, outlet)
        if run.prepare(self._shared):
            self._runs[start.number] = run
            self._under_way += 1
            self.process.set_working(True)
            self.process.nursery.start_soon(self._run, run)
        else:
            self._drop_unused(start.connection, outlet)

    async def _run(self, run: Run) -> None:
        try:
            await run.run()
        finally:
            if self._runs.get(run.number) is run:
                del self._runs[run.number]
            self._drop_unused(run.connection, run.outlet)
            self._under_way -= 1
            self.process.set_working(self._under_way > 0)
            if not self._under_way:
                self._empty.set()

    def _write(self, link: Link, ref: int, wanted: WriteCommand) -> None:
        run = self._runs.get(wanted.number)
        if run is None:
            link.reply(ref, InvalidArgument("the command has ended").refused())
            return
        answer = run.write(wanted)
        if isinstance(answer, InputTaken) and not answer.taken:
            self.process.nursery.start_soon(run.tell_room, len(wanted.data))
        link.reply(ref, answer)

    def _taken(self, connection: int, size: int) -> None:
        outlet = self._outlets.get(connection)
        if outlet is not None:
            outlet.taken(size)
            self._drop_unused(connection, outlet)

    def _drop_unused(self, connection: int, outlet: Outlet) -> None:
        if outlet.is_unused and self._outlets.get(connection) is outlet:
            del self._outlets[connection]
            self._share()

    def _share(self) -> None:
        """Divide what may be under way among the connections."""
        fair = WINDOWS_BYTES // max(1, len(self._outlets))
        window = min(self._shared.settings.commands.unread_bytes, max(MIN_WINDOW, fair))
        for outlet in self._outlets.values():
            outlet.window = window
