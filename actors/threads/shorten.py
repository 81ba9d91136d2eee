"""JSON made shorter, so that it fits into a client's line: long texts are cut, and what is not whole says so. Pure.

What is short stays as it is; what is long shares the room that is left. Names of members are never cut, and numbers are
written as they were.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MARK: Final = "truncated"
MORE: Final = "…"
_MARK_BYTES: Final = len(f',"{MARK}":true')
_MAX_DEPTH: Final = 8
_LEAST_SHARE: Final = 32
"""A list whose parts would get less than this is cut at its end instead."""
_WHOLES: Final = ("thread", "turn", "activeTurn", "item")
_LISTS: Final = ("items", "threads")

_Object = dict[str, object]
_encode = msgspec.json.Encoder().encode


def shortened(encoded: bytes, limit: int) -> bytes:
    """Return the JSON of a result or of params, which is an object, in at most so many bytes, if that can be.

    A thread, a turn or an item in it that is not whole has `truncated`; the whole has it if it is something else.
    """
    if len(encoded) <= limit:
        return encoded
    try:
        return _shortened(encoded, limit)
    except (ValueError, RecursionError, AttributeError):
        # Nothing that the daemon makes; a line that is too long would end the client's connection.
        return b'{"truncated":true}'


def pieces(text: str, limit: int) -> Iterator[str]:
    """Return a text in pieces whose JSON has at most so many bytes; an empty one is one piece."""
    while len(_encode(text)) > limit:
        at = max(longest(text, limit), 1)
        yield text[:at]
        text = text[at:]
    yield text


def _shortened(encoded: bytes, limit: int) -> bytes:
    whole = cast("_Object", json.loads(encoded, parse_int=_number, parse_float=_number))
    listed = [cast("list[object]", whole.get(name) or []) for name in _LISTS]
    marks = 1 + len(_WHOLES) + sum(map(len, listed))
    fitted = cast("_Object", _fit(whole, limit - marks * _MARK_BYTES, 0))
    _mark(whole, fitted)
    return _encode(fitted)


def _number(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _size(value: object) -> int:
    return len(_encode(value))


def _fit(value: object, room: int, depth: int) -> object:
    """Return a value that takes at most so many bytes; the very same one if it does."""
    if _size(value) <= room:
        return value
    if isinstance(value, str):
        return _cut(value, room)
    if depth > _MAX_DEPTH:
        return MORE
    if isinstance(value, dict):
        return _fit_object(cast("_Object", value), room, depth)
    if isinstance(value, list):
        return _fit_list(cast("list[object]", value), room, depth)
    return None


def _fit_object(value: _Object, room: int, depth: int) -> _Object:
    names = sum(_size(name) + 2 for name in value) + 1
    sizes = [_size(member) for member in value.values()]
    share = _share(sizes, room - names)
    if share >= _LEAST_SHARE or names + sum(min(size, share) for size in sizes) <= room:
        return {name: _fit(member, share, depth + 1) for name, member in value.items()}
    kept: _Object = {}
    room -= 2
    for (name, member), size in zip(value.items(), sizes, strict=True):
        room -= _size(name) + size + 2
        if room < 0:
            break
        kept[name] = member
    return kept


def _fit_list(value: list[object], room: int, depth: int) -> list[object]:
    sizes = [_size(one) for one in value]
    share = _share(sizes, room - len(value) - 1)
    if share >= _LEAST_SHARE:
        return [_fit(one, share, depth + 1) for one in value]
    kept: list[object] = []
    room -= 2
    for one, size in zip(value, sizes, strict=True):
        room -= size + 1
        if room < 0:
            break
        kept.append(one)
    return kept


def _share(sizes: Sequence[int], room: int) -> int:
    """Return how much each may take at most, so that all together fit: what the short ones leave is for the long ones."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(room // left, 0)
        room -= size
        left -= 1
    return max(room, 0)


def _cut(text: str, room: int) -> str:
    return text[: longest(text, room - len(MORE.encode()))] + MORE


def longest(text: str, room: int) -> int:
    """Return how many characters of a text fit into so many bytes of JSON; 0 also if not even an empty one does."""
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        if len(_encode(text[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _mark(whole: _Object, fitted: _Object) -> None:
    """Note at each thread, turn and item that it is not whole; at the message itself if it is nothing of these."""
    if fitted is whole:
        return
    found = False
    for name in _WHOLES:
        found |= _mark_one(whole.get(name), fitted.get(name))
    for name in _LISTS:
        before = cast("list[object]", whole.get(name) or [])
        after = cast("list[object]", fitted.get(name) or [])
        for one, other in zip(before, after, strict=False):
            found |= _mark_one(one, other)
        found &= len(before) == len(after)
    if not found:
        fitted[MARK] = True


def _mark_one(before: object, after: object) -> bool:
    if after is before or not isinstance(after, dict):
        return False
    made = cast("_Object", after)
    made[MARK] = True
    content = made.get("content")
    if isinstance(content, dict):
        _say_alike(made, cast("_Object", content))
    return True


def _say_alike(item: _Object, content: _Object) -> None:
    """An agent's message has its text twice: both are as long as the shorter one."""
    texts = [one["text"] for one in (item, content) if isinstance(one.get("text"), str)]
    if len(texts) == 2:
        item["text"] = content["text"] = min(cast("list[str]", texts), key=len)
