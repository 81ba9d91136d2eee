"""Whether a text or an object is an event of format 1.0: by the JSON Schema, and by what it cannot say (L 3, 4); pure.

A verdict names the first breach in the order of L 4.1 by its JSON Pointer, and repeats no value. An ordinary text is
judged by structs; everything else, and every refusal, by the checks of `roost.schemas.shapes`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn, Union, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from roost.schemas import canonical, recovery_codes
from roost.schemas.canonical import MAX_DEPTH, NotCanonical
from roost.schemas.event import MAX_EVENT_BYTES, MAX_VALUE_BYTES, AnyEvent, Event, JsonObject
from roost.schemas.shapes import SHAPES, Faults, check_fields, pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

INCOMPATIBLE: Final = "EVENT_SCHEMA_INCOMPATIBLE"
NOT_DURABLE: Final = "INVALID_DURABLE_VALUE"
TOO_LARGE: Final = "EVENT_PAYLOAD_TOO_LARGE"

# No `,"sequence":9007199254740991` is longer.
SEQUENCE_BYTES: Final = 32


class StoredForm(msgspec.Struct, frozen=True):
    """An event that was accepted; `body` is its compact JSON without `sequence`, which is 0 for a draft."""

    id: str
    type: str
    session_id: str
    turn_id: str
    sequence: int
    body: bytes


class Verdict(msgspec.Struct, frozen=True):
    """The event if it is accepted; else a code, the JSON Pointer of the first breach, and a sentence."""

    ok: bool
    code: str = ""
    path: str = ""
    message: str = ""
    event: StoredForm | None = None


NOT_UTF8: Final = Verdict(ok=False, code=INCOMPATIBLE, path="/", message="not UTF-8")


class _Breach(Exception):
    def __init__(self, path: str, message: str, code: str = INCOMPATIBLE) -> None:
        super().__init__(message)
        self.verdict = Verdict(ok=False, code=code, path=path, message=message)


def judge(line: bytes | str, *, stored: bool = True) -> Verdict:
    """Return the verdict on a JSON text, as a stored event or as a draft; never raises."""
    try:
        text = line.encode() if isinstance(line, str) else line
    except UnicodeError:
        return NOT_UTF8
    found = _ordinary(text, stored=stored)
    return Verdict(ok=True, event=found) if found else judge_exactly(text, stored=stored)


def judge_exactly(text: bytes, *, stored: bool = True) -> Verdict:
    """Return the verdict on a JSON text without the shortcut for ordinary events; never raises."""
    try:
        return Verdict(ok=True, event=_judge(_parsed(text), stored=stored))
    except UnicodeError:
        return NOT_UTF8
    except _Breach as breach:
        return breach.verdict


def judge_draft(draft: object) -> Verdict:
    """Return the verdict on a draft in memory; never raises."""
    try:
        return Verdict(ok=True, event=_judge(draft, stored=False, in_memory=True))
    except _Breach as breach:
        return breach.verdict


def _strict(kind: type[Event]) -> type[Event]:
    """Return a type of event without defaults for what must be there, that keeps apart what canonical JSON does."""
    number = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
    fields: list[tuple[str, object] | tuple[str, object, object]] = [
        ("version", Literal["1.0"]),
        ("timestamp", int | float),
        ("metadata", JsonObject | UnsetType, UNSET),
    ]
    if "cost_usd" in kind.__struct_fields__:
        fields.append(("cost_usd", number | UnsetType | None, UNSET))
    made = msgspec.defstruct(
        kind.__name__,
        cast("list[tuple[str, type]]", fields),
        bases=(kind,),
        tag=kind.__struct_config__.tag,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Event]", made)


_decode: Final = cast(
    "msgspec.json.Decoder[Event]",
    msgspec.json.Decoder(Union[tuple(_strict(kind) for kind in AnyEvent.__args__)]),  # noqa: UP007 - made at run time
).decode
_encode: Final = msgspec.json.Encoder().encode
# Numbers that need a closer look: 16 digits before the point, an exponent, an integer that is spelled as a float.
_odd_number: Final = re.compile(rb"[\[:,]-?(?:[0-9]{16}|[0-9.]+e|[0-9]+\.0[,\]}])").search


def _ordinary(text: bytes, *, stored: bool) -> StoredForm | None:
    """Return an event that is certainly right; None says nothing."""
    try:
        found = _decode(text)
        sequence = 0 if isinstance(found.sequence, UnsetType) else found.sequence
        if (sequence > 0) is not stored or sequence > canonical.MAX_SAFE:
            return None
        timestamp = int(found.timestamp) if found.timestamp % 1 == 0 else found.timestamp
        body = _encode(msgspec.structs.replace(found, sequence=UNSET, timestamp=timestamp))
    except (msgspec.DecodeError, RecursionError, OverflowError):
        return None
    if (
        len(body) > MAX_VALUE_BYTES - SEQUENCE_BYTES
        or body.count(b"{") + body.count(b"[") > MAX_DEPTH
        or (b"reason_code" in body or b"recovery_code" in body or b"doc_url" in body)
        or _odd_number(body)
    ):
        return None
    kind = str(found.__struct_config__.tag)
    return StoredForm(found.id, kind, found.session_id, found.turn_id or "", sequence, body)


def _parsed(text: bytes) -> object:
    try:
        return _parser.decode(text.decode())
    except RecursionError:
        raise _Breach("/", "nested too deep") from None
    except json.JSONDecodeError:
        raise _Breach("/", "not JSON") from None


def _integer(digits: str) -> int:
    """Return an integer, or an unsafe one in place of one of any length."""
    return int(digits) if len(digits) < 20 else 10**20


def _no_constant(_: str) -> NoReturn:
    raise _Breach("/", "not JSON")


_parser: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)


def _judge(found: object, *, stored: bool, in_memory: bool = False) -> StoredForm:
    if not isinstance(found, dict):
        raise _Breach("/", "not an object")
    event = cast("dict[str, object]", found)
    _check_recovery(event)
    _check_base(event, stored=stored)
    _check_shape(event)
    return _stored_form(event, in_memory=in_memory)


def _check_recovery(event: Mapping[str, object]) -> None:
    if not any(field in event for field in recovery_codes.FIELDS):
        return
    row = tuple(event.get(field) for field in ("error_code", *recovery_codes.FIELDS))
    if not all(isinstance(value, str) for value in row) or row not in recovery_codes.ROWS:
        raise _Breach("/reason_code", "not a row of the recovery table")


def _check_base(event: Mapping[str, object], *, stored: bool) -> None:
    for name in ("id", "version", "timestamp", "type", "session_id"):
        if name not in event:
            raise _Breach(f"/{name}", "missing")
    for name in ("id", "session_id", "turn_id"):
        if event.get(name) == "":
            raise _Breach(f"/{name}", "empty")
    if ("sequence" in event) is not stored:
        raise _Breach("/sequence", "missing" if stored else "unexpected in a draft")
    if not isinstance(event["type"], str) or event["type"] not in SHAPES:
        raise _Breach("/type", "not a known type")


def _check_shape(event: Mapping[str, object]) -> None:
    shape = SHAPES[cast("str", event["type"])]
    unexpected = [str(key) for key in event if key not in shape.fields]
    if unexpected:
        raise _Breach(pointer("", min(unexpected)), "unexpected")
    faults: Faults = {}
    check_fields(cast("Mapping[object, object]", event), shape, "", faults)
    if faults:
        first = min(faults)
        raise _Breach(first, faults[first])


class _Subject(msgspec.Struct, frozen=True):
    """A field with a place of its own in the last check."""

    name: str
    limit: int = MAX_EVENT_BYTES


_SUBJECTS: Final = {
    "result": _Subject("workflow_result"),
    "metadata": _Subject("event_metadata"),
    "documents": _Subject("memory_document"),
    "pending_tool_calls": _Subject("pending_tool_call"),
    "tool_args": _Subject("tool_args", MAX_VALUE_BYTES),
}
_TOOL_RESULT: Final = _Subject("tool_result", MAX_VALUE_BYTES)


def _stored_form(event: dict[str, object], *, in_memory: bool) -> StoredForm:
    try:
        normal = cast("dict[str, object]", canonical.normal(event))
        size = canonical.size(normal)
    except NotCanonical as fault:
        _check_subjects(event, in_memory=in_memory)
        raise _Breach("/", str(fault), NOT_DURABLE if in_memory else INCOMPATIBLE) from None
    if size > MAX_VALUE_BYTES:
        _check_subjects(event, in_memory=in_memory)
    if size > MAX_EVENT_BYTES:
        raise _over("/", _Subject("event"), in_memory=in_memory)
    kind = cast("str", normal.pop("type"))
    sequence = cast("int", normal.pop("sequence", 0))
    return StoredForm(
        cast("str", normal["id"]),
        kind,
        cast("str", normal["session_id"]),
        cast("str", normal.get("turn_id", "")),
        sequence,
        _encode({"type": kind, **normal}),
    )


def _check_subjects(event: Mapping[str, object], *, in_memory: bool) -> None:
    for field, subject in _SUBJECTS.items():
        if field not in event:
            continue
        if event["type"] == "tool.call.completed" and field == "result":
            subject = _TOOL_RESULT
        in_process = in_memory and field != "tool_args"
        try:
            # The event around it is a level, too.
            size = canonical.size(event[field], MAX_DEPTH - 1)
        except NotCanonical as fault:
            code = NOT_DURABLE if in_process else INCOMPATIBLE
            raise _Breach(f"/{field}", f"{subject.name}: {fault}", code) from None
        if size > subject.limit:
            raise _over(f"/{field}", subject, in_memory=in_process)


def _over(path: str, subject: _Subject, *, in_memory: bool) -> _Breach:
    message = f"{subject.name} is over {subject.limit:,} bytes"
    return _Breach(path, message, TOO_LARGE if in_memory else INCOMPATIBLE)
