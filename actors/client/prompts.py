"""Lines from standard input, read without a thread so that a wait for one can be cancelled, and what they answer."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

import trio

from roost.actors.client.events import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.client.events import Question
    from roost.actors.client.render import Terminal

READ_SIZE = 64 * 1024
MAX_LINE = 1024 * 1024


class LineInput:
    """Lines from a file descriptor. A cancelled wait loses nothing; a line that is too long comes in pieces."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._ended = False
        mode = os.fstat(fd).st_mode
        # Files and /dev/null are always readable, and epoll refuses them.
        self._waits = os.isatty(fd) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

    async def read_line(self) -> str | None:
        """Return the next line without its end, or None when there are no more."""
        while b"\n" not in self._buffer and len(self._buffer) < MAX_LINE and not self._ended:
            if self._waits:
                await trio.lowlevel.wait_readable(self._fd)
            data = os.read(self._fd, READ_SIZE)
            self._buffer += data
            self._ended = not data
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


def open_stdin() -> LineInput | None:
    """Return standard input, or None if there is none."""
    try:
        fd = sys.stdin.fileno()
        os.fstat(fd)
    except (AttributeError, OSError, ValueError):
        return None
    return LineInput(fd)


def read_decision(line: str) -> tuple[bool, str]:
    """Return (approved, scope) for what was typed; everything that is not a clear yes is a no."""
    match line.strip().lower():
        case "y" | "yes":
            return True, "once"
        case "a" | "always":
            return True, "session"
        case _:
            return False, "once"


async def ask_questions(
    terminal: Terminal, lines: LineInput, questions: Sequence[Question]
) -> dict[str, object] | None:
    """Ask each question and return the `answers` of `elicitation.respond`, or None at the end of the input."""
    answers: dict[str, object] = {}
    for question in questions:
        terminal.note(f"? {clean(question.text)}", fg="yellow", bold=True)
        for number, option in enumerate(question.options, 1):
            terminal.note(f"  {number}. {clean(option)}")
        terminal.prompt("answer: ")
        line = await lines.read_line()
        if line is None:
            return None
        answers[question.id] = {"answers": [_choose(line.strip(), question.options)]}
    return answers


def _choose(text: str, options: Sequence[str]) -> str:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    return text
