"""The pages of one session's log that its feeds read: each is read and rendered once for all that come by together.

A page that waits as lines in some client's queue is found again by whoever comes to its beginning, and is given back
with the last queue that holds it. The queue of a WebSocket holds the page's frames alone: they are shared by all that
come by while the page is kept, and who comes later has it read and framed again. Pages end at common sequences, so that
feeds which left the tail at different ones come together again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from roost.actors.errors import DaemonError
from roost.actors.front.notify import Renderer
from roost.actors.front.peer import Batch
from roost.actors.front.promise import Promise
from roost.schemas.session import Page, ReadPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.front.stream import Stream

PAGE_BYTES = 262_144
KEPT = 2


class SharedPage(Batch):
    """The lines of the events after one sequence, up to `last`; `renderer` is as it was left behind them."""

    __slots__ = ("__weakref__", "after", "last", "renderer")

    def __init__(
        self, lines: Sequence[bytes], *, session_id: str, after: int, last: int, renderer: Renderer
    ) -> None:
        super().__init__(lines, session_id=session_id, first=after + 1)
        self.after = after
        self.last = last
        self.renderer = renderer


class Shelf:
    """The pages that are being read, and those that somebody still has."""

    def __init__(self) -> None:
        self._reading: dict[int, Promise[SharedPage]] = {}
        self._pages: WeakValueDictionary[int, SharedPage] = WeakValueDictionary()
        self._kept: deque[SharedPage] = deque(maxlen=KEPT)

    def get(self, after: int) -> SharedPage | None:
        """Return the page behind a sequence, if somebody has it."""
        return self._pages.get(after)

    def read(self, stream: Stream, after: int, before: Renderer | None) -> Promise[SharedPage]:
        """Promise the page behind a sequence; `before` is the renderer of what the caller had before it."""
        promise = self._reading.get(after)
        if promise is None:
            promise = self._reading[after] = Promise()
            self._ask(stream, after, before, promise)
        return promise

    def tidy(self) -> None:
        """Nobody is behind: keep nothing for who might come."""
        self._kept.clear()

    def clear(self) -> None:
        """Forget everything: the log is not the same any more."""
        self._kept.clear()
        self._pages.clear()
        self._reading.clear()

    def _ask(
        self,
        stream: Stream,
        after: int,
        before: Renderer | None,
        promise: Promise[SharedPage],
    ) -> None:
        size = min(PAGE_BYTES, stream.fanout.allowance)
        span = stream.fanout.page_events
        if size < PAGE_BYTES:
            span = max(1, span // 8)
        request = ReadPage(
            session_id=stream.session_id,
            after=after,
            upto=stream.page_end(after),
            max_events=span - after % span,
            max_bytes=size,
            skip_damaged=True,
        )
        answer = stream.fanout.store.ask_bulky(request, Page)

        def take() -> None:
            current = self._reading.get(after) is promise
            if current:
                del self._reading[after]
            try:
                page = _render(stream, request, answer.result(), before)
            except DaemonError as error:
                promise.fail(error)
                return
            if current:
                self._pages[after] = page
                self._kept.append(page)
            promise.resolve(page)

        answer.then(take)


def _render(stream: Stream, request: ReadPage, page: Page, before: Renderer | None) -> SharedPage:
    renderer = Renderer(stream.where) if before is None else before.fork()
    renderer.pending.update(stream.pending)
    renderer.turns.update((turn.turn_id, turn) for turn in page.turns)
    lines: list[bytes] = []
    position = request.after
    if page.lost_upto > position:
        lines.append(stream.gap("retention", position + 1, page.lost_upto))
        position = page.lost_upto
    if page.damaged_upto > position:
        lines.append(stream.gap("damaged", position + 1, page.damaged_upto))
        position = page.damaged_upto
    sequence = page.first
    for body in page.bodies:
        if sequence > position:
            lines.extend(stream.render(renderer, sequence, body))
            position = sequence
        sequence += 1
    if not page.bodies and not page.damaged_upto and position < request.upto:
        lines.append(stream.gap("unavailable", position + 1, request.upto))
        position = request.upto
    return SharedPage(
        lines,
        session_id=stream.session_id,
        after=request.after,
        last=position,
        renderer=renderer,
    )
