"""The canonical form of JSON values: what byte limits measure, and by what two events are the same (L 4); pure.

No white space, keys sorted by UTF-16 code units, non-ASCII raw, numbers as ECMAScript prints them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAFE: Final = 2**53 - 1
MAX_DEPTH: Final = 128
"""How many arrays and objects may be inside each other, the outermost included."""

_encode = msgspec.json.Encoder().encode


class NotCanonical(ValueError):
    """The value is no JSON of the format, or nested too deep; the text says why and repeats nothing of it."""


def encode(value: object, depth: int = MAX_DEPTH) -> bytes:
    """Return the canonical form of a JSON value, or raise `NotCanonical`."""
    return _encode(_prepared(value, depth))


def size(value: object, depth: int = MAX_DEPTH) -> int:
    """Return how many bytes the canonical form takes, or raise `NotCanonical`."""
    return len(encode(value, depth))


def is_unsafe(value: object) -> bool:
    """Return whether a number is an integer, judged by value, that a double may not hold exactly."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) > MAX_SAFE
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_SAFE


def normal(value: object) -> object:
    """Return a copy with every integral float as an integer, or raise `NotCanonical`."""
    return _normal(value, MAX_DEPTH)


def _normal(value: object, depth: int) -> object:
    match value:
        case str():
            _check_text(value)
            return value
        case bool() | None:
            return value
        case int() | float():
            return _normal_number(value)
        case dict() | list() | tuple() if depth <= 0:
            raise NotCanonical("nested too deep")
        case dict():
            members = cast("dict[object, object]", value)
            return {_key(key): _normal(member, depth - 1) for key, member in members.items()}
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return [_normal(item, depth - 1) for item in items]
        case _:
            raise NotCanonical("not a JSON value")


def _normal_number(value: float) -> int | float:
    if not isinstance(value, int):
        if not math.isfinite(value):
            raise NotCanonical("not a finite number")
        if not value.is_integer():
            return value
    if abs(value) > MAX_SAFE:
        raise NotCanonical("not a safe integer")
    return int(value)


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotCanonical("a lone surrogate") from None


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotCanonical("a key that is no string")
    _check_text(key)
    return key


def _prepared(value: object, depth: int) -> object:
    """Return what the encoder writes canonically: normal numbers, sorted keys, and fixed notation from 1e-6 up."""
    match value:
        case float():
            number = _normal_number(value)
            # The one range where the encoder takes an exponent and ECMAScript does not.
            if 1e-6 <= abs(number) < 1e-5:
                return msgspec.Raw(_fixed(number).encode())
            return number
        case dict() if depth > 0:
            members = cast("dict[object, object]", value)
            return {
                key: _prepared(members[key], depth - 1)
                for key in sorted(map(_key, members), key=_utf16)
            }
        case list() | tuple() if depth > 0:
            return [_prepared(item, depth - 1) for item in cast("Sequence[object]", value)]
        case _:
            return _normal(value, depth)


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _fixed(value: float) -> str:
    digits, exponent = repr(abs(value)).split("e")
    sign = "-" if value < 0 else ""
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits.replace('.', '')}"
