"""A child as an operating-system process: one incarnation from its start to its reaping.

It is started, told who it is, waited for until it says that it is ready, and watched. Its end is an exit status from
root's reaper. To stop it: a `Stop` message, SIGTERM, a grace, SIGKILL to its group, all inside a shield, so that
whatever ends the wait, the child is reaped. One that hangs gets SIGABRT first, so that its log shows where.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from roost.schemas import control
from roost.supervisor import childlog
from roost.supervisor.errors import (
    ActorGone,
    ChildCrashed,
    ForkLost,
    LinkFull,
    StartError,
    StartRefused,
)
from roost.supervisor.link import ControlLink, Link
from roost.supervisor.liveness import Liveness
from roost.supervisor.patience import wait_patiently
from roost.supervisor.reaper import ExitStatus, Reaper
from roost.supervisor.spec import Grace, Restart, Run, Shutdown

if TYPE_CHECKING:
    from roost.schemas.base import Message
    from roost.supervisor.link import OnAnswer
    from roost.supervisor.poller import Poller
    from roost.supervisor.registry import Registry
    from roost.supervisor.starter import Starter
    from roost.supervisor.watch import Watch

FORK_ATTEMPTS = 3
TERM_GRACE = 2.0
ABORT_GRACE = 2.0
CLOSED_GRACE = 2.0
REAP_TIMEOUT = 60.0
LAST_READS = 16

_log = logging.getLogger(__name__)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(control.ToRoot)


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A child process and how it is kept.

    `payload` is called at each start, and `handles` for the listeners that it gets: (name, descriptor) pairs, of which a
    duplicate is sent. `hang_timeout` and `memory_limit` None mean no limit. `commands` allows it to send commands to
    the tree. `sweeps` has the orphans killed that it leaves to root.
    """

    id: str
    kind: str
    payload: Callable[[], bytes] = bytes
    log: Path | None = None
    restart: Restart = Restart.PERMANENT
    shutdown: Shutdown = Grace()
    ready_timeout: float = 30.0
    hang_timeout: float | None = None
    memory_limit: int | None = None
    handles: Callable[[], Sequence[tuple[str, int]]] = tuple
    env: dict[str, str] = {}
    commands: bool = False
    sweeps: bool = False


class Host(Protocol):
    """What a process needs of the tree that it belongs to."""

    poller: Poller
    reaper: Reaper
    starter: Starter
    registry: Registry[RunningProcess]
    watch: Watch

    def env_of(self, spec: ProcessSpec) -> dict[str, str]:
        """Return the environment to be sent with `Start`."""
        ...

    def on_command(self, process: RunningProcess, ref: int, message: Message) -> None:
        """Handle a message that is not about the process itself."""
        ...


class RunningProcess:
    """One incarnation of a child process; the handler of its control link."""

    def __init__(self, spec: ProcessSpec, name: str, run: Run, host: Host) -> None:
        self.spec = spec
        self.name = name
        self.generation = run.generation
        self.pid = 0
        self.liveness = Liveness(spec.hang_timeout)
        self.link: Link | None = None
        self._run = run
        self._host = host
        self._pidfd = -1
        self._log_start = childlog.log_size(spec.log)
        self._status: ExitStatus | None = None
        self._exited = trio.Event()
        self._news = trio.Event()  # it is ready, or will never be
        self._trouble = trio.Event()  # it has ended, or must be
        self._ready = False
        self._refusal: str | None = None
        self._verdict = ""
        self._abort = False
        self._forced = False

    @property
    def memory_limit(self) -> int | None:
        """Return how many bytes it may have resident."""
        return self.spec.memory_limit

    @property
    def log_path(self) -> Path | None:
        """Return the file that its standard error goes to."""
        return self.spec.log

    async def live(self) -> None:
        """Start the process and return when it has ended normally. Cancelled, it is stopped and reaped first.

        Raises:
            StartError: it did not get ready.
            StartRefused: it said that it cannot start.
            ChildCrashed: it was ready and ended in a crash.
        """
        self._run.on_stop(self.ask_stop)
        self._run.on_kill(self.kill)
        try:
            await self._begin()
            if await self._get_ready():
                self._host.watch.add(self)
                self._run.started()
                await self._wait_end()
        finally:
            with trio.CancelScope(shield=True):
                await self._finish()
        self._raise_for_end()

    def send(self, message: Message) -> None:
        """Queue a message; a process that does not read its control link is aborted."""
        self._say(lambda link: link.cast(message))

    def reply(self, ref: int, message: Message) -> None:
        """Queue the answer to a call."""
        self._say(lambda link: link.reply(ref, message))

    def call(self, message: Message, on_answer: OnAnswer) -> None:
        """Call the process; the answer, or that it is gone, comes exactly once."""
        try:
            if self.link is not None and not self.link.closed:
                self.link.call_nowait(message, on_answer)
                return
        except LinkFull:
            self.abort("it does not read its control link")
        on_answer(ActorGone(f"{self.name} is gone"))

    def respec(self, spec: ProcessSpec) -> None:
        """Take over the limits of a new spec; what a start is made of counts from the next start on."""
        self.spec = spec
        self.liveness.set_timeout(spec.hang_timeout, trio.current_time())
        self._host.watch.touch(self)

    def hand_over(self, message: control.Handle, handle: socket.socket | int) -> None:
        """Queue a message with a descriptor, which is closed here in any case."""
        try:
            if self.link is not None:
                self.link.pass_handle(message, handle)
                return
        except LinkFull:
            self.abort("it does not read its control link")
        socket.close(handle) if isinstance(handle, int) else handle.close()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.send(control.Ping())

    def ask_stop(self, reason: str, grace: float) -> None:
        """Ask the process to end by itself."""
        self.send(control.Stop(reason=reason, grace=grace))

    def kill(self, reason: str) -> None:
        """Kill the process and its group at once."""
        self._verdict = self._verdict or f"killed: {reason}"
        self._forced = True
        self._kill_group()

    def abort(self, reason: str) -> None:
        """End the process by SIGABRT, which leaves a trace in its log, then SIGKILL."""
        if not self._verdict and not self._exited.is_set():
            self._verdict = reason
            self._abort = True
            self._trouble.set()
            self._news.set()

    def lose(self) -> None:
        """Kill the process and do not wait for it: nobody reaps any more."""
        self._kill_group()
        self._exited.set()
        self._trouble.set()
        self._news.set()

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle what the process says."""
        match message:
            case control.Ready():
                self._ready = True
                self._news.set()
            case control.Failed(error=error, final=final):
                if final:
                    self._refusal = error
                else:
                    self._verdict = error
                self._news.set()
                self._trouble.set()
            case control.Pong():
                self.liveness.pong()
            case control.Busy(working=working):
                self.liveness.set_working(working, trio.current_time())
                self._host.watch.touch(self)
            case _:
                self._host.on_command(self, ref, message)

    def on_closed(self, link: Link) -> None:
        """The process has closed its end, as it does when it ends."""
        self._host.registry.ended(self.name, self.generation, "its control link is closed")
        self._news.set()
        self._trouble.set()

    async def _begin(self) -> None:
        """Start the process and tell it who it is."""
        with trio.move_on_after(self.spec.ready_timeout):
            for left in reversed(range(FORK_ATTEMPTS)):
                try:
                    await self._start()
                except ForkLost:
                    if not left:
                        raise
                else:
                    break
        if self.link is None:
            raise StartError("there was no zygote to fork it in time")
        start = control.Start(
            child_id=self.spec.id,
            kind=self.spec.kind,
            generation=self.generation,
            payload=self.spec.payload(),
            env=self._host.env_of(self.spec),
        )
        self.send(start)
        for name, fd in self.spec.handles():
            self.hand_over(control.Handle(name=name, generation=self.generation), os.dup(fd))
        self._host.registry.register(self.name, self.generation, self)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            log = childlog.open_log(self.spec.log)
        except OSError as error:
            ours.close()
            theirs.close()
            raise StartError(f"its log cannot be opened: {error}") from error
        try:
            await self._host.starter.start(theirs, log, self._claim)
        except BaseException:  # cancelled, too: the end that nobody serves is closed
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(log)
        self.link = ControlLink(
            ours, self._host.poller, name=self.name, decoder=_decoder, handler=self
        )

    def _claim(self, pid: int) -> None:
        self.pid = pid
        self._run.set_pid(pid)
        with suppress(ProcessLookupError):  # it has ended already
            if hasattr(os, "pidfd_open"):
                self._pidfd = os.pidfd_open(pid)
        self._host.reaper.claim(pid, self._on_exit)

    def _on_exit(self, status: ExitStatus) -> None:
        self._status = status
        if self.link is not None:
            # What it said last counts. The link's end need not be seen: a descendant may hold it open.
            for _ in range(LAST_READS):
                if not self.link.closed:
                    self.link.on_readable()
        self._exited.set()
        self._news.set()
        self._trouble.set()
        if self.spec.sweeps:
            self._host.reaper.kill_strangers()

    async def _get_ready(self) -> bool:
        limit = self.spec.ready_timeout
        if not await wait_patiently(self._news, limit):
            self.abort(f"not ready within {limit:g} s")
        if self._ready:
            return True
        await self._wait_end()
        return False

    async def _wait_end(self) -> None:
        """Wait until it has ended; or must be ended, after a grace in which it may end by itself."""
        await self._trouble.wait()
        if self._exited.is_set():
            return
        if self._abort:
            self._signal(signal.SIGABRT)
            await wait_patiently(self._exited, ABORT_GRACE)
        elif not await wait_patiently(self._exited, CLOSED_GRACE):
            self._verdict = self._verdict or "it closed its control link and lived on"
        self._forced = True

    async def _finish(self) -> None:
        """Stop and reap the process if it still runs, and forget it."""
        if self.pid and not self._exited.is_set():
            if not self._forced:
                self._signal(signal.SIGTERM)
                await wait_patiently(self._exited, TERM_GRACE)
            self._kill_group()
            if not await wait_patiently(self._exited, REAP_TIMEOUT):
                _log.error("%s (pid %s) does not end, not even by SIGKILL", self.name, self.pid)
        self._host.watch.remove(self)
        self._host.registry.ended(self.name, self.generation, self._why())
        if self.link is not None:
            self.link.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _raise_for_end(self) -> None:
        words = childlog.last_words(self.spec.log, self._log_start)
        if self._refusal is not None and not self._ready:
            raise StartRefused(self._refusal, words)
        if not self._ready:
            raise StartError(self._why(words), words)
        if self._verdict or self._refusal or self._status != ExitStatus(0):
            raise ChildCrashed(self._why(words), words)

    def _why(self, words: str = "") -> str:
        """Return why it ended, with the last line that it wrote."""
        why = self._verdict or self._refusal or str(self._status or "it is lost")
        line = words.rpartition("\n")[2]
        return f"{why}: {line}" if line else why

    def _say(self, speak: Callable[[Link], None]) -> None:
        if self.link is None:
            return
        try:
            speak(self.link)
        except LinkFull:
            self.abort("it does not read its control link")

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to this process, and to no other that may have its pid later."""
        if not self.pid or self._exited.is_set():
            return
        with suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.pid, number)

    def _kill_group(self) -> None:
        """Kill the process and its group; it may not have made itself a group yet."""
        if self.pid and not self._exited.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._signal(signal.SIGKILL)
