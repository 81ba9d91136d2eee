"""The way from an agent's process to the store: drafts, calls, and what to do while there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas.base import Message
    from roost.schemas.turn import Draft
    from roost.supervisor.link import Link

REPEAT_PAUSE = 0.05


class StoreLink:
    """The newest link to the store, if there is one."""

    def __init__(
        self, nursery: trio.Nursery, call_timeout: float, on_room: Callable[[], None]
    ) -> None:
        self._nursery = nursery
        self.call_timeout = call_timeout
        self._on_room = on_room
        self.link: Link | None = None
        self._linked = trio.Event()
        self._waiting_for_room = False

    @property
    def is_up(self) -> bool:
        """Return whether there is a link."""
        return self.link is not None

    def is_current(self, link: Link) -> bool:
        """Return whether this is the newest link; what an older one says does not count."""
        return self.link is link

    def replace(self, link: Link) -> None:
        """Use this link from now on."""
        old, self.link = self.link, link
        if old is not None:
            old.close()
        self._linked.set()

    def lost(self, link: Link) -> None:
        """A link is closed; its calls have failed already."""
        if self.link is link:
            self.link = None
            self._linked = trio.Event()

    def send_draft(self, draft: Draft) -> bool:
        """Queue a draft; return False if there is no link, or no room on it (`on_room` is called later)."""
        if self.link is None:
            return False
        try:
            self.link.cast(draft)
        except LinkFull:
            self._wait_for_room(self.link)
            return False
        return True

    def call(self, message: Message, on_answer: Callable[[Message | ActorGone], None]) -> None:
        """Call the store; the answer, or that it is gone, comes exactly once."""
        if self.link is None:
            on_answer(ActorGone("the store is away"))
            return
        try:
            self.link.call_nowait(message, on_answer)
        except LinkFull:
            on_answer(ActorGone("the store does not read"))

    async def ask(self, message: Message) -> Message:
        """Call the store with something idempotent; wait for a link, and repeat until there is an answer.

        A `call_timeout` of 0 is no limit.
        """
        while True:
            await self._linked.wait()
            link = self.link
            if link is None:
                continue
            try:
                return await link.call(message, timeout=self.call_timeout or math.inf)
            except (ActorGone, CallTimeout, LinkFull):
                await trio.sleep(REPEAT_PAUSE)

    def _wait_for_room(self, link: Link) -> None:
        if not self._waiting_for_room:
            self._waiting_for_room = True
            self._nursery.start_soon(self._room, link)

    async def _room(self, link: Link) -> None:
        await link.drained()
        self._waiting_for_room = False
        self._on_room()
