"""The input of one command: a bounded queue, and the task that writes it as the program takes it."""

from __future__ import annotations

import os
from collections import deque

import trio

from roost.actors.command.terminal import END_OF_INPUT

STDIN_BYTES = 1024 * 1024
"""How much of a command's input may be queued."""


class StdinClosed(Exception):
    """The input takes nothing; the text says why."""


class StdinFull(Exception):
    """So many bytes do not fit into the queue now."""


class Feed:
    """What goes into one command."""

    def __init__(self, *, is_open: bool, is_terminal: bool) -> None:
        self._refusal = "" if is_open else "the command has no input"
        self._is_terminal = is_terminal
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._is_closing = False
        self._is_deaf = False
        self._news = trio.Event()
        self._space = trio.Event()

    def write(self, data: bytes) -> None:
        """Queue bytes; see `CommandActor.write`."""
        self._check(len(data))
        if self._queued + len(data) > STDIN_BYTES:
            raise StdinFull(f"{self._queued} bytes of input are waiting")
        if data and not self._is_deaf:
            self._queue.append(memoryview(data))
            self._queued += len(data)
            self._news.set()

    async def room(self, size: int) -> None:
        """Wait for room; see `CommandActor.room`."""
        # Nothing is waited for after the last look, so that the caller's `write` finds the room still there.
        await trio.lowlevel.checkpoint()
        self._check(size)
        while self._queued + size > STDIN_BYTES:
            await self._space.wait()
            self._check(size)

    def close(self) -> None:
        """Take nothing more and end the input after the queue."""
        if self._is_closing:
            return
        self._check(0)
        self._is_closing = True
        self._refuse("the input is closed already")
        self._news.set()

    def end(self) -> None:
        """The command has ended: drop the queue and take nothing more."""
        self._is_closing = True
        self._refuse(self._refusal or "the command has ended")
        self._drop()

    async def run(self, descriptor: int) -> None:
        """Write to a non-blocking descriptor until the end of the input, then close it. Cancelled, it is closed, too."""
        try:
            await self._run(descriptor)
        finally:
            os.close(descriptor)

    async def _run(self, descriptor: int) -> None:
        while self._queue or not self._is_closing:
            if self._queue:
                await self._write_some(descriptor)
            else:
                await self._news.wait()
                self._news = trio.Event()
        if self._is_terminal and not self._is_deaf:
            self._queue.append(memoryview(END_OF_INPUT))
            self._queued += 1
            while self._queue:
                await self._write_some(descriptor)

    async def _write_some(self, descriptor: int) -> None:
        data = self._queue[0]
        try:
            count = os.write(descriptor, data)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(descriptor)
            return
        except (
            OSError
        ):  # EPIPE, EIO: the program does not want to hear more, and that is its own affair
            self._is_deaf = True
            self._drop()
            return
        self._queued -= count
        if count < len(data):
            self._queue[0] = data[count:]
        else:
            self._queue.popleft()
        self._tell_space()
        await trio.lowlevel.checkpoint()

    def _check(self, size: int) -> None:
        if size > STDIN_BYTES:
            raise ValueError(f"{size} bytes at once are too many for an input")
        if self._refusal:
            raise StdinClosed(self._refusal)

    def _refuse(self, why: str) -> None:
        self._refusal = why
        self._tell_space()

    def _drop(self) -> None:
        self._queue.clear()
        self._queued = 0
        self._tell_space()

    def _tell_space(self) -> None:
        self._space.set()
        self._space = trio.Event()
