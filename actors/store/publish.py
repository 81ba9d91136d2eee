"""Who watches which session, and what each of them is told after a commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from roost.schemas.agent import AgentChanged
from roost.schemas.published import Published
from roost.schemas.session import EventBatch, SessionChanged
from roost.supervisor.errors import LinkFull

if TYPE_CHECKING:
    from roost.actors.store.effects import Effects
    from roost.schemas.published import PublishedItem
    from roost.supervisor.link import Link

# One commit can be larger than a frame may be.
MAX_PUBLISHED: Final = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class Watcher:
    """One front: the sessions that it watches, or all."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.all = False


class Publisher:
    """The fronts and what they watch."""

    def __init__(self) -> None:
        self._watchers: dict[Link, Watcher] = {}

    def add(self, link: Link) -> None:
        """Let a front watch; at first nothing."""
        self._watchers[link] = Watcher()

    def remove(self, link: Link) -> None:
        """Forget a front and what it watched."""
        self._watchers.pop(link, None)

    def watcher(self, link: Link) -> Watcher | None:
        """Return what a front watches, or None when it is gone."""
        return self._watchers.get(link)

    def is_watched(self, session_id: str) -> bool:
        """Return whether a front watches this session for somebody."""
        return any(session_id in watcher.sessions for watcher in self._watchers.values())

    def publish(self, effects: Effects) -> None:
        """Tell each front, in order, of what it watches; one that does not read is cut off and starts anew."""
        for link, watcher in list(self._watchers.items()):
            items = effects.items
            if not watcher.all:
                items = [item for item in items if _wants(watcher, item)]
            whole = effects.size <= MAX_PUBLISHED
            try:
                for part in [tuple(items)] if whole else _parts(items):
                    if part:
                        link.cast(Published(items=part))
            except LinkFull:
                _log.error("%s does not read: cut off", link.name)
                self.remove(link)
                link.close()


def _wants(watcher: Watcher, item: PublishedItem) -> bool:
    if isinstance(item, AgentChanged):
        return True
    if isinstance(item, SessionChanged):
        return item.row.spec.session_id in watcher.sessions
    return item.session_id in watcher.sessions


def _parts(items: list[PublishedItem]) -> list[tuple[PublishedItem, ...]]:
    """Return the items as messages of bearable size; a batch is cut where one is full."""
    parts: list[tuple[PublishedItem, ...]] = []
    part: list[PublishedItem] = []
    size = 0
    for item in items:
        for piece in _pieces(item) if isinstance(item, EventBatch) else (item,):
            length = _size(piece)
            if part and size + length > MAX_PUBLISHED:
                parts.append(tuple(part))
                part, size = [], 0
            part.append(piece)
            size += length
    parts.append(tuple(part))
    return parts


def _size(item: PublishedItem) -> int:
    return sum(map(len, item.bodies)) if isinstance(item, EventBatch) else 0


def _pieces(batch: EventBatch) -> list[EventBatch]:
    if _size(batch) <= MAX_PUBLISHED:
        return [batch]
    pieces: list[EventBatch] = []
    room = 0
    for number, body in enumerate(batch.bodies):
        if room < len(body):
            piece = msgspec.structs.replace(batch, first=batch.first + number, bodies=[body])
            pieces.append(piece)
            room = MAX_PUBLISHED - len(body)
        else:
            pieces[-1].bodies.append(body)
            room -= len(body)
    return pieces
