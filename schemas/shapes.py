"""The shapes of the 25 types of events, field by field, and where an object breaks them (L 2, 3); pure.

The slow and exact form of what the structs of `roost.schemas.event` say: integers are judged by value, and every
breach has its JSON Pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast, get_args

import msgspec

from roost.schemas import event
from roost.schemas.canonical import MAX_DEPTH, is_unsafe

Faults = dict[str, str]
"""JSON Pointers, and what is wrong there."""
Check = Callable[[object, str, Faults], None]


class Shape(msgspec.Struct, frozen=True):
    """The fields of a type, and which of them must be there."""

    fields: Mapping[str, Check]
    required: frozenset[str]


def pointer(path: str, key: object) -> str:
    """Return the JSON Pointer of a member; what no text can hold is replaced."""
    name = str(key).encode(errors="replace").decode()
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _string(at_least: int = 0, at_most: float = math.inf, *, ink: bool = False) -> Check:
    def check(value: object, path: str, faults: Faults) -> None:
        if not isinstance(value, str):
            faults[path] = "not a string"
        elif not at_least <= len(value) <= at_most:
            faults[path] = "too long" if value else "empty"
        elif ink and not event.has_ink(value):
            faults[path] = "blank"

    return check


def _one_of(choices: object) -> Check:
    allowed = get_args(choices)

    def check(value: object, path: str, faults: Faults) -> None:
        if not isinstance(value, str) or value not in allowed:
            faults[path] = "not one of the allowed strings"

    return check


def _or_null(inner: Check) -> Check:
    def check(value: object, path: str, faults: Faults) -> None:
        if value is not None:
            inner(value, path, faults)

    return check


def _integer(minimum: float = -math.inf) -> Check:
    def check(value: object, path: str, faults: Faults) -> None:
        number = _number(value)
        if number is None or number % 1 != 0 or is_unsafe(number):
            faults[path] = "not a safe integer"
        elif number < minimum:
            faults[path] = "too small"

    return check


def _any_number(minimum: float = -math.inf) -> Check:
    def check(value: object, path: str, faults: Faults) -> None:
        number = _number(value)
        if number is None:
            faults[path] = "not a number"
        elif is_unsafe(number):
            faults[path] = "not a safe integer"
        elif number < minimum:
            faults[path] = "too small"

    return check


def _flag(value: object, path: str, faults: Faults) -> None:
    if not isinstance(value, bool):
        faults[path] = "not a boolean"


def _value(value: object, path: str, faults: Faults) -> None:
    """Note the unsafe integers of a free value; what is no JSON has no canonical form, and is noted there."""
    if _holds_unsafe(value, MAX_DEPTH):
        _note_unsafe(value, path, faults, MAX_DEPTH)


def _holds_unsafe(value: object, depth: int) -> bool:
    if isinstance(value, int | float):
        return is_unsafe(value)
    if isinstance(value, dict):
        members = cast("dict[object, object]", value).values()
        return depth > 0 and any(_holds_unsafe(member, depth - 1) for member in members)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return depth > 0 and any(_holds_unsafe(item, depth - 1) for item in items)
    return False


def _note_unsafe(value: object, path: str, faults: Faults, depth: int) -> None:
    if isinstance(value, dict) and depth:
        for key, member in cast("dict[object, object]", value).items():
            _note_unsafe(member, pointer(path, key), faults, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for number, item in enumerate(cast("Sequence[object]", value)):
            _note_unsafe(item, f"{path}/{number}", faults, depth - 1)
    elif isinstance(value, int | float) and is_unsafe(value):
        faults[path] = "not a safe integer"


def _object(value: object, path: str, faults: Faults) -> None:
    if isinstance(value, dict):
        _value(cast("dict[object, object]", value), path, faults)
    else:
        faults[path] = "not an object"


def _objects(value: object, path: str, faults: Faults) -> None:
    if not isinstance(value, list | tuple):
        faults[path] = "not an array"
        return
    for number, item in enumerate(cast("Sequence[object]", value)):
        _object(item, f"{path}/{number}", faults)


def _usage(value: object, path: str, faults: Faults) -> None:
    if isinstance(value, dict):
        check_fields(cast("dict[object, object]", value), _USAGE, path, faults)
    else:
        faults[path] = "not an object"


def check_fields(value: Mapping[object, object], shape: Shape, path: str, faults: Faults) -> None:
    """Note every missing, unexpected and wrong member of an object."""
    for name in shape.required:
        if name not in value:
            faults[f"{path}/{name}"] = "missing"
    for key, member in value.items():
        check = shape.fields.get(key) if isinstance(key, str) else None
        if check is None:
            faults[pointer(path, key)] = "unexpected"
        else:
            check(member, f"{path}/{key}", faults)


_TEXT: Final = _string()
_NAME: Final = _string(1)
_SHORT: Final = _string(1, 200)
_COUNT: Final = _integer(0)
_NULLABLE_TEXT: Final = _or_null(_TEXT)
_USAGE: Final = Shape({"input": _COUNT, "output": _COUNT}, frozenset({"input", "output"}))
_SPENT: Final = {"tokens?": _or_null(_usage), "cost_usd?": _or_null(_any_number(0))}
_CALL: Final = {"turn_id": _NAME, "tool_name": _NAME, "tool_call_id": _NAME}
_FAILED: Final = {
    "turn_id": _NAME,
    "error": _SHORT,
    "error_code?": _TEXT,
    "retryable?": _flag,
    "outcome?": _one_of(event.Outcome),
}


def _version(value: object, path: str, faults: Faults) -> None:
    if not isinstance(value, str) or value != "1.0":
        faults[path] = "not a known version"


_BASE: Final[dict[str, Check]] = {
    "id": _NAME,
    "version": _version,
    "timestamp": _any_number(),
    "type": _TEXT,
    "session_id": _NAME,
    "turn_id?": _NAME,
    "metadata?": _object,
    "sequence?": _integer(1),
}


def _shape(own: Mapping[str, Check]) -> Shape:
    """Return the shape of a type with these fields of its own; a question mark makes one optional."""
    fields = {**_BASE, **own}
    return Shape(
        {name.rstrip("?"): check for name, check in fields.items()},
        frozenset(name for name in fields if not name.endswith("?")),
    )


SHAPES: Final[Mapping[str, Shape]] = {
    kind: _shape(own)
    for kind, own in {
        "session.created": {},
        "session.closed": {"reason?": _NULLABLE_TEXT},
        "user.message": {"content": _TEXT},
        "user.audio.chunk": {"chunk_size_bytes": _integer()},
        "transcript.partial": {"text": _TEXT},
        "transcript.final": {"text": _TEXT},
        "memory.retrieval.started": {"query": _TEXT},
        "memory.retrieval.completed": {"query": _TEXT, "documents": _objects},
        "agent.reasoning.started": {},
        "agent.message.delta": {"delta": _TEXT},
        "agent.message.completed": {"content": _TEXT, **_SPENT},
        "agent.turn.exhausted": {
            "max_iterations": _COUNT,
            "pending_tool_calls": _objects,
            "reason?": _NULLABLE_TEXT,
        },
        "agent.turn.failed": {**_FAILED, "phase?": _one_of(event.Phase)},
        "tool.call.requested": {**_CALL, "tool_args": _object},
        "tool.call.started": _CALL,
        "tool.call.completed": {**_CALL, "result": _value, **_SPENT},
        "tool.call.failed": {
            **_CALL,
            **_FAILED,
            "error_path?": _TEXT,
            "reason_code?": _TEXT,
            "recovery_code?": _TEXT,
            "doc_url?": _TEXT,
        },
        "tool.approval.requested": {
            **_CALL,
            "tool_args": _object,
            "risk": _one_of(event.Risk),
        },
        "tool.approval.approved": _CALL,
        "tool.approval.rejected": {
            **_CALL,
            "error_code": _one_of(event.RejectionCode),
            "reason": _string(1, 200, ink=True),
        },
        "workflow.started": {"workflow_name": _TEXT},
        "workflow.completed": {"workflow_name": _TEXT, "result": _value},
        "workflow.failed": {"workflow_name": _TEXT, "error": _TEXT},
        "cancellation.requested": {"reason": _TEXT},
        "cancellation.completed": {},
    }.items()
}
