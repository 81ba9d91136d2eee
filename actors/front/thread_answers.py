"""Results that are as long as a client's line at most: pages end earlier, and one thing that is too long is cut (T 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.front.thread_pages import LEAST_BYTES
from roost.actors.threads.items import OPEN
from roost.actors.threads.shorten import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.front.thread_pages import ItemsPage
    from roost.schemas.thread_results import AppThread, AppTurn

LEAST_LINE = 2 * LEAST_BYTES
"""Whoever asks for shorter lines gets lines of this length."""
HEAD_PART = 4
"""The thread, and the turn, take at most this part of a line."""
AROUND = 1024
"""What is around the thread, the turn and the items of a page."""

_encode = msgspec.json.Encoder().encode


class _Known(msgspec.Struct, frozen=True):
    id: str
    status: str


_known = msgspec.json.Decoder(_Known).decode


def page_answer(
    page: ItemsPage,
    thread: AppThread,
    turn: AppTurn | None,
    further: dict[str, object],
    line_bytes: int,
) -> msgspec.Raw:
    """Return the result of a page: its items are JSON already."""
    result: dict[str, object] = {"thread": _short(thread, line_bytes), "items": page.items}
    if turn is not None:
        result["activeTurn"] = _short(turn, line_bytes)
    cursor, more = page.cursor, page.more
    if line_bytes:
        heads = sum(len(_encode(one)) for name, one in result.items() if name != "items")
        items = _fitting_items(page.items, line_bytes - AROUND - heads)
        result["items"] = items
        if len(items) < len(page.items):
            cursor, more = _cursor(items), True
    result["asOfSequence"] = page.upto
    if cursor:
        result["cursor"] = cursor
    if more:
        result["hasMore"] = True
    return msgspec.Raw(_encode({**result, **further}))


def fitting_threads(found: Sequence[AppThread], line_bytes: int) -> tuple[AppThread, ...]:
    """Return as many threads as fit into a client's line, but at least one; who wants more asks for them by `offset`."""
    left = line_bytes - LEAST_BYTES
    for number, thread in enumerate(found if line_bytes else ()):
        left -= len(_encode(thread)) + 1
        if left < 0 and number:
            return tuple(found[:number])
    return tuple(found)


def page_bytes(line_bytes: int, most: int) -> int:
    """Return how many bytes of items a page has at most."""
    return min(most, line_bytes - LEAST_BYTES) if line_bytes else most


def _short(shown: AppThread | AppTurn, line_bytes: int) -> object:
    """Return a thread or a turn; one that leaves too little of the line to the items is cut."""
    if not line_bytes:
        return shown
    name = "thread" if hasattr(shown, "ephemeral") else "turn"
    room = line_bytes // HEAD_PART
    encoded = shortened(_encode({name: shown}), room)
    return msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])[name]


def _fitting_items(items: list[msgspec.Raw], room: int) -> list[msgspec.Raw]:
    """Return the first items that fit, or the first one, cut."""
    kept: list[msgspec.Raw] = []
    for item in items:
        room -= len(bytes(item)) + 1
        if room < 0:
            break
        kept.append(item)
    if kept or not items:
        return kept
    room += len(bytes(items[0])) + 1
    whole = shortened(b'{"item":%b}' % bytes(items[0]), room)
    return [msgspec.json.decode(whole, type=dict[str, msgspec.Raw])["item"]]


def _cursor(items: list[msgspec.Raw]) -> str:
    """Return the id of the last item before the first that is open."""
    found = ""
    for item in items:
        known = _known(item)
        if known.status in OPEN:
            break
        found = known.id
    return found
