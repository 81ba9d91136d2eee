"""What has come in and is not written yet: when a group is due, what goes into it, what is kept while the disk is full.

No I/O and no clock of its own; times are in seconds of the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roost.actors.store.desk import Item
from roost.schemas.session import Delivered
from roost.schemas.turn import Draft

if TYPE_CHECKING:
    from roost.supervisor.link import Link

GROUP_BYTES: Final = 8 * 1024 * 1024
KEPT_BYTES: Final = 256 * 1024 * 1024
STALL_SECONDS: Final = 0.5
NEVER: Final = float("inf")


class Waiting(Item, frozen=True):
    """Something to write, and who gets the answer; root's reports have no link."""

    link: Link | None
    ref: int

    @property
    def size(self) -> int:
        """The bytes that count for the size of a group."""
        message = self.message
        return len(message.body) if isinstance(message, Draft) else 0

    @property
    def is_request(self) -> bool:
        """Whether a client waits for it, and is better told than left waiting."""
        return bool(self.ref) and not self.agent_id

    @property
    def is_promise(self) -> bool:
        """Whether it is to be written at once, and not with what comes a little later."""
        message = self.message
        return message.durable if isinstance(message, Draft) else not isinstance(message, Delivered)


class Intake:
    """The writes that wait, in order."""

    def __init__(self, group_drafts: int, window: float) -> None:
        self.configure(group_drafts, window)
        self._waiting: list[Waiting] = []
        self._urgent = False
        self._due = 0.0
        self._stalled_until = 0.0
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def configure(self, group_drafts: int, window: float) -> None:
        """Make groups of at most so many drafts; deltas alone wait so many seconds for more."""
        self._group_drafts = group_drafts
        self._window = window

    def add(self, waiting: Waiting) -> bool:
        """Keep something for the next group; return False if its sender has to be cut off: it sends too much."""
        self._waiting.append(waiting)
        if not self._urgent:
            self._urgent = waiting.is_promise
        if not self._stalled_until:
            return True
        self._kept_bytes += waiting.size
        return self._kept_bytes <= KEPT_BYTES

    def hurry(self) -> None:
        """Let all that waits be due."""
        self._urgent = True

    def has_request_of(self, link: Link) -> bool:
        """Return whether something waits that this link asked for."""
        return any(waiting.link is link and waiting.is_request for waiting in self._waiting)

    def closed(self, link: Link) -> None:
        """Forget, while the disk takes nothing, what came on a link that is closed: it is sent again or not wanted."""
        if self._stalled_until:
            self._waiting = [waiting for waiting in self._waiting if waiting.link is not link]
            self._kept_bytes = sum(waiting.size for waiting in self._waiting)

    def due(self, now: float) -> float:
        """Return when the next group is to be written: text deltas alone a little after the last one.

        `now` or earlier means at once, `NEVER` that nothing waits.
        """
        if not self._waiting:
            return NEVER
        if now < self._stalled_until:
            asked = any(waiting.is_request for waiting in self._waiting)
            return now if asked else self._stalled_until
        if self._urgent or len(self._waiting) >= self._group_drafts:
            return now
        return self._due

    def take(self, now: float) -> list[Waiting]:
        """Return the next group; while the disk takes nothing only what clients ask for is tried."""
        if now < self._stalled_until:
            group = [waiting for waiting in self._waiting if waiting.is_request]
            self._waiting = [waiting for waiting in self._waiting if not waiting.is_request]
            return group
        size = count = 0
        for waiting in self._waiting[: self._group_drafts]:
            size += waiting.size
            if count and size > GROUP_BYTES:
                break
            count += 1
        group = self._waiting[:count]
        del self._waiting[:count]
        if not self._waiting:
            self._urgent = False
        return group

    def written(self, now: float) -> bool:
        """Note that a group has been written; return whether the disk had taken none before."""
        self._due = now + self._window
        stalled = bool(self._stalled_until)
        self._stalled_until = 0.0
        return stalled

    def stall(self, left: list[Waiting], now: float) -> list[Waiting]:
        """Note that the disk has not taken this; keep what agents sent, return the requests to be refused."""
        refused = [waiting for waiting in left if waiting.is_request]
        self._waiting[:0] = [waiting for waiting in left if not waiting.is_request]
        self._urgent = bool(self._waiting)
        self._kept_bytes = sum(waiting.size for waiting in self._waiting)
        self._stalled_until = now + STALL_SECONDS
        return refused
