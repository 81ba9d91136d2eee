"""A command process: started, fed, read, ended and reaped; nothing of it is left whichever way it ends.

The ladder of an end: SIGTERM to all of it, a grace, SIGKILL to its group, then to what escaped from that. When the
program itself has ended, what it left gets `linger` seconds for its last words while it holds the output open.

An actor is used in the main thread, for one `run`. All other methods only take note, never wait, and may be called
before, during and after the run; `room` is the one to wait with.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.command.feeding import Feed
from roost.actors.command.reading import Outputs
from roost.actors.command.spawn import (
    INSTANCE,
    MARK,
    Started,
    StartFailed,
    start_on_pipes,
    start_on_terminal,
)
from roost.actors.command.terminal import NotATerminal, Size, set_size
from roost.supervisor.identity import descendants, send_signal

if TYPE_CHECKING:
    from roost.actors.command.leftovers import Leftovers

QUICK = 0.005
"""Seconds for which a command without input is not read: most of the short ones have ended by then."""

YOUNG = 1.0
"""Seconds after which a command counts as long: what it orphans is reaped from then on while it runs."""

_log = logging.getLogger(__name__)

OnOutput = Callable[[int, bytes], None]
"""Gets the number of the stream (0 output or terminal, 1 errors) and 1 to 65,536 bytes; it must not raise."""


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, looked up in the `PATH` of `env` when its name has no slash.

    `command_id` is unique among the commands of this process at a time. `env` is the whole environment; a terminal adds
    `TERM` if it has none. `stdin` False is an empty input; with `tty` the input is the terminal whatever it says.
    `merge` puts errors into the output, in the order of writing. `timeout` is in seconds, 0 means none. Descriptors in
    `inherit` are passed on under their own numbers, and closed here as soon as the command is started, or is not.
    """

    command_id: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bool = False
    tty: Size | None = None
    merge: bool = False
    timeout: float = 0.0
    grace: float = 2.0
    linger: float = 0.25
    inherit: Sequence[int] = ()


class CommandEnded(msgspec.Struct, frozen=True):
    """How it ended: an exit code, or the signal that ended it; both None if nobody knows."""

    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False


class CommandActor:
    """One command; temporary: it has effects and is never run a second time by itself."""

    def __init__(self, spec: CommandSpec, leftovers: Leftovers, on_output: OnOutput) -> None:
        self._spec = spec
        self._leftovers = leftovers
        self._outputs = Outputs(on_output, is_terminal=spec.tty is not None)
        self._feed = Feed(
            is_open=spec.stdin or spec.tty is not None, is_terminal=spec.tty is not None
        )
        self._size = spec.tty
        self._life = trio.CancelScope()
        self._last_words = trio.CancelScope()
        self._started: Started | None = None
        self._status: CommandEnded | None = None
        self._is_terminated = False
        self._is_cleared = False
        self._is_over = False

    @property
    def pid(self) -> int:
        """Return the process of the command; 0 before its start and after its end."""
        return self._started.pid if self._started is not None and self._status is None else 0

    async def run(self) -> CommandEnded:
        """Run the command to its end; return after the last output has been handed on and nothing of it is left.

        Paused with output to come, it waits for `resume`. Cancelled, the command is ended by the same ladder before
        the cancellation goes on; output not handed on by then is lost.

        Raises:
            StartFailed: it cannot be started.
        """
        self._started = started = self._start()
        self._leftovers.started(started.pid, self._spec.command_id)
        try:
            await self._serve(started)
        finally:
            self._outputs.abandon()
            with trio.CancelScope(shield=True):
                await self._end(started)
            self._is_over = True
            self._feed.end()
            os.close(started.pidfd)
            for output in started.outputs:
                os.close(output)
        timed_out = self._life.cancelled_caught and not self._is_terminated
        return msgspec.structs.replace(self._status or CommandEnded(None), timed_out=timed_out)

    def write(self, data: bytes) -> None:
        """Queue bytes for the command's input. What a program that has closed its input does not take is dropped.

        Raises:
            StdinClosed: there is no such input, `close_stdin` was called, or the command has ended.
            StdinFull: with what is queued already it would be more than 1 MiB (`room` waits for that).
        """
        self._feed.write(data)

    async def room(self, size: int) -> None:
        """Wait until `write` takes so many bytes (at most 1 MiB).

        Raises:
            StdinClosed: as for `write`, also when it happens during the wait.
        """
        await self._feed.room(size)

    def close_stdin(self) -> None:
        """End the input after what is queued; on a terminal by the character for that. The second time it does nothing.

        Raises:
            StdinClosed: the command has no input that could be closed.
        """
        self._feed.close()

    def resize(self, size: Size) -> None:
        """Give the terminal another size, of which its foreground processes are told; without effect after the end.

        Raises:
            NotATerminal: the command runs on pipes.
        """
        if self._size is None:
            raise NotATerminal
        self._size = size
        if self._started is not None and not self._is_over:
            set_size(self._started.outputs[0], size)

    def terminate(self) -> None:
        """End the command by the ladder; `run` returns how it ended. The second time it does nothing."""
        if not self._life.cancel_called:
            self._is_terminated = True
            self._life.cancel()
            self._last_words.cancel()

    def pause(self) -> None:
        """Read no output until `resume`: nothing is handed on from now on, and the program stops at its full pipe."""
        self._outputs.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._outputs.resume()

    def _start(self) -> Started:
        spec = self._spec
        env = {**spec.env, MARK: spec.command_id}
        if INSTANCE in os.environ:
            env[INSTANCE] = os.environ[INSTANCE]
        try:
            with self._leftovers.starting(spec.command_id):
                if self._size is not None:
                    return start_on_terminal(
                        spec.argv, spec.cwd, env, size=self._size, inherit=spec.inherit
                    )
                return start_on_pipes(
                    spec.argv,
                    spec.cwd,
                    env,
                    stdin=spec.stdin,
                    merge=spec.merge,
                    inherit=spec.inherit,
                )
        except StartFailed:
            self._feed.end()
            raise
        finally:
            for descriptor in spec.inherit:
                os.close(descriptor)

    async def _serve(self, started: Started) -> None:
        """Feed and read the command until it and all that it has started have ended."""
        self._outputs.open(started.outputs)
        if started.stdin is None and await self._is_quick(started):
            await self._end(started)
            return
        async with trio.open_nursery() as nursery:
            self._outputs.start(nursery)
            if started.stdin is not None:
                nursery.start_soon(self._feed.run, started.stdin)
            await self._wait(started)
            await self._end(started)
            nursery.cancel_scope.cancel()
        self._feed.end()
        await self._outputs.drain()

    async def _is_quick(self, started: Started) -> bool:
        """Return whether it has ended within a moment, with nothing left to read: tasks would take longer than that."""
        with trio.move_on_after(min(QUICK, self._spec.timeout or QUICK)):
            await trio.lowlevel.wait_readable(started.pidfd)
            return self._outputs.take_rest()
        return False

    async def _wait(self, started: Started) -> None:
        """Wait for the end of the process, a request for it, or the time limit."""
        if self._spec.timeout:
            self._life.deadline = trio.current_time() + self._spec.timeout
        with self._life:
            with trio.move_on_after(YOUNG):
                await trio.lowlevel.wait_readable(started.pidfd)
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._leftovers.reap)
                await trio.lowlevel.wait_readable(started.pidfd)
                nursery.cancel_scope.cancel()

    async def _end(self, started: Started) -> None:
        """Bring the command and all that it has started to an end; does nothing the second time."""
        if self._status is None:
            has_ended = _has_ended(started)
            if not has_ended:
                await self._ask_to_end(started)
            elif self._outputs.are_open:
                self._last_words.deadline = trio.current_time() + self._spec.linger
                with self._last_words:
                    await self._outputs.wait_ended()
            # Until the leader is reaped its number, and so the group's, cannot belong to anybody else.
            _signal_group(started.pid, signal.SIGKILL)
            if not has_ended:
                await trio.lowlevel.wait_readable(started.pidfd)
            self._status = _take_status(started)
            self._leftovers.reaped(started.pid)
        if not self._is_cleared:
            self._is_cleared = await self._leftovers.clear(self._spec.command_id)
            if not self._is_cleared:
                _log.error("something of command %s is left", self._spec.command_id)

    async def _ask_to_end(self, started: Started) -> None:
        """Send SIGTERM to the whole tree, and give it the grace to end."""
        command_id = self._spec.command_id
        escaped = [
            process for process in descendants(started.pid) if _group(process.pid) != started.pid
        ]
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process hears of nothing else
            _signal_group(started.pid, number)
            for process in escaped:
                send_signal(process, number)
            self._leftovers.signal(command_id, number)
        with trio.move_on_after(self._spec.grace):
            await trio.lowlevel.wait_readable(started.pidfd)
            await self._leftovers.wait_gone(command_id)


def _has_ended(started: Started) -> bool:
    status = os.waitid(os.P_PIDFD, started.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return status is not None


def _take_status(started: Started) -> CommandEnded:
    status = os.waitid(os.P_PIDFD, started.pidfd, os.WEXITED | os.WNOHANG)
    if status is None:
        return CommandEnded(None)
    if status.si_code == os.CLD_EXITED:
        return CommandEnded(status.si_status)
    return CommandEnded(None, status.si_status)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
