"""Params of a request from bytes to a struct, and the exact words for what is wrong with them (P 4.4).

What is right is decided by the structs. The words are looked for only after msgspec has refused, so a right request
pays nothing for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import inspect

from roost.actors.errors import DaemonError, InvalidArgument
from roost.schemas.daemon import Nothing, Params
from roost.schemas.rpc import NO_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOTHING = Nothing()

WORDS: dict[type[Params], Callable[[Mapping[str, object]], InvalidArgument | None]] = {}
"""Of the methods that have words of their own: what is wrong with the members, if that is known."""

_decoders: dict[type[Params], msgspec.json.Decoder[Params]] = {}
_shapes: dict[type[Params], dict[str, inspect.Field]] = {}
_ENUMERATED = {
    ("tool.approve", "scope"): "once, session, or agent",
    ("elicitation.respond", "kind"): "request_user_input or mcp",
}
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_SAFE_PATH = 20


def decode_params(method: str, shape: type[Params], raw: msgspec.Raw) -> Params:
    """Return the params of a request.

    Raises:
        InvalidArgument: a member is wrong; the text names it, `path` is an RFC 6901 pointer to it.
        DaemonError: with `PARSE_ERROR`, what looked like an object is not JSON.
    """
    if raw is NO_PARAMS and shape is Nothing:
        return NOTHING
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    try:
        found = decoder.decode(raw)
    except msgspec.ValidationError as error:
        return _unusual(method, shape, raw, str(error))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise DaemonError("PARSE_ERROR", "invalid JSON") from None
    if raw is NO_PARAMS:
        raise InvalidArgument("daemon request params must be an object", {"path": ""})
    return found


def _unusual(method: str, shape: type[Params], raw: msgspec.Raw, reason: str) -> Params:
    """Return params with a member given twice, of which the last counts, or with an integer spelled as 1.0."""
    try:
        return msgspec.convert(_whole(msgspec.json.decode(raw)), shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise explain(method, shape, raw, reason) from None


def _whole(value: object) -> object:
    """Return a value with integers for the floats that are whole."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_whole(item) for item in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {name: _whole(item) for name, item in members.items()}
        case _:
            return value


def explain(method: str, shape: type[Params], raw: msgspec.Raw, reason: str) -> InvalidArgument:
    """Return the error for params that msgspec has refused with `reason`."""
    try:
        value = _whole(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return InvalidArgument(f"{method} params are not valid JSON")
    if not isinstance(value, dict):
        return InvalidArgument("daemon request params must be an object", {"path": ""})
    fields = _fields(shape)
    members = cast("Mapping[str, object]", value)
    words = WORDS.get(shape)
    if words is not None and all(key in fields for key in members):
        return words(members) or _nested(method, reason)
    for key, member in members.items():
        field = fields.get(key)
        if field is None:
            return _wrong(f"{method} does not accept param '{_shown(key)}'", key)
        text = _complaint(method, key, field.type, member)
        if text:
            return _wrong(text, key)
    for key, field in fields.items():
        if field.required and key not in members:
            return _wrong(f"{method} requires {key}", key)
    return _nested(method, reason)


def _wrong(text: str, key: str) -> InvalidArgument:
    return InvalidArgument(text, {"path": "/" + _shown(key).replace("~", "~0").replace("/", "~1")})


def _shown(text: str) -> str:
    return text if len(text) <= 64 else text[:64] + "…"


def _fields(shape: type[Params]) -> dict[str, inspect.Field]:
    found = _shapes.get(shape)
    if found is None:
        info = inspect.type_info(shape)
        assert isinstance(info, inspect.StructType)
        found = _shapes[shape] = {field.encode_name: field for field in info.fields}
    return found


def _complaint(method: str, key: str, kind: inspect.Type, value: object) -> str:
    """Return what is wrong with one member at the first level, or nothing."""
    param = f"{method} param '{key}'"
    if key == "content":
        return "" if isinstance(value, str | list) else f"{param} must be a string or array"
    match kind:
        case inspect.Metadata(type=inner):
            return _complaint(method, key, inner, value)
        case inspect.UnionType(types=types) if any(type(t) is inspect.NoneType for t in types):
            return _nullable_complaint(param, types, value)
        case inspect.UnionType():
            right = (isinstance(value, str) and value.strip()) or type(value) is int
            return "" if right else f"{param} must be a string or integer"
        case inspect.StrType():
            return _text_complaint(method, key, value, kind)
        case inspect.LiteralType():
            allowed = _ENUMERATED.get((method, key)) or ", ".join(map(str, kind.values))
            return "" if value in kind.values else f"{param} must be {allowed}"
        case inspect.IntType():
            right = type(value) is int and value >= 1
            return "" if right else f"{param} must be a positive integer"
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"{param} must be a boolean"
        case inspect.ListType(item_type=item):
            filled = isinstance(item, inspect.StrType) and bool(item.min_length)
            return _list_complaint(param, key, value, filled=filled)
        case _:
            return "" if isinstance(value, dict) else f"{param} must be an object"


def _text_complaint(method: str, key: str, value: object, kind: inspect.StrType) -> str:
    if not isinstance(value, str):
        return f"{method} param '{key}' must be a string"
    if kind.pattern and not value.strip():
        return f"{method} requires {key}"
    return f"{method} param '{key}' must not be empty" if kind.min_length and not value else ""


def _nullable_complaint(param: str, types: tuple[inspect.Type, ...], value: object) -> str:
    """Return what is wrong with a text that may be null; of other things that may be, nothing is known here."""
    if value is None or not isinstance(types[0], inspect.StrType):
        return ""
    if not isinstance(value, str):
        return f"{param} must be a string or null"
    return f"{param} must not be empty" if types[0].min_length and not value else ""


def _list_complaint(param: str, key: str, value: object, *, filled: bool) -> str:
    if key == "initialContent":
        return "" if isinstance(value, list) else f"{param} must be an empty array"
    entries = cast("list[object]", value) if isinstance(value, list) else [None]
    if all(isinstance(entry, str) for entry in entries):
        what = "contain empty paths" if key == "roots" else "have empty strings"
        return "" if all(entries) or not filled else f"{param} must not {what}"
    return f"{param} must be an array of strings"


def _nested(method: str, reason: str) -> InvalidArgument:
    """Return the error for something below the first level, or of a kind that has no words of its own."""
    text, _, path = reason.partition(" - at `$")
    steps = _STEP.findall(path.rstrip("`"))[:_SAFE_PATH]
    names = [name or index for name, index in steps]
    pointer = "".join(f"/{name}" for name in names)
    if names[:1] == ["content"]:
        at = f"[{names[1]}]" if len(names) > 1 else ""
        what = "must be a text block" if at else "must not be empty"
        return InvalidArgument(f"{method} param 'content{at}' {what}", {"path": pointer})
    if not names:  # what a struct itself says of all its members together
        return InvalidArgument(f"{method} {_shown(text)}", {"path": ""})
    where = f"param '{_shown('.'.join(names))}'"
    return InvalidArgument(f"{method} {where}: {_shown(text)}", {"path": pointer})
