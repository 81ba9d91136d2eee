"""Standard input and output of `roost exec` as bytes, without a flag on what other processes have open too.

Reads and writes are made in threads: each may take as long as it likes and can be walked away from.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from functools import partial
from typing import Final

import trio
import trio.lowlevel

READ_SIZE: Final = 64 * 1024
GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET})


class OutputGone(Exception):
    """Nobody reads the output any more."""


class Input:
    """The bytes of a descriptor. A wait that is cancelled takes nothing, so what is typed later is for who comes later."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        mode = os.fstat(fd).st_mode
        # Files and /dev/null are always readable, and epoll refuses them.
        self._waits = os.isatty(fd) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

    async def read(self) -> bytes:
        """Return what comes next, or nothing at the end, which a terminal that has hung up is too.

        Raises:
            OSError: the system does not let it be read.
        """
        while True:
            if self._waits:
                await trio.lowlevel.wait_readable(self._fd)
            read = partial(os.read, self._fd, READ_SIZE)
            try:
                return await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            except BlockingIOError:
                # Somebody else has the same file, and has taken it or set a flag.
                continue
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise OSError(error.errno, error.strerror, "standard input") from None


async def write_all(fd: int, data: bytes) -> None:
    """Write all of it. Cancelled, a part may be written.

    Raises:
        OutputGone: nobody reads there any more.
        OSError: the system refuses it, as on a full disk.
    """
    try:
        await trio.to_thread.run_sync(_write, fd, data, abandon_on_cancel=True)
    except OSError as error:
        if error.errno in GONE or (error.errno == errno.EIO and _is_device(fd)):
            raise OutputGone from None
        raise


def _is_device(fd: int) -> bool:
    """Return whether it may be a terminal; one that has hung up does not say so itself."""
    return stat.S_ISCHR(os.fstat(fd).st_mode)


def _write(fd: int, data: bytes) -> None:
    ready = memoryview(data)
    while ready:
        try:
            ready = ready[os.write(fd, ready) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
