"""Standard input and output as a command of this program has them: open or closed, writable or not."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from typing import IO, Final, TextIO

import click

from roost.actors.client.errors import ClientError

# With these the kernel refuses what is written to an open file.
REFUSED_WRITES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def standard_input() -> TextIO:
    """Return standard input.

    Raises:
        ClientError: it is closed.
    """
    if sys.__stdin__ is None or sys.stdin is None:
        raise ClientError("standard input is closed")
    return sys.stdin


def output_bytes() -> IO[bytes]:
    """Return standard output, for what would be of no use unwritten.

    Raises:
        ClientError: it is closed.
    """
    if sys.__stdout__ is None:
        raise ClientError("standard output is closed")
    return sys.stdout.buffer


def tell_system_error(error: OSError) -> int:
    """Tell of what the system has refused in one line, and return the exit status."""
    from roost.actors.client.events import clean

    with contextlib.suppress(OSError):
        click.echo(f"roost: {clean(_told(error))}", err=True)
    silence()
    return 1


def fill_closed() -> None:
    """Have no file opened under the number of a standard one that is closed.

    To write to a closed output stays an error, which is seen when there is something to write.
    """
    for number, mode in ((0, os.O_RDWR), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, mode)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 # until the end of the process
    if sys.stderr is None:
        # What we say ourselves is lost, and no reason to fail.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 # until the end of the process


def open_outputs() -> None:
    """Have what is written to a closed output go nowhere, for a daemon that takes this process over and lives on."""
    for number in (1, 2):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            os.close(nowhere)


def silence() -> None:
    """Have what is still to be written go nowhere: python would complain once more at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


def _told(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.filename is not None:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {text}"
    return f"standard output: {text}" if error.errno in REFUSED_WRITES else text
