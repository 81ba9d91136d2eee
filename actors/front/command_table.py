"""The commands that clients have running: who started them, and what came from the service for whom.

A line of output is queued for its client in the sweep that read it from the service; when the client's socket has taken
it, the service is told, which lets so much more be read from the command.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.gateway import Gateway, Lost
from roost.actors.front.peer import Batch
from roost.actors.front.promise import Promise
from roost.schemas.commands import (
    MAX_WRITE,
    AbandonCommand,
    CommandEnded,
    CommandOutput,
    CommandPiece,
    CommandStarted,
    EndCommand,
    InputRoom,
    InputTaken,
    OutputTaken,
    ResizeCommand,
    StartCommand,
    WindowSize,
    WriteCommand,
)
from roost.supervisor.errors import LinkFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.front.peer import Peer
    from roost.schemas.base import Message

_log = logging.getLogger(__name__)

TELL_BYTES = 64 * 1024
GONE = "the commands service has ended, and what it ran with it"


class RunningCommand:
    """A command between its request and its answer."""

    __slots__ = (
        "asked",
        "ended",
        "ending",
        "has_terminal",
        "input_closed",
        "meter",
        "number",
        "pieces",
        "process_id",
        "room",
        "size",
        "started",
        "takes_input",
    )

    def __init__(self, number: int, process_id: str, meter: Meter) -> None:
        self.number = number
        self.process_id = process_id
        self.meter = meter
        self.takes_input = False
        self.has_terminal = False
        self.input_closed = False
        self.started = False
        self.ending = False
        self.size: WindowSize | None = None
        """What its terminal is to have once it is started, if that has changed since it was asked for."""
        self.asked: Promise[CommandStarted] = Promise()
        self.ended: Promise[msgspec.Raw] = Promise()
        self.pieces: list[bytes] = []
        self.room: Promise[None] = Promise()


class Meter:
    """How much of the output for one connection its transport has not taken."""

    def __init__(self, connection: int, peer: Peer, tell: Callable[[Message], None]) -> None:
        self.connection = connection
        self._peer = peer
        self._tell = tell
        self._marks: deque[tuple[int, int]] = deque()
        self._due = 0
        peer.on_sent = self._look

    def pass_on(self, line: bytes) -> None:
        """Queue a line for the client."""
        peer = self._peer
        peer.tell(Batch((line,)))
        self._marks.append((peer.queued_total, len(line)))

    def end(self) -> None:
        """The connection has ended: nothing of what it has not taken is under way any more."""
        self._due += sum(size for _, size in self._marks)
        self._marks.clear()
        self._settle()

    def _look(self) -> None:
        marks, sent = self._marks, self._peer.sent_total
        while marks and marks[0][0] <= sent:
            self._due += marks.popleft()[1]
        if self._due >= TELL_BYTES or not marks:
            self._settle()

    def _settle(self) -> None:
        if self._due:
            size, self._due = self._due, 0
            self._tell(OutputTaken(connection=self.connection, size=size))


class CommandTable:
    """One per front."""

    def __init__(self, gateway: Gateway, start_service: Callable[[], None]) -> None:
        self._gateway = gateway
        self._start_service = start_service
        self._running: dict[int, RunningCommand] = {}
        self._named: dict[tuple[int, str], RunningCommand] = {}
        self._meters: dict[int, Meter] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._running)

    def find(self, connection: int, process_id: str) -> RunningCommand | None:
        """Return a connection's command of this name."""
        return self._named.get((connection, process_id))

    def add(self, connection: int, peer: Peer, process_id: str | None) -> RunningCommand:
        """Note a new command; its name, if it has one, is taken until `remove`."""
        meter = self._meters.get(connection)
        if meter is None:
            meter = self._meters[connection] = Meter(connection, peer, self._tell)
        self._last += 1
        command = RunningCommand(self._last, process_id or f"command-{self._last}", meter)
        self._running[command.number] = command
        if process_id is not None:
            self._named[connection, process_id] = command
        return command

    def remove(self, command: RunningCommand) -> None:
        """Forget a command; one that has not ended is ended, and nothing more is heard of it."""
        self._running.pop(command.number, None)
        key = (command.meter.connection, command.process_id)
        if self._named.get(key) is command:
            del self._named[key]
        if not command.ended.done:
            # What still waits for a link is not sent over the next one.
            command.asked.resolve(CommandStarted())
            self._tell(AbandonCommand(number=command.number))
        command.room.resolve(None)

    def leave(self, connection: int) -> None:
        """A connection has ended, and its requests with it."""
        meter = self._meters.pop(connection, None)
        if meter is not None:
            meter.end()

    async def start(self, command: RunningCommand, message: StartCommand) -> None:
        """Have the service start a command; return once its process runs.

        Raises:
            DaemonError: it cannot be started, or nobody knows.
        """
        gateway = self._gateway
        if gateway.link is not None and gateway.link.closed:
            gateway.disconnect(gateway.link)
        if gateway.link is None:
            self._start_service()
        command.asked = gateway.ask(message, CommandStarted, repeat=False)
        try:
            await command.asked
        except Lost:
            raise DaemonError("INTERNAL", GONE) from None
        command.started = True
        if command.size is not None:
            self._tell(ResizeCommand(number=command.number, size=command.size))
        if command.ending:
            self._tell(EndCommand(number=command.number))

    async def write(self, command: RunningCommand, data: bytes, *, close: bool) -> None:
        """Queue input, and its end; return when all is queued, for which the program may have to read first.

        Raises:
            InvalidArgument: the command has ended, or ends meanwhile.
            DaemonError: nobody knows.
        """
        last = max(0, (len(data) - 1) // MAX_WRITE * MAX_WRITE)
        for at in range(0, last + 1, MAX_WRITE):
            piece = data[at : at + MAX_WRITE]
            await self._write_piece(
                WriteCommand(number=command.number, data=piece, close=close and at == last), command
            )

    async def _write_piece(self, message: WriteCommand, command: RunningCommand) -> None:
        while command.number in self._running and not command.ended.done:
            answer = await self._gateway.ask(message, InputTaken, repeat=False)
            if answer.taken:
                return
            command.room = Promise()
            await command.room
        raise InvalidArgument("the command has ended")

    def resize(self, command: RunningCommand, rows: int, cols: int) -> None:
        """Give the terminal another size, also one that is about to be opened."""
        command.size = WindowSize(rows=rows, cols=cols)
        if command.started:
            self._tell(ResizeCommand(number=command.number, size=command.size))

    def end(self, command: RunningCommand) -> None:
        """End a command, also one that is about to be started."""
        command.ending = True
        if command.started:
            self._tell(EndCommand(number=command.number))

    def take(self, message: Message) -> bool:
        """Handle what the service says; return False if it is not for this."""
        match message:
            case CommandOutput(number=number, connection=connection, line=line):
                command = self._running.get(number)
                if command is None:
                    self._tell(OutputTaken(connection=connection, size=len(line)))
                else:
                    command.meter.pass_on(line)
            case CommandPiece(number=number, data=data):
                if number in self._running:
                    self._running[number].pieces.append(data)
            case CommandEnded(number=number, result=result):
                if number in self._running:
                    self._end(self._running[number], result)
            case InputRoom(number=number):
                if number in self._running:
                    self._running[number].room.resolve(None)
            case _:
                return False
        return True

    def lost(self, error: DaemonError | None = None) -> None:
        """The service has ended, and with it every command; the error is what their requests are answered with."""
        for command in list(self._running.values()):
            # One that waits to be started has not been sent, or its call fails by itself.
            if command.started:
                command.ended.fail(error or DaemonError("INTERNAL", GONE))
                command.room.resolve(None)

    def _tell(self, message: Message) -> None:
        """Say something that must not be lost: where the service does not read, its commands are given up."""
        link = self._gateway.link
        if link is None:
            return
        try:
            link.cast(message)
        except LinkFull:
            _log.exception("the commands service does not read")
            link.close()

    def _end(self, command: RunningCommand, result: bytes) -> None:
        whole = b"".join((*command.pieces, result))
        command.pieces.clear()
        if whole:
            command.ended.resolve(msgspec.Raw(whole))
        else:
            command.ended.fail(DaemonError("INTERNAL", "internal error"))
        command.room.resolve(None)
