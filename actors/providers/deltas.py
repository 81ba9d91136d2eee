"""Text on its way from models to agents: what comes within a few milliseconds leaves as one piece.

The first piece after a pause leaves at once; each further one waits for the end of the window that it opened. One
window serves all streams, so that an agent with several is woken once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from roost.schemas.model import ModelDelta
from roost.supervisor.errors import LinkFull

if TYPE_CHECKING:
    from roost.supervisor.link import Link

WINDOW_SECONDS = 0.005


class DeltaJoiner:
    """Gathers text by link and stream; `run` is its task."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self._window = window
        self._gathered: dict[tuple[Link, int], list[str]] = {}
        self._opened = trio.Event()

    def add(self, link: Link, stream: int, text: str) -> None:
        """Send the text to the link now, or with what else comes within the window."""
        self._gathered.setdefault((link, stream), []).append(text)
        if not self._opened.is_set():
            self._opened.set()
            self.flush(link, stream)

    def flush(self, link: Link, stream: int) -> bool:
        """Send what is gathered of a stream; return False if the link is full (it stays gathered)."""
        texts = self._gathered.pop((link, stream), None)
        if not texts:
            return True
        text = "".join(texts)
        try:
            link.cast(ModelDelta(stream=stream, text=text))
        except LinkFull:
            self._gathered[link, stream] = [text]
            return False
        return True

    def drop(self, link: Link, stream: int) -> None:
        """Forget what is gathered of a stream that nobody waits for."""
        self._gathered.pop((link, stream), None)

    async def run(self) -> None:
        """Close the windows, until cancelled; without text nothing runs."""
        while True:
            await self._opened.wait()
            await trio.sleep(self._window)
            if self._gathered:
                for link, stream in list(self._gathered):
                    self.flush(link, stream)
            else:
                self._opened = trio.Event()
