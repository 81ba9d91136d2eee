"""The user's terminal while a command has one of its own: raw, and put back whatever happens; and its size."""

from __future__ import annotations

import os
import re
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

INPUT: Final = 0
OUTPUT: Final = 1


class Size(msgspec.Struct, frozen=True):
    """The size of a terminal in characters."""

    rows: int
    cols: int


def terminal_size() -> Size | None:
    """Return the size of the terminal that a standard file is, or None if none is one that knows its size."""
    for fd in (INPUT, OUTPUT, 2):
        with suppress(OSError):
            found = os.get_terminal_size(fd)
            if found.lines > 0 and found.columns > 0:
                return Size(found.lines, found.columns)
    return None


class RawTerminal:
    """A terminal that gives every key as it is typed, from the beginning of the block to its end.

    Nothing is changed where the descriptor is no terminal.
    """

    def __init__(self, fd: int = INPUT) -> None:
        self._fd = fd
        self._saved: list[int | list[bytes | int]] | None = None

    @property
    def is_raw(self) -> bool:
        """Whether there is a terminal, which gives every key."""
        return self._saved is not None

    def __enter__(self) -> Self:
        """Make it raw; a process in the background is stopped by the system until it is in the foreground."""
        if os.isatty(self._fd):
            with suppress(termios.error):
                self._saved = termios.tcgetattr(self._fd)
                tty.setraw(self._fd, termios.TCSANOW)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put it back as it was."""
        self.leave()

    def leave(self) -> None:
        """Put it back as it was; in the background it belongs to somebody else and is let alone."""
        if self._saved is not None and self._in_foreground():
            # Without waiting for what is to be written: a terminal that nobody reads would hold us for ever.
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)

    def again(self) -> None:
        """Make it raw once more: while we were stopped a shell has put it back."""
        if self._saved is not None and self._in_foreground():
            with suppress(termios.error):
                tty.setraw(self._fd, termios.TCSANOW)

    def _in_foreground(self) -> bool:
        # The system stops a process in the background that changes its terminal; with one that is not ours it lets us.
        with suppress(OSError):
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        return True


_SET = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_LONGEST: Final = 80
_CURSOR: Final = 25
_SCREENS: Final = (47, 1047, 1049)
# Keys and mouse reported in another way, colours inverted, pasted text marked, output held back.
_KINDS: Final = (1, 5, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026)


class ScreenModes:
    """What a full-screen program has changed at the terminal, so that it can be undone when the program cannot."""

    def __init__(self) -> None:
        self._on: set[int] = set()
        self._hidden = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Look at a piece of what the program writes."""
        data = self._rest + data
        for found in _SET.finditer(data):
            for number in found[1].split(b";"):
                if number:
                    self._note(int(number), on=found[2] == b"h")
        # A sequence may go on in the next piece.
        start = data.rfind(b"\x1b", -_LONGEST)
        self._rest = b"" if start < 0 or _SET.match(data, start) else data[start:]

    def _note(self, number: int, *, on: bool) -> None:
        if number == _CURSOR:
            self._hidden = not on
        elif number in _SCREENS or number in _KINDS:
            (self._on.add if on else self._on.discard)(number)

    def undo(self) -> bytes:
        """Return what brings the terminal back, empty if nothing was changed, and forget it."""
        kinds = [b"\x1b[?%dl" % number for number in sorted(self._on.difference(_SCREENS))]
        # The margins are put back before the other screen is left, which takes the cursor to where it was.
        screens = [b"\x1b[r\x1b[?%dl" % number for number in _SCREENS if number in self._on]
        cursor = [b"\x1b[?25h"] if self._hidden else []
        self._on.clear()
        self._hidden = False
        changed = b"".join((*kinds, *screens, *cursor))
        return changed and changed + b"\x1b>\x1b[m"
