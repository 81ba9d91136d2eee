"""Params of the thread door from bytes to a struct; what is not known is ignored (T 1.6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument
from roost.schemas.rpc import NO_PARAMS
from roost.schemas.thread import InitializeParams, NoParams

if TYPE_CHECKING:
    from roost.schemas.daemon import Params

MAX_INTEGER = 2**63 - 1
_NOTHING = NoParams()
_EMPTY = msgspec.Raw(b"{}")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")

_decoders: dict[type[Params], msgspec.json.Decoder[Params]] = {}


def decode_thread_params(method: str, shape: type[Params], raw: msgspec.Raw) -> Params:
    """Return the params of a request; those that are absent are as good as empty ones.

    Raises:
        InvalidArgument: a member is wrong or missing, or they are no object.
        DaemonError: with `PARSE_ERROR`, what looked like an object is not JSON.
    """
    if raw is NO_PARAMS:
        raw = _EMPTY
    if shape is NoParams:
        return _no_params(method, raw)
    if bytes(raw)[:1] != b"{":
        raise InvalidArgument(f"{method} params must be an object", {"path": ""})
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        return _unusual(method, shape, raw, str(error))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise DaemonError("PARSE_ERROR", "invalid JSON") from None


def _no_params(method: str, raw: msgspec.Raw) -> Params:
    if method == "schema/export" and raw is not _EMPTY and raw_object(raw) != {}:
        raise InvalidArgument(f"{method} has no params", {"path": ""})
    return _NOTHING


def raw_object(raw: msgspec.Raw) -> dict[str, object] | None:
    """Return JSON as an object, or None for what is none."""
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _unusual(method: str, shape: type[Params], raw: msgspec.Raw, reason: str) -> Params:
    """Return params with an integer spelled as 1.0, or larger than any that is kept; of a greeting, with members that are null."""
    try:
        value = _whole(msgspec.json.decode(raw))
        if shape is InitializeParams:
            value = _without_nulls(value)
        return msgspec.convert(value, shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _explained(method, reason) from None


def _without_nulls(value: object) -> object:
    """Return an object without its members that are null, and without those of its capabilities: many clients send them so."""
    if not isinstance(value, dict):
        return value
    found = {name: one for name, one in cast("dict[str, object]", value).items() if one is not None}
    if "capabilities" in found:
        found["capabilities"] = _without_nulls(found["capabilities"])
    return found


def _whole(value: object) -> object:
    match value:
        case bool():
            return value
        case float() if value.is_integer():
            return min(int(value), MAX_INTEGER)
        case int():
            return min(value, MAX_INTEGER)
        case list():
            return [_whole(item) for item in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {name: _whole(item) for name, item in members.items()}
        case _:
            return value


def _explained(method: str, reason: str) -> InvalidArgument:
    text, _, path = reason.partition(" - at `$")
    steps = [name or index for name, index in _STEP.findall(path.rstrip("`"))]
    where = f" param '{'.'.join(steps)[:64]}'" if steps else ""
    pointer = "".join(f"/{name}" for name in steps)
    return InvalidArgument(f"{method}{where}: {text[:128]}", {"path": pointer})
