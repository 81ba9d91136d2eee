"""One task that serves many sockets: reads all that are ready, handles what came, then flushes each socket once.

The task waits on a nested epoll, so a sweep over a hundred ready sockets costs one wake-up of the event loop. What
other tasks queue is flushed once per scheduler pass. A ready socket is read once per sweep, so none holds the others.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_SECONDS = 0.010
READY_AT_ONCE = 256


class Port(Protocol):
    """What the poller needs of a socket's owner. None of the methods waits; none raises."""

    def fileno(self) -> int:
        """Return the descriptor that is polled."""
        ...

    def on_readable(self) -> bool:
        """Read once and handle; return whether complete messages are left over for the next sweep."""
        ...

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        ...


class Poller:
    """Ports, and the one task that serves them."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ports: dict[int, Port] = {}
        self._dirty: list[Port] = []
        self._unfinished: dict[int, Port] = {}
        self._hooks: list[Callable[[], None]] = []
        self._sweeping = False
        self._wanted = trio.Event()

    def add(self, port: Port) -> None:
        """Serve a port from now on."""
        fd = port.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._ports[fd] = port

    def remove(self, port: Port) -> None:
        """Stop serving a port; call this before its descriptor is closed. Unknown ports are ignored."""
        fd = port.fileno()
        if self._ports.get(fd) is port:
            del self._ports[fd]
            self._unfinished.pop(fd, None)
            self._epoll.unregister(fd)

    def want_write(self, port: Port, wanted: bool, *, reading: bool = True) -> None:
        """Call the port's `flush` when its socket takes bytes again; `reading` False pauses its input."""
        fd = port.fileno()
        if self._ports.get(fd) is port:
            events = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if wanted else 0)
            self._epoll.modify(fd, events)

    def mark_dirty(self, port: Port) -> None:
        """Flush the port at the end of this sweep, or of this scheduler pass."""
        self._dirty.append(port)
        if not self._sweeping:
            self._wanted.set()

    def continue_later(self, port: Port) -> None:
        """Call the port's `on_readable` in the next sweep, whether or not its socket is ready."""
        self._unfinished[port.fileno()] = port
        if not self._sweeping:
            self._wanted.set()

    def after_sweep(self, hook: Callable[[], None]) -> None:
        """Call `hook` after what a sweep read has been handled and before the flush. It must not raise."""
        self._hooks.append(hook)

    def run_hooks_soon(self) -> None:
        """Run the hooks in the next scheduler pass, as if a sweep had ended."""
        self._wanted.set()

    async def run(self) -> None:
        """Serve until cancelled. What is queued then stays unsent."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_wanted)
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._sweep()

    def close(self) -> None:
        """Close the epoll; ports are their owners' to close."""
        self._epoll.close()

    async def _serve_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            self._sweep()

    def _sweep(self) -> None:
        self._sweeping = True
        end = trio.current_time() + SWEEP_SECONDS
        try:
            while True:
                ready = self._epoll.poll(0, READY_AT_ONCE)
                unfinished = list(self._unfinished.values())
                self._unfinished.clear()
                self._handle(ready, unfinished)
                self._finish()
                if not ready and not unfinished:
                    return
                if trio.current_time() >= end:
                    break
        finally:
            self._sweeping = False
        if self._unfinished:
            self._wanted.set()

    def _handle(self, ready: list[tuple[int, int]], unfinished: list[Port]) -> None:
        for fd, events in ready:
            port = self._ports.get(fd)
            if port is None:
                continue
            if events & select.EPOLLOUT:
                port.flush()
            if events & ~select.EPOLLOUT and port.on_readable():
                self._unfinished[fd] = port
        for port in unfinished:
            fd = port.fileno()
            if fd not in self._unfinished and self._ports.get(fd) is port and port.on_readable():
                self._unfinished[fd] = port

    def _finish(self) -> None:
        for hook in self._hooks:
            hook()
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for port in dirty:
                port.flush()
