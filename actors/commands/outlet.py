"""How much of its commands' output one client's connection has been sent and has not been given yet; pure.

What is under way is bounded: past the window the commands of that connection are not read any more, so each is stopped by
its own full pipe. The window counts lines as they are sent, which are a third longer than what the commands write.
"""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """A command as its connection sees it."""

    def pause(self) -> None:
        """Read no output from now on."""
        ...

    def resume(self) -> None:
        """Read output again."""
        ...

    def flush(self) -> None:
        """Send what has been read and was held back to be sent together with more."""
        ...


class Outlet:
    """One connection, and the commands that write to it."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.under_way = 0
        self.paused = False
        self._sources: dict[int, Source] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the connection has been given all that was sent, so that more need not wait for company."""
        return self.under_way <= 0

    @property
    def is_unused(self) -> bool:
        """Whether it may be forgotten."""
        return not self._sources and self.under_way <= 0

    def join(self, number: int, source: Source) -> None:
        """Let a command write."""
        self._sources[number] = source
        if self.paused:
            source.pause()

    def leave(self, number: int) -> None:
        """A command writes no more."""
        self._sources.pop(number, None)

    def sent(self, size: int) -> None:
        """Note that a line is on its way; past the window all commands are paused."""
        self.under_way += size
        if self.under_way >= self.window and not self.paused:
            self.paused = True
            for source in tuple(self._sources.values()):
                source.pause()

    def taken(self, size: int) -> None:
        """Note that the client has been given so many bytes; what was held back follows, commands may go on."""
        self.under_way -= size
        for source in tuple(self._sources.values()):
            if self.under_way >= self.window:
                break
            source.flush()
        if self.paused and self.under_way <= self.window // 2:
            self.paused = False
            for source in tuple(self._sources.values()):
                source.resume()
