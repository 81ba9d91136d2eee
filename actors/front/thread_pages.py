"""Items of a thread out of the log, page by page: a page folds from the turn in which it begins, never from the first event.

A page costs what it shows: text deltas are not read, but for those of messages that nothing has ended.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from roost.actors.threads.fold import Fold
from roost.actors.threads.items import Item, event_of
from roost.schemas.base import SessionId
from roost.schemas.session import Page, ReadPage
from roost.schemas.thread_events import AnySeen, SeenAudio, SeenDelta, seen_decoder
from roost.schemas.thread_log import ItemEvents, ReadItems

if TYPE_CHECKING:
    from roost.actors.front.gateway import Gateway
    from roost.actors.front.promise import Promise
    from roost.actors.threads.items import Span
    from roost.schemas.session import SessionRow
    from roost.schemas.thread_results import AppTurn

MAX_ITEMS = 500
MAX_BYTES = 2 * 1024 * 1024
CHUNK = 256
"""How many items the store looks for at once."""
SLACK = 8
"""How many more than a page's are looked for: what ends the last of them is often right behind it."""
LEAST_BYTES = 4 * 1024
SPAN_EVENTS = 1_024
SPAN_BYTES = 524_288

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode_list = msgspec.json.Decoder(list[AnySeen]).decode


class ItemsPage(NamedTuple):
    """Items as JSON; `upto` is the last event that was looked at for them. `fold` is at the end of the log unless `more`."""

    row: SessionRow
    items: list[msgspec.Raw]
    upto: int
    cursor: str
    more: bool
    found: bool
    turn_id: str
    fold: Fold


class Gathering:
    """The items behind a sequence while the log is folded: those of a page, and one more if there is one."""

    def __init__(self, max_bytes: int) -> None:
        self.behind = 0
        self.items: list[Item] = []
        self.limit = MAX_ITEMS
        self._room = max_bytes * 2

    def passed(self, page: ItemEvents) -> bool:
        """Note that events have been folded; return whether nothing that follows can change the items of the page."""
        behind, items = self.behind, self.items
        items[:] = [item for item in items if item.first > behind][: self.limit + 1]
        if page.events and page.events[-1][0] > behind:
            self._room -= sum([len(body) for _, body in page.events])
        if self._room < 0 and items:
            # It is long enough; what is gathered from now on is of the next one.
            self.limit = min(self.limit, len(items))
        elif len(items) <= self.limit:
            return False
        return not any(item.is_open for item in items[: self.limit])


async def read_items(
    store: Gateway,
    thread_id: str,
    after_item: str = "",
    *,
    upto: int = 0,
    max_bytes: int = MAX_BYTES,
    running: str | None = None,
) -> ItemsPage:
    """Return the items behind one, or the first ones, as of the last event or of `upto`.

    `running` is the turn that was open at `upto`, if there was one; what the log leaves open without one has ended.

    Raises:
        DaemonError: there is no such thread (`SESSION_NOT_FOUND`), or the store does not answer.
    """
    gathering = Gathering(max_bytes)
    fold = Fold(thread_id, on_item=gathering.items.append, tells=False)
    begin = ReadItems(
        session_id=SessionId(thread_id),
        after_event=event_of(after_item),
        upto=upto,
        max_items=CHUNK,
        running=running or "",
    )
    first = await store.ask_bulky(begin, ItemEvents)
    gathering.behind = first.found
    if await _gather(store, begin, first, gathering, fold):
        fold.reach(first.upto)
        if not (first.turn_id if running is None else running):
            fold.settle()
    items = gathering.items[: gathering.limit]
    shown = await _shown(store, thread_id, items, max_bytes)
    return ItemsPage(
        row=first.row,
        items=shown,
        upto=first.upto,
        cursor=_cursor(items[: len(shown)]),
        more=fold.last < first.upto or len(shown) < len(gathering.items),
        found=bool(first.found),
        turn_id=first.turn_id,
        fold=fold,
    )


async def _gather(
    store: Gateway, begin: ReadItems, first: ItemEvents, gathering: Gathering, fold: Fold
) -> bool:
    """Fold what follows until the items of a page are known; return whether that is all of the log."""
    page, planned = first, CHUNK
    going_on = structs.replace(begin, after_event="", upto=first.upto, count_after=first.found)
    while True:
        following: Promise[ItemEvents] | None = None
        if page.next and planned < MAX_ITEMS + SLACK:
            # The store reads the next piece while this one is folded.
            following = store.ask_bulky(structs.replace(going_on, after=page.next), ItemEvents)
            store.push()
            planned += CHUNK
        for (sequence, _), event in zip(
            page.events, _decode_all(fold.thread_id, page), strict=True
        ):
            fold.take(sequence, event)
        if gathering.passed(page) or not page.next:
            return not page.next
        if following is None:
            following = store.ask_bulky(structs.replace(going_on, after=page.next), ItemEvents)
        page = await following


async def read_turn_head(store: Gateway, thread_id: str) -> AppTurn | None:
    """Return the open turn as it began, if there is one: its input is in its first event."""
    request = ReadItems(session_id=SessionId(thread_id), open_turn=True)
    page = await store.ask_bulky(request, ItemEvents)
    fold = Fold(thread_id, tells=False)
    for sequence, body in page.events:
        fold.take(sequence, decode_seen(thread_id, sequence, body))
        if fold.turn is not None:
            return fold.turn.shown(thread_id)
    return None


async def read_open_turn(store: Gateway, thread_id: str) -> tuple[Fold, int]:
    """Return the fold of the open turn with all of its text, and the last event in it; it tells what follows."""
    fold = Fold(thread_id, tells=False)
    request = ReadItems(session_id=SessionId(thread_id), open_turn=True)
    first = page = await store.ask_bulky(request, ItemEvents)
    while True:
        for sequence, body in page.events:
            fold.take(sequence, decode_seen(thread_id, sequence, body))
        if not page.next:
            break
        request = ReadItems(session_id=SessionId(thread_id), after=page.next, upto=first.upto)
        page = await store.ask_bulky(request, ItemEvents)
    if not first.turn_id:
        fold = Fold(thread_id, tells=False)
    fold.reach(first.upto)
    for item in fold.open_items:
        await _fill(store, thread_id, item)
    fold.tell_from_now()
    return fold, first.upto


def decode_seen(thread_id: str, sequence: int, body: bytes) -> AnySeen:
    """Return an event as threads see it; of one that cannot be read, one that does nothing."""
    try:
        return seen_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        _log.error("event %d of %s cannot be read: %s", sequence, thread_id, error)
        return SeenAudio(id="", timestamp=0.0)


def _decode_all(thread_id: str, page: ItemEvents) -> list[AnySeen]:
    """Return the events of a page: all at once, unless one of them cannot be read."""
    try:
        return _decode_list(b"[%b]" % b",".join([body for _, body in page.events]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [decode_seen(thread_id, sequence, body) for sequence, body in page.events]


async def _shown(
    store: Gateway, thread_id: str, items: list[Item], max_bytes: int
) -> list[msgspec.Raw]:
    """Return items as JSON, as far as they fit, but at least one."""
    shown: list[msgspec.Raw] = []
    size = 0
    for item in items:
        if item.pieces:
            await _fill(store, thread_id, item)
        one = _encode(item.shown())
        size += len(one)
        if shown and size > max_bytes:
            break
        shown.append(msgspec.Raw(one))
    return shown


def _cursor(items: list[Item]) -> str:
    """Return the id of the last item before the first that is open."""
    for number, item in enumerate(items):
        if item.is_open:
            return items[number - 1].id if number else ""
    return items[-1].id if items else ""


async def _fill(store: Gateway, thread_id: str, item: Item) -> None:
    """Read the text of a message that has not been read."""
    for span in item.unread:
        item.fill(span, await _read_text(store, thread_id, item.turn_id, span))


async def _read_text(store: Gateway, thread_id: str, turn_id: str, span: Span) -> str:
    texts: list[str] = []
    after, last = span[0] - 1, span[1]
    while after < last:
        request = ReadPage(
            session_id=SessionId(thread_id),
            after=after,
            upto=last,
            max_events=SPAN_EVENTS,
            max_bytes=SPAN_BYTES,
            skip_damaged=True,
        )
        page = await store.ask_bulky(request, Page)
        for body in page.bodies:
            event = decode_seen(thread_id, page.first, body)
            if isinstance(event, SeenDelta) and event.turn_id == turn_id:
                texts.append(event.delta)
        reached = max(page.first + len(page.bodies) - 1, page.damaged_upto, page.lost_upto)
        if reached <= after:
            break
        after = reached
    return "".join(texts)
