"""Two ways to start a child process that are alike in everything after the start: a fork by the zygote, a fresh Python.

Both take the child's end of its control link and the descriptor of its standard error, and return its pid.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
import trio

from roost.schemas import control
from roost.supervisor import childlog
from roost.supervisor.errors import ForkLost, StartError
from roost.supervisor.spawn import spawn_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.supervisor.poller import Poller
    from roost.supervisor.reaper import ExitStatus, Reaper
    from roost.supervisor.spec import Run

ZYGOTE_MODULE = "roost.supervisor.zygote"
MAX_PACKET = 64 * 1024
FORK_TIMEOUT = 15.0
FORKS_AT_ONCE = 32

_encoder = msgspec.msgpack.Encoder()
_forked: msgspec.msgpack.Decoder[control.Forked] = msgspec.msgpack.Decoder(control.Forked)


class Starting(msgspec.Struct, frozen=True, kw_only=True):
    """How child processes are started.

    `entry` is `module:function`, called with the control link's descriptor. `preload` and `warm_up` are for the
    zygote; `spawn_module` is what a fresh interpreter runs with `-m`; `log` is the file of the zygote's standard error.
    """

    mode: Literal["zygote", "spawn"]
    entry: str
    preload: tuple[str, ...] = ()
    warm_up: str = ""
    spawn_module: str = ""
    log: Path | None = None


class Starter(Protocol):
    """A way to start child processes."""

    async def start(
        self, link_end: socket.socket, stderr: int, claim: Callable[[int], None]
    ) -> None:
        """Start a child and call `claim` with its pid; both descriptors stay the caller's.

        Cancelled before the child is asked for, there is none; afterwards the cancellation waits until it is claimed.

        Raises:
            ForkLost: there is no child now; asking again with another link may help.
            StartError: there is no child.
        """
        ...


class SpawnStarter:
    """Starts fresh interpreters."""

    def __init__(self, module: str) -> None:
        self._module = module

    async def start(
        self, link_end: socket.socket, stderr: int, claim: Callable[[int], None]
    ) -> None:
        """Start a child; see `Starter`."""
        await trio.lowlevel.checkpoint()
        try:
            pid = spawn_python(self._module, link_end, stderr)
        except OSError as error:
            raise StartError(f"cannot start Python: {error}") from error
        claim(pid)


class ZygoteStarter:
    """Asks the zygote to fork; `run` keeps one zygote, so its supervisor replaces one that died."""

    def __init__(self, starting: Starting, poller: Poller, reaper: Reaper) -> None:
        self._starting = starting
        self._poller = poller
        self._reaper = reaper
        self._zygote: _Zygote | None = None
        self._up = trio.Event()
        self._slots = trio.CapacityLimiter(FORKS_AT_ONCE)

    async def run(self, run: Run) -> None:
        """Start a zygote and return when it has ended; it is killed when this is cancelled.

        Raises:
            StartError: it ended.
        """
        zygote = _Zygote(self._poller)
        since = childlog.log_size(self._starting.log)
        try:
            self._launch(zygote)
            run.set_pid(zygote.pid)
            await zygote.ready.wait()
            if not zygote.exited.is_set():
                self._zygote = zygote
                self._up.set()
                run.started()
            await zygote.exited.wait()
            words = childlog.last_words(self._starting.log, since)
            line = words.rpartition("\n")[2]
            raise StartError(f"the zygote ended: {zygote.status}: {line}".rstrip(": "), words)
        finally:
            self._zygote = None
            self._up = trio.Event()
            with trio.CancelScope(shield=True):
                await zygote.end()

    async def start(
        self, link_end: socket.socket, stderr: int, claim: Callable[[int], None]
    ) -> None:
        """Have a child forked; see `Starter`. While a zygote is being replaced this waits for the new one."""
        async with self._slots:
            while (zygote := self._zygote) is None:
                await self._up.wait()
            await trio.lowlevel.checkpoint()
            with trio.CancelScope(shield=True), self._reaper.fork_outstanding():
                try:
                    claim(await zygote.fork(link_end, stderr))
                except ForkLost:
                    # A child may exist all the same; root does not know its pid.
                    self._reaper.kill_strangers()
                    raise

    def _launch(self, zygote: _Zygote) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = childlog.open_log(self._starting.log)
        try:
            zygote.pid = spawn_python(ZYGOTE_MODULE, theirs, log)
        except OSError as error:
            ours.close()
            raise StartError(f"cannot start Python: {error}") from error
        finally:
            theirs.close()
            os.close(log)
        zygote.connect(ours)
        self._reaper.claim(zygote.pid, zygote.on_exit)
        zygote.send(
            control.Preload(
                modules=self._starting.preload,
                entry=self._starting.entry,
                warm_up=self._starting.warm_up,
            )
        )


class _Zygote:
    """One zygote process; a port of the poller."""

    def __init__(self, poller: Poller) -> None:
        self.pid = 0
        self.status: ExitStatus | None = None
        self.ready = trio.Event()
        self.exited = trio.Event()
        self._poller = poller
        self._sock: socket.socket | None = None
        self._fd = -1
        self._last = 0
        self._waiting: dict[int, tuple[trio.Event, list[control.Forked]]] = {}

    def connect(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._poller.add(self)

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        """Do nothing: packets are sent at once or not at all."""

    def send(self, message: control.ToZygote, fds: tuple[int, ...] = ()) -> None:
        if self._sock is None:
            raise ForkLost("the zygote is gone")
        try:
            socket.send_fds(self._sock, [_encoder.encode(message)], list(fds))
        except OSError as error:
            raise StartError(f"the zygote takes no request: {error}") from error

    async def fork(self, link_end: socket.socket, stderr: int) -> int:
        """Return the pid of a new child."""
        self._last += 1
        number = self._last
        answered = trio.Event()
        answers: list[control.Forked] = []
        self._waiting[number] = (answered, answers)
        try:
            request = control.Fork(number=number, root_pid=os.getpid())
            self.send(request, (link_end.fileno(), stderr))
            with trio.move_on_after(FORK_TIMEOUT):
                await answered.wait()
        finally:
            del self._waiting[number]
        if not answers:
            self.kill()  # dead or stuck: a new one serves the next request
            raise ForkLost("the zygote ended, or did not answer, while it forked")
        if not answers[0].pid:
            raise StartError(f"the zygote could not fork: {answers[0].error}")
        return answers[0].pid

    def on_readable(self) -> bool:
        self._receive()
        return False

    def on_exit(self, status: ExitStatus) -> None:
        self.status = status
        while self._receive():  # an answer that it sent before it died counts
            pass
        self._disconnect()
        self.exited.set()
        self.ready.set()

    def _receive(self) -> bool:
        """Handle one packet; return whether there was one."""
        if self._sock is None:
            return False
        try:
            data = self._sock.recv(MAX_PACKET)
            answer = _forked.decode(data) if data else None
        except BlockingIOError:
            return False
        except (OSError, msgspec.DecodeError):
            answer = None
        if answer is None:
            self._disconnect()
            return False
        if answer.number == 0:
            self.ready.set()
        elif answer.number in self._waiting:
            event, answers = self._waiting[answer.number]
            answers.append(answer)
            event.set()
        return True

    def kill(self) -> None:
        if not self.exited.is_set() and self.pid:
            os.kill(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it and wait until it is reaped; its children live on."""
        if self.pid:
            self.kill()
            await self.exited.wait()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._sock is not None:
            self._poller.remove(self)
            self._sock.close()
            self._sock = None
        for event, _ in self._waiting.values():
            event.set()
