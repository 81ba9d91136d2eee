"""One run of `roost exec`: the command's output is written here, and what happens to us is passed on to it.

The daemon can be asked to end the command, not to signal it. So SIGINT, SIGTERM and SIGHUP end it with all that it has
started; at a terminal of its own SIGINT is the key that it stands for.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

import trio
import trio.lowlevel

from roost.actors.client.errors import ClientError, Disconnected
from roost.actors.client.exec_feed import Feed, ask_patiently
from roost.actors.client.exec_files import OutputGone, write_all
from roost.actors.client.exec_params import (
    BY_SIGNAL,
    PROCESS_ID,
    CommandResult,
    exit_status,
    read_delta,
    with_terminal,
)
from roost.actors.client.exec_terminal import OUTPUT, RawTerminal, ScreenModes, terminal_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from roost.actors.client.connection import Connection, Notification
    from roost.actors.client.exec_files import Input
    from roost.actors.client.exec_params import OutputDelta

ERRORS: Final = 2
# After this long we leave a command that was to be ended, and the daemon ends it when it sees that we have gone.
LEAVE_TIMEOUT: Final = 5.0
FAREWELL_TIMEOUT: Final = 1.0
KEYS: Final[dict[int, bytes]] = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_TERMINAL: Final = (signal.SIGQUIT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
GONE: Final = "the daemon has gone, and the command with it"


class Execution:
    """A command and its ends here. `tty` gives it a terminal of its own; `source` is what it reads, if anything."""

    def __init__(
        self,
        connection: Connection,
        params: Mapping[str, object],
        *,
        source: Input | None,
        tty: bool,
    ) -> None:
        self._connection = connection
        self._params = dict(params)
        self._tty = tty
        self._feed = Feed(connection, source) if tty or source is not None else None
        self._terminal = RawTerminal()
        self._modes = ScreenModes()
        self._begun = trio.Event()
        self._resized = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._idle = trio.CancelScope()
        self._done = trio.Event()
        self._silenced: set[int] = set()
        self._failure: ClientError | OSError | None = None
        self.passed_on: int | None = None
        """The signal for which the command is being ended."""
        self.result: CommandResult | None = None
        self.last_words = b""
        """What has been written to standard error last."""

    async def run(self) -> int:
        """Run the command to its end and return the exit status; the terminal is as before, whichever way it ends.

        Raises:
            RpcError: the daemon refused to run it.
            Disconnected: the daemon has gone.
            OSError: the output cannot be written.
        """
        with trio.open_signal_receiver(*self._signals()) as signals:
            if not self._tty:
                return await self._run(signals)
            with self._terminal:
                return await self._run(signals)

    def _signals(self) -> list[signal.Signals]:
        wanted = ENDING + AT_TERMINAL if self._tty else ENDING
        # What `nohup` and shells have ignored for us stays ignored.
        heard = [each for each in wanted if signal.getsignal(each) is not signal.SIG_IGN]
        return heard or [signal.SIGCONT]

    async def _run(self, signals: AsyncIterator[int]) -> int:
        if self._tty:
            self._params = with_terminal(self._params, terminal_size())
        elif self._feed is not None:
            self._params["streamStdin"] = True
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._begin(nursery, signals)
                    await self._show(nursery)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._tidy()
        return self._status()

    def _begin(self, nursery: trio.Nursery, signals: AsyncIterator[int]) -> None:
        nursery.start_soon(self._watch, signals, nursery)
        nursery.start_soon(self._start)
        if self._feed is not None:
            if self._terminal.is_raw:
                self._feed.on_stuck = lambda: self._leave(signal.SIGINT)
            nursery.start_soon(self._feed_it, self._feed)
        if self._tty:
            nursery.start_soon(self._follow_size)

    async def _start(self) -> None:
        # Whoever waits for this runs when the request has taken its place before theirs.
        self._begun.set()
        try:
            self.result = await self._connection.call(
                "commandExec.start", self._params, CommandResult, within=float("inf")
            )
        except Disconnected:
            self._failure = self._failure or Disconnected(GONE)
        except ClientError as error:
            self._failure = self._failure or error
        self._done.set()
        self._idle.cancel()

    async def _feed_it(self, feed: Feed) -> None:
        await self._begun.wait()
        await feed.run()

    async def _show(self, nursery: trio.Nursery) -> None:
        """Write output until the command has ended and all of it is written."""
        while (delta := await self._next()) is not None:
            stream = ERRORS if delta.stream == "stderr" else OUTPUT
            if stream == ERRORS:
                self.last_words = delta.delta_base64
            if stream in self._silenced:
                continue
            if self._tty:
                self._modes.feed(delta.delta_base64)
            try:
                await write_all(stream, delta.delta_base64)
            except OutputGone:
                self._silence(stream, nursery)
            except OSError as error:
                self._failure = self._failure or error
                self._silence(stream, nursery)

    async def _next(self) -> OutputDelta | None:
        """Return the next piece of output, or None when there will be no more."""
        while (note := await self._note()) is not None:
            if note.method == "commandExec.outputDelta":
                return read_delta(note.params)
        return None

    async def _note(self) -> Notification | None:
        notifications = self._connection.notifications
        try:
            with contextlib.suppress(trio.WouldBlock):
                return notifications.receive_nowait()
            if not self._done.is_set():
                with trio.CancelScope() as self._idle:
                    return await notifications.receive()
                # The answer has come, and before it all output; what there is of that waits.
                with contextlib.suppress(trio.WouldBlock):
                    return notifications.receive_nowait()
        except trio.EndOfChannel:
            await self._done.wait()
        return None

    def _silence(self, stream: int, nursery: trio.Nursery) -> None:
        """Let a stream that nobody reads go, and the command with it, as the system does with SIGPIPE."""
        self._silenced.add(stream)
        self._end(signal.SIGPIPE, nursery)
        self._scope.deadline = trio.current_time() + LEAVE_TIMEOUT

    async def _watch(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP):
                self._at_terminal(number)
            elif self._tty and self._type(number):
                pass
            elif self.passed_on is None and not self._done.is_set():
                self._end(number, nursery)
            else:
                self._leave(number)

    def _type(self, number: int) -> bool:
        """Type the key that stands for a signal, if there is one and the command still reads."""
        key = KEYS.get(number)
        return key is not None and self._feed is not None and self._feed.push(key)

    def _at_terminal(self, number: int) -> None:
        if number == signal.SIGTSTP:
            self._terminal.leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if number == signal.SIGCONT:
            self._terminal.again()
        self._resized.unpark_all()

    def _end(self, number: int, nursery: trio.Nursery) -> None:
        if self.passed_on is None and not self._done.is_set():
            self.passed_on = number
            nursery.start_soon(self._terminate)

    async def _terminate(self) -> None:
        await self._begun.wait()
        params: dict[str, object] = {"processId": PROCESS_ID}
        await ask_patiently(self._connection, "commandExec.terminate", params)

    def _leave(self, number: int) -> None:
        """Go at once; the daemon ends a command whose client has gone."""
        self.passed_on = self.passed_on or number
        self._scope.cancel()

    async def _follow_size(self) -> None:
        """Tell each new size; of those that come while one is told, the last."""
        await self._begun.wait()
        size = self._params.get("size")
        while True:
            now = terminal_size()
            wanted = None if now is None else {"rows": now.rows, "cols": now.cols}
            if wanted is None or wanted == size:
                await self._resized.park()
                continue
            size = wanted
            params: dict[str, object] = {"processId": PROCESS_ID, "size": size}
            await ask_patiently(self._connection, "commandExec.resize", params)

    async def _tidy(self) -> None:
        """Undo at the terminal what a full-screen program could not, because it was ended."""
        result = self.result
        if result is not None and not result.signal and not result.timed_out:
            return
        if OUTPUT not in self._silenced and (undo := self._modes.undo()):
            with trio.move_on_after(FAREWELL_TIMEOUT), contextlib.suppress(OutputGone, OSError):
                await write_all(OUTPUT, undo)

    def _status(self) -> int:
        if self._failure is not None and self.result is None and self.passed_on is None:
            raise self._failure
        if isinstance(self._failure, OSError):
            raise self._failure
        if self.result is None:
            return BY_SIGNAL + (self.passed_on or signal.SIGTERM)
        return exit_status(self.result, self.passed_on)
