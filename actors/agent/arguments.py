"""Whether the arguments and the result of a call can be stored: the rules of L 3 and 4; pure."""

from __future__ import annotations

import msgspec

from roost.actors.agent.runner import CallRequest
from roost.schemas import canonical
from roost.schemas.canonical import NotCanonical
from roost.schemas.event import MAX_VALUE_BYTES

# Less than an event may have: a call that is still open when its turn is exhausted is stored further inside.
MAX_DEPTH = 64

_decode = msgspec.json.Decoder(dict[str, object]).decode


def storable(request: CallRequest) -> CallRequest:
    """Return the request, or one with a mark in place of arguments that cannot be stored."""
    if request.fault:
        return faulty(request.name, request.fault)
    try:
        size = canonical.size(request.args, MAX_DEPTH)
    except NotCanonical:
        return faulty(request.name, "invalid arguments")
    return request if size <= MAX_VALUE_BYTES else faulty(request.name, "payload too large")


def from_text(name: str, text: str) -> CallRequest:
    """Return the call whose arguments a model gave as text."""
    if len(text.encode(errors="replace")) > MAX_VALUE_BYTES:
        return faulty(name, "payload too large")
    try:
        return CallRequest(name, _decode(text or "{}"))
    except msgspec.ValidationError:
        return faulty(name, "invalid arguments")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return faulty(name, "invalid JSON")


def faulty(name: str, fault: str) -> CallRequest:
    """Return a call without usable arguments."""
    return CallRequest(name, {"__parse_error": fault}, fault)


def is_storable_result(value: object) -> bool:
    """Return whether a tool's result can be stored."""
    try:
        return canonical.size(value, MAX_DEPTH) <= MAX_VALUE_BYTES
    except NotCanonical:
        return False
