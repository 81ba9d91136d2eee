"""Ephemeral sessions that nobody follows any more: closed after a while without a client and without work."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

import trio

from roost.schemas.session import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.desk import Desk

# A session is closed so much later at most, as a share of its time, and not looked at more often than that.
SHARE: Final = 0.1
MIN_PAUSE: Final = 0.05


class Idlers:
    """One task; it sleeps while there is no ephemeral session. `close` asks for the end of one."""

    def __init__(
        self,
        desk: Desk,
        seconds: float,
        *,
        is_followed: Callable[[str], bool],
        close: Callable[[str, str], None],
    ) -> None:
        self._desk = desk
        self._is_followed = is_followed
        self._close = close
        self._since: dict[str, float] = {}
        self._made = trio.Event()
        self.seconds = seconds
        desk.on_ephemeral = self.wake

    def wake(self) -> None:
        """There is one, or the time that they have is another one."""
        self._made.set()

    def configure(self, seconds: float) -> None:
        """Give them so much time from now on; 0 leaves them until the daemon ends."""
        if seconds != self.seconds:
            self.seconds = seconds
            self.wake()

    async def run(self) -> None:
        """Look now and then while there is one, until cancelled."""
        while True:
            wait = max(self.seconds * SHARE, MIN_PAUSE) if self.look() else float("inf")
            with trio.move_on_after(wait):
                await self._made.wait()
            self._made = trio.Event()

    def look(self) -> bool:
        """Close what has been idle for long enough; return whether to look again."""
        if not self.seconds:
            self._since.clear()
            return False
        try:
            found = self._desk.ephemeral_sessions()
        except sqlite3.Error:
            # Whoever needs these rows tells of it.
            return bool(self._since)
        now = trio.current_time()
        since: dict[str, float] = {}
        for session_id, busy in found:
            if busy or self._is_followed(session_id):
                continue
            since[session_id] = before = self._since.get(session_id, now)
            if now - before >= self.seconds:
                self._close(session_id, IDLE)
        self._since = since
        return bool(found)
