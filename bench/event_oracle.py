"""What an event's JSON Schema says of a text, and what it cannot say: the judge of our judge.

It shares no code with `roost.schemas.validation`, and needs the schema and the package jsonschema-rs.
"""

from __future__ import annotations

import copy
import json
import math
from typing import TYPE_CHECKING, cast

import jsonschema_rs

from bench.event_cases import canonical_size

if TYPE_CHECKING:
    from pathlib import Path

MAX_DEPTH = 128
LIMITS = {
    ("tool.call.requested", "tool_args"): 65_536,
    ("tool.approval.requested", "tool_args"): 65_536,
    ("tool.call.completed", "result"): 65_536,
}


class Oracle:
    """Judges texts with the schema of stored events, and with the same without `sequence` for drafts."""

    def __init__(self, schema: Path) -> None:
        self.schema = json.loads(schema.read_bytes())
        draft = copy.deepcopy(self.schema)
        del draft["$defs"]["base"]["properties"]["sequence"]
        draft["$defs"]["base"]["required"].remove("sequence")
        self._stored = jsonschema_rs.Draft202012Validator(self.schema)
        self._draft = jsonschema_rs.Draft202012Validator(draft)

    def accepts(self, text: bytes, *, stored: bool) -> bool:
        """Return whether the text is an event."""
        try:
            value: object = json.loads(
                text.decode(), parse_constant=_refuse, parse_int=lambda text: int(text[:5000])
            )
        except (ValueError, RecursionError):
            return False
        if not _can_be_said(value, MAX_DEPTH):
            return False
        schema = self._stored if stored else self._draft
        return schema.is_valid(value) and _fits(cast("dict[str, object]", value))


def _refuse(text: str) -> object:
    raise ValueError(text)


def _can_be_said(value: object, depth: int) -> bool:
    """Return whether there is nothing in a value that a schema does not see: surrogates, infinities, depth."""
    match value:
        case str():
            return not any("\ud800" <= letter <= "\udfff" for letter in value)
        case float():
            return math.isfinite(value)
        case list():
            items = cast("list[object]", value)
            return depth > 0 and all(_can_be_said(item, depth - 1) for item in items)
        case dict():
            members = cast("dict[str, object]", value)
            said = (_can_be_said(x, 0) and _can_be_said(y, depth - 1) for x, y in members.items())
            return depth > 0 and all(said)
        case _:
            return True


def _fits(event: dict[str, object]) -> bool:
    for (kind, field), limit in LIMITS.items():
        if event["type"] == kind and canonical_size(event[field]) > limit:
            return False
    return canonical_size(event) <= 1_048_576
