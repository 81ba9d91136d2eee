"""The JSON Schema of stored events, made from the structs that are stored (L 3); pure.

What a schema cannot say is left out: the limits in bytes, of depth, and of what letters a text may have.
"""

from __future__ import annotations

from typing import Final, get_args

from msgspec import inspect

from roost.schemas.canonical import MAX_SAFE
from roost.schemas.event import AnyEvent, ToolCallFailed
from roost.schemas.json_schema import DRAFT, Definitions, Schema, bounded, link
from roost.schemas.recovery_codes import FIELDS, ROWS

_SAFE: Final[Schema] = {"type": "integer", "minimum": -MAX_SAFE, "maximum": MAX_SAFE}
_NUMBER: Final[Schema] = {"anyOf": [_SAFE, {"type": "number", "not": {"type": "integer"}}]}
_VALUE: Final[Schema] = {
    "anyOf": [
        {"type": ["null", "boolean", "string"]},
        link("Number"),
        {"type": "array", "items": link("Value")},
        {"type": "object", "additionalProperties": link("Value")},
    ]
}


class _Definitions(Definitions):
    """Numbers are those that every reader has; a stored event has its version and its sequence."""

    anything = link("Value")
    always = frozenset(("version", "sequence"))

    def scalar(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.IntType(ge=least):
                return {**_SAFE, "minimum": -MAX_SAFE if least is None else least}
            case inspect.FloatType(ge=least):
                return bounded({"allOf": [link("Number")]}, "imum", least, None)
            case inspect.StrType(pattern=str(pattern)):
                return {**super().scalar(kind), "pattern": pattern}
            case _:
                return super().scalar(kind)


def events_schema() -> Schema:
    """Return the schema of an event with its sequence."""
    maker = _Definitions()
    links = [maker.ref(kind) for kind in get_args(AnyEvent)]
    made = maker.made
    made["Number"], made["Value"] = _NUMBER, _VALUE
    failed = made[ToolCallFailed.__name__]
    assert isinstance(failed, dict)
    failed["anyOf"] = _recovery()
    return {
        "$schema": DRAFT,
        "$id": "urn:roost:stored-event",
        "title": "Roost stored event",
        "oneOf": links,
        "definitions": made,
    }


def _recovery() -> list[Schema]:
    """Return the rows of the recovery table, and that there is none."""
    none: Schema = {"not": {"anyOf": [{"required": [name]} for name in FIELDS]}}
    names = ("error_code", *FIELDS)
    rows: list[Schema] = [
        {
            "properties": {n: {"const": v} for n, v in zip(names, row, strict=True)},
            "required": list(names),
        }
        for row in sorted(ROWS)
    ]
    return [none, *rows]
