"""The outputs of one command: read as they come, handed on in the order of reading, and not read while paused."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READ_BYTES = 64 * 1024
READS_AT_ONCE = 8
LAST_BYTES = 1024 * 1024
"""More than a pipe or a terminal holds: what comes beyond after the end of all writers is a stranger's."""


class Outputs:
    """The readers of one command."""

    def __init__(self, on_output: Callable[[int, bytes], None], *, is_terminal: bool) -> None:
        self._on_output = on_output
        # A terminal gives no more than 4,095 bytes at a time.
        self._take = _take_many if is_terminal else _take
        self._flowing = trio.Event()
        self._flowing.set()
        self._open: dict[int, int] = {}
        self._ended = trio.Event()

    def pause(self) -> None:
        """Hand nothing on until `resume`."""
        if self._flowing.is_set():
            self._flowing = trio.Event()

    def resume(self) -> None:
        """Go on."""
        self._flowing.set()

    @property
    def are_open(self) -> bool:
        """Return whether an output has not come to its end."""
        return bool(self._open)

    def open(self, descriptors: Sequence[int]) -> None:
        """Take descriptors that do not block; the caller closes them."""
        self._open = dict(enumerate(descriptors))

    def start(self, nursery: trio.Nursery) -> None:
        """Read, in tasks that end with each output's end."""
        for number, descriptor in self._open.items():
            nursery.start_soon(self._read, number, descriptor)

    def take_rest(self) -> bool:
        """Hand on what is there at once; return whether that was all, to the end of every output."""
        last = LAST_BYTES
        for number, descriptor in tuple(self._open.items()):
            while data := self._take(descriptor) if self._flowing.is_set() and last > 0 else None:
                self._on_output(number, data)
                last -= len(data)
            if data is None:
                return False
            del self._open[number]
        return True

    async def wait_ended(self) -> None:
        """Wait until every output has come to its end."""
        if self._open:
            await self._ended.wait()

    async def drain(self) -> None:
        """Hand on what is left, once all that write have ended and the tasks that read have been cancelled."""
        for number, descriptor in self._open.items():
            last = LAST_BYTES
            while last > 0 and (data := await self._next(descriptor)):
                self._on_output(number, data)
                last -= len(data)
                await trio.lowlevel.checkpoint()

    def abandon(self) -> None:
        """Nobody reads any more: nothing is open, and nobody waits for an end."""
        self._open.clear()
        self._ended.set()

    async def _read(self, number: int, descriptor: int) -> None:
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            data: bytes | None = None
            # A wait costs as much as several reads.
            for _ in range(READS_AT_ONCE):
                data = await self._next(descriptor)
                if not data:
                    break
                self._on_output(number, data)
            if data == b"":
                break
        del self._open[number]
        if not self._open:
            self._ended.set()

    async def _next(self, descriptor: int) -> bytes | None:
        """Return what is there as soon as output may flow: empty at the end, None if there is nothing."""
        # When it does flow, nothing is waited for between this look and the use of the bytes, so that `pause` holds.
        while not self._flowing.is_set():
            await self._flowing.wait()
        return self._take(descriptor)


def _take(descriptor: int, size: int = READ_BYTES) -> bytes | None:
    """Return what is there, empty at the end, None if there is nothing yet."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal that nobody has open any more
            return b""
        raise


def _take_many(descriptor: int) -> bytes | None:
    """Return what several reads give, as much as one read may."""
    data = _take(descriptor)
    if not data:
        return data
    pieces, size = [data], len(data)
    while size < READ_BYTES:
        data = _take(descriptor, READ_BYTES - size)
        if not data:  # if it is the end, the next read says so again
            break
        pieces.append(data)
        size += len(data)
    return b"".join(pieces)
