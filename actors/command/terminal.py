"""Pseudo-terminals: opened, sized, and what is typed to end their input."""

from __future__ import annotations

import os
import termios
from contextlib import suppress

import msgspec

END_OF_INPUT = b"\x04"
IUTF8 = 0o40000
MAX_SIZE = 65_535


class NotATerminal(Exception):
    """The command runs on pipes."""


class Size(msgspec.Struct, frozen=True):
    """The size of a terminal in characters, each from 1 to 65,535."""

    rows: int
    cols: int


DEFAULT_SIZE = Size(24, 80)


def open_terminal(size: Size) -> tuple[int, int]:
    """Open a terminal of this size that erases whole UTF-8 characters; return its master's and its own descriptor.

    Raises:
        OSError: the system is out of terminals or descriptors.
    """
    master, slave = os.openpty()
    try:
        set_size(master, size)
        attributes = termios.tcgetattr(slave)
        attributes[0] |= IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        os.set_blocking(master, False)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave


def set_size(master: int, size: Size) -> None:
    """Set the size of a terminal; its foreground processes get SIGWINCH if that is news."""
    with suppress(termios.error):  # it may have been hung up
        termios.tcsetwinsize(master, (size.rows, size.cols))
