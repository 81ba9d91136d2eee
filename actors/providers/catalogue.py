"""The models of one provider as its server told them last.

They are asked for only when somebody wants to know, by one request at a time, and not again for a while. A server that
does not answer costs who asks a few seconds once, and what it told before still counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.providers.errors import ProviderError, too_late
from roost.actors.providers.wire.models import Offered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


FRESH_SECONDS = 60.0
AGAIN_SECONDS = 10.0


class Listing(msgspec.Struct, frozen=True):
    """The models that are known, and why they could not be asked for now, if so."""

    models: tuple[Offered, ...] = ()
    error: ProviderError | None = None


class Catalogue:
    """What is known of one provider's models."""

    def __init__(self) -> None:
        self._known = Listing()
        self._until = -1.0
        self._asking = trio.Lock()

    async def take(self, ask: Callable[[], Awaitable[list[Offered]]], seconds: float) -> Listing:
        """Return what is known, after asking for at most so many seconds if it is too old.

        Who comes while another asks waits for that one's answer. Cancelled, nothing is known that was not before.
        """
        async with self._asking:
            if trio.current_time() >= self._until:
                self._known = await self._ask(ask, seconds)
                pause = FRESH_SECONDS if self._known.error is None else AGAIN_SECONDS
                self._until = trio.current_time() + pause
            return self._known

    async def _ask(self, ask: Callable[[], Awaitable[list[Offered]]], seconds: float) -> Listing:
        error = too_late("no list of models", seconds)
        with trio.move_on_after(seconds):
            try:
                return Listing(tuple(await ask()))
            except ProviderError as refused:
                error = refused
        return Listing(self._known.models, error)
