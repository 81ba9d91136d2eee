"""One client's command in the service: started, read into lines or texts, and answered once it has ended."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.feeding import StdinClosed, StdinFull
from roost.actors.command.spawn import StartFailed
from roost.actors.command.terminal import NotATerminal, Size
from roost.actors.commands.deltas import Deltas
from roost.actors.commands.shared import cannot_start, signal_name
from roost.actors.commands.texts import Texts, answer_of, packed
from roost.actors.errors import DaemonError, Internal, InvalidArgument
from roost.actors.sandbox.environment import make_environment
from roost.schemas.command_exec import CommandFacts
from roost.schemas.commands import (
    MAX_PIECE,
    CommandEnded,
    CommandPiece,
    CommandStarted,
    InputRoom,
    InputTaken,
    OutputHead,
)
from roost.supervisor.errors import LinkFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.command.actor import CommandEnded as Ending
    from roost.actors.commands.outlet import Outlet
    from roost.actors.commands.shared import Shared
    from roost.schemas.base import Message
    from roost.schemas.commands import StartCommand, WindowSize, WriteCommand
    from roost.supervisor.link import Link

GRACE = 0.5
LINGER = 2.0
TIMED_OUT = 124
BY_SIGNAL = -1
AT_ONCE = 0.001
TERMINAL_TYPE = "xterm-256color"
NO_TEXTS = (b"", b"")

_log = logging.getLogger(__name__)


class Run:
    """One command, from its request to its answer."""

    def __init__(self, link: Link, ref: int, start: StartCommand, outlet: Outlet) -> None:
        self.number = start.number
        self.connection = start.connection
        self.outlet = outlet
        self._link = link
        self._ref = ref
        self._start = start
        self._life = trio.CancelScope()
        self._abandoned = False
        self._awaits_room = False
        self._texts: Texts | None = None
        self._deltas: Deltas | None = None
        self._kept_bytes = 0
        self._sandbox = ""
        self._dropped: tuple[str, ...] = ()
        self._actor: CommandActor
        self._head = OutputHead(start.number, start.connection)

    def prepare(self, shared: Shared) -> bool:
        """Get ready to run; return False if the command has been refused."""
        start = self._start
        if start.streaming:
            self._deltas = Deltas(start.process_id, start.cap)
        else:
            self._kept_bytes = shared.settings.commands.kept_bytes
            self._texts = Texts(start.cap, self._kept_bytes, shared.budget)
        try:
            self._actor = self._make(
                shared, self._pass_on if self._texts is None else self._texts.add
            )
        except DaemonError as error:
            self._fail(error)
            return False
        self.outlet.join(self.number, self)
        return True

    def _make(self, shared: Shared, on_output: Callable[[int, bytes], None]) -> CommandActor:
        start = self._start
        env, self._dropped = make_environment(os.environ, start.env)
        if start.size is not None and not start.env.get("TERM"):
            env["TERM"] = TERMINAL_TYPE
        launched, self._sandbox = shared.confine(start, env)
        size = start.size
        spec = CommandSpec(
            command_id=shared.next_id(),
            argv=launched.argv,
            cwd=launched.cwd,
            env=launched.env,
            stdin=start.stdin,
            tty=None if size is None else Size(size.rows, size.cols),
            timeout=0.0 if start.timeout is None else max(start.timeout, AT_ONCE),
            grace=GRACE,
            linger=LINGER,
        )
        return CommandActor(spec, shared.leftovers, on_output)

    async def run(self) -> None:
        """Run the command and say how it ended, after all that it has written."""
        try:
            with self._life:
                if not self._abandoned:
                    await self._run()
        except Exception:  # noqa: BLE001 - a fault of one command, whatever it is, must not end the others
            _log.exception("a command crashed")
            self._refuse(Internal())
            self._say(CommandEnded(number=self.number, result=b""))
        finally:
            self.outlet.leave(self.number)
            if self._texts is not None:
                self._texts.take()

    def abandon(self) -> None:
        """End the command by its ladder; nothing more is said of it."""
        self._abandoned = True
        self._life.cancel()

    def end(self) -> None:
        """End the command by its ladder; it is answered as any other."""
        self._actor.terminate()

    def write(self, wanted: WriteCommand) -> Message:
        """Queue input; return what answers that."""
        try:
            if wanted.data:
                self._actor.write(wanted.data)
            if wanted.close:
                self._actor.close_stdin()
        except StdinFull:
            return InputTaken(taken=False)
        except StdinClosed:
            return InvalidArgument("stdin is already closed").refused()
        return InputTaken(taken=True)

    async def tell_room(self, size: int) -> None:
        """Say when there is room for so many bytes of input, or none ever again."""
        if self._awaits_room:
            return
        self._awaits_room = True
        with suppress(StdinClosed):
            await self._actor.room(size)
        self._awaits_room = False
        self._say(InputRoom(number=self.number))

    def resize(self, size: WindowSize) -> None:
        """Give the terminal another size."""
        try:
            self._actor.resize(Size(size.rows, size.cols))
        except NotATerminal:
            _log.error("a command without a terminal was to be resized")

    def pause(self) -> None:
        """Read no output from now on."""
        self._actor.pause()

    def resume(self) -> None:
        """Read output again."""
        self._actor.resume()

    def flush(self) -> None:
        """Send what is held back."""
        if self._deltas is None or self._abandoned:
            return
        for line in self._deltas.take():
            size = sum(map(len, line))
            self.outlet.sent(size)
            try:
                self._link.cast_encoded((self._head.before(size), *line))
            except LinkFull:
                self._cut()
                return

    async def _run(self) -> None:
        failure: StartFailed | None = None
        ended: Ending | None = None
        async with trio.open_nursery() as nursery:
            # The first step of `run` starts the process, so that it has been started when that task comes to run.
            nursery.start_soon(self._announce, nursery.cancel_scope)
            try:
                ended = await self._actor.run()
            except StartFailed as error:
                failure = error
                nursery.cancel_scope.cancel()
        if ended is not None:
            self.flush()
            await self._answer(ended)
        elif failure is not None:
            self._fail(cannot_start(str(failure)))

    async def _announce(self, scope: trio.CancelScope) -> None:
        if not scope.cancel_called:
            self._reply(CommandStarted())

    def _pass_on(self, stream: int, data: bytes) -> None:
        """Send output at once while the client takes it, and together with more while it is busy with what was sent."""
        assert self._deltas is not None
        self._deltas.add(stream, data)
        if self.outlet.is_idle or self._deltas.is_full:
            self.flush()

    def _fail(self, error: DaemonError) -> None:
        if self._deltas is not None and error.code == "INTERNAL":
            self._deltas.add(1, error.message.encode())
            self.flush()
        self._refuse(error)

    def _refuse(self, error: DaemonError) -> None:
        self._reply(error.refused())

    def _reply(self, message: Message) -> None:
        ref, self._ref = self._ref, 0
        try:
            self._link.reply(ref, message)
        except LinkFull:
            self._cut()

    async def _answer(self, ended: Ending) -> None:
        code = ended.exit_code
        if ended.timed_out:
            code = TIMED_OUT
        elif code is None:
            code = BY_SIGNAL
        texts = NO_TEXTS if self._texts is None else self._texts.take()
        whole = answer_of(code, texts, self._kept_bytes, partial(self._facts, ended))
        pieces = packed(whole, MAX_PIECE)
        last = next(pieces)
        for piece in pieces:
            self._say(CommandPiece(number=self.number, data=last))
            await self._link.drained()
            last = piece
        self._say(CommandEnded(number=self.number, result=last))

    def _facts(self, ended: Ending, cut: Sequence[bool]) -> CommandFacts:
        if self._texts is not None:
            exceeded = self._texts.exceeded
        else:
            assert self._deltas is not None
            exceeded = self._deltas.caps.exceeded
        return CommandFacts(
            signal=signal_name(ended.signal),
            timed_out=ended.timed_out,
            stdout_truncated=exceeded[0] or cut[0],
            stderr_truncated=exceeded[1] or cut[1],
            dropped_env=self._dropped,
            sandbox=self._sandbox,
        )

    def _say(self, message: Message) -> None:
        if self._abandoned:
            return
        try:
            self._link.cast(message)
        except LinkFull:
            self._cut()

    def _cut(self) -> None:
        """Nothing may be missing from what the front hears, so that it hears of an end instead."""
        _log.error("the front does not read; its commands are ended")
        self._link.close()
