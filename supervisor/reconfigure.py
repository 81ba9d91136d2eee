"""New settings for processes that run: each is told once, and its answer is waited for, but not for ever.

A process that is just being started gets them with its start. One that has died meanwhile gets them with its next.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from roost.schemas.base import Refused
from roost.schemas.control import Configure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roost.supervisor.link import Answer
    from roost.supervisor.process import RunningProcess


class Outcome(NamedTuple):
    """Who refused the settings, and why; who has not answered in time."""

    refused: dict[str, str]
    late: tuple[str, ...]


class _Round:
    """The answers of one round."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.waiting: set[str] = set()
        self.done = trio.Event()
        self._sent = False

    def take(self, name: str, answer: Answer) -> None:
        """Note an answer; a process that is gone has no say."""
        if isinstance(answer, Refused):
            self.refused[name] = answer.message
        self.waiting.discard(name)
        self._look()

    def sent(self) -> None:
        """Note that everybody has been asked."""
        self._sent = True
        self._look()

    def _look(self) -> None:
        if self._sent and not self.waiting:
            self.done.set()


async def configure(
    processes: Iterable[RunningProcess], payload: Callable[[str], bytes], seconds: float
) -> Outcome:
    """Tell each process its kind's settings; return when all have answered, or after so many seconds."""
    answers = _Round()
    for process in processes:
        if process.link is not None:
            answers.waiting.add(process.name)
            message = Configure(payload=payload(process.spec.kind))
            process.call(message, partial(answers.take, process.name))
    answers.sent()
    with trio.move_on_after(seconds):
        await answers.done.wait()
    return Outcome(answers.refused, tuple(sorted(answers.waiting)))
