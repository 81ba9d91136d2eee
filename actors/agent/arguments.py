"""Whether the arguments of a call can be stored: the rules of L 3 and 4, without their canonical form; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.agent.runner import CallRequest
from roost.schemas.event import MAX_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAFE = 2**53 - 1
MAX_DEPTH = 64
# A float may be up to four bytes longer in canonical form than in ours.
ROOM_FOR_FLOATS = 256

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


def storable(request: CallRequest) -> CallRequest:
    """Return the request, or one with a mark in place of arguments that cannot be stored."""
    if request.fault:
        return faulty(request.name, request.fault)
    if not _is_storable(request.args, MAX_DEPTH):
        return faulty(request.name, "invalid arguments")
    if len(_encode(request.args)) > MAX_VALUE_BYTES - ROOM_FOR_FLOATS:
        return faulty(request.name, "payload too large")
    return request


def from_text(name: str, text: str) -> CallRequest:
    """Return the call whose arguments a model gave as text."""
    if len(text.encode()) > MAX_VALUE_BYTES:
        return faulty(name, "payload too large")
    try:
        return CallRequest(name, _decode(text or "{}"))
    except msgspec.ValidationError:
        return faulty(name, "invalid arguments")
    except (msgspec.DecodeError, RecursionError):
        return faulty(name, "invalid JSON")


def faulty(name: str, fault: str) -> CallRequest:
    """Return a call without usable arguments."""
    return CallRequest(name, {"__parse_error": fault}, fault)


def is_storable_result(value: object) -> bool:
    """Return whether a tool's result can be stored."""
    try:
        return len(_encode(value)) <= MAX_VALUE_BYTES and _is_storable(value, MAX_DEPTH)
    except (TypeError, ValueError, RecursionError):
        return False


def _is_storable(value: object, depth: int) -> bool:
    match value:
        case bool() | None | str():
            return True
        case int():
            return abs(value) <= MAX_SAFE
        case float():
            return math.isfinite(value) and (not value.is_integer() or abs(value) <= MAX_SAFE)
        case dict():
            members = cast("dict[object, object]", value).values()
            return depth > 0 and all(_is_storable(member, depth - 1) for member in members)
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return depth > 0 and all(_is_storable(item, depth - 1) for item in items)
        case _:
            return False
