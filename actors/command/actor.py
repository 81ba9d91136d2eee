"""A command process: started, read, ended and reaped; nothing of it is left whichever way it ends.

The ladder of an end: SIGTERM to the group, a grace, SIGKILL to the group, then to what escaped from it.
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

from roost.actors.command.spawn import Started, start_process

if TYPE_CHECKING:
    from roost.actors.command.leftovers import Leftovers

READ_BYTES = 64 * 1024
DRAIN_TIMEOUT = 1.0

_log = logging.getLogger(__name__)

OnOutput = Callable[[int, bytes], None]
"""Gets the number of the stream (0 output, 1 errors) and bytes; it must not raise."""


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run. `timeout` 0 means none; `merge` puts errors into the output, in the order of writing."""

    command_id: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    merge: bool = False
    timeout: float = 0.0
    grace: float = 2.0


class CommandEnded(msgspec.Struct, frozen=True):
    """How it ended: an exit code, or the signal that ended it."""

    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False


class CommandActor:
    """One command; temporary: it has effects and is never run a second time by itself."""

    def __init__(self, spec: CommandSpec, leftovers: Leftovers, on_output: OnOutput) -> None:
        self._spec = spec
        self._leftovers = leftovers
        self._on_output = on_output
        self._status: CommandEnded | None = None
        self._cleared = False

    async def run(self) -> CommandEnded:
        """Run the command to its end. Cancelled, it is ended by the same ladder before the cancellation goes on.

        Raises:
            StartFailed: it cannot be started.
        """
        spec = self._spec
        started = start_process(spec.argv, spec.cwd, spec.env, spec.command_id, merge=spec.merge)
        self._leftovers.started(started.pid, spec.command_id)
        timed_out = False
        try:
            async with trio.open_nursery() as nursery:
                for number, output in enumerate(started.outputs):
                    nursery.start_soon(self._read, number, output)
                timed_out = await self._wait(started)
                await self._end(started)
                nursery.cancel_scope.deadline = trio.current_time() + DRAIN_TIMEOUT
        finally:
            with trio.CancelScope(shield=True):
                await self._end(started)
            os.close(started.pidfd)
            for output in started.outputs:
                os.close(output)
        status = self._status or CommandEnded(None)
        return msgspec.structs.replace(status, timed_out=timed_out)

    async def _wait(self, started: Started) -> bool:
        """Wait for the end of the process or the time limit; return whether it was the limit."""
        limit = self._spec.timeout or float("inf")
        with trio.move_on_after(limit) as scope:
            await trio.lowlevel.wait_readable(started.pidfd)
        return scope.cancelled_caught

    async def _end(self, started: Started) -> None:
        """Bring the command and all that it has started to an end; does nothing the second time."""
        if self._status is None:
            if not _has_ended(started):
                _signal_group(started.pid, signal.SIGTERM)
                with trio.move_on_after(self._spec.grace):
                    await trio.lowlevel.wait_readable(started.pidfd)
            # Until the leader is reaped its number, and so the group's, cannot belong to anybody else.
            _signal_group(started.pid, signal.SIGKILL)
            await trio.lowlevel.wait_readable(started.pidfd)
            self._status = _take_status(started)
            self._leftovers.reaped(started.pid)
        if not self._cleared:
            self._cleared = await self._leftovers.clear(self._spec.command_id)
            if not self._cleared:
                _log.error("something of command %s is left", self._spec.command_id)

    async def _read(self, number: int, output: int) -> None:
        while True:
            try:
                data = os.read(output, READ_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(output)
                continue
            if not data:
                return
            self._on_output(number, data)
            await trio.lowlevel.checkpoint()


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


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
