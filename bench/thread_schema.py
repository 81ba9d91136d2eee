"""Whether what the thread door sends is of the schema that it exports; and requests, right and wrong, for its decoders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import jsonschema_rs

from roost.actors.errors import DaemonError
from roost.actors.front.envelope import NotARequest
from roost.actors.front.thread_params import decode_thread_params
from roost.actors.front.thread_wire import Incoming, decode_message
from roost.schemas.thread import REQUESTS
from roost.schemas.thread_export import (
    client_request,
    schema_of,
    server_notification,
    server_request,
)
from roost.schemas.thread_results import RESULTS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

Json = dict[str, object]
# What only this door takes, and what only a description refuses (T 3.13).
LENIENT = ("capabilities",)


class NotOfTheSchema(AssertionError):
    """The daemon sent what its own schema does not know."""


class Check:
    """Call it with each message of the daemon, and the method that an answer is to."""

    def __init__(self) -> None:
        self._notification = _validator(server_notification())
        self._request = _validator(server_request())
        self._results = {
            name: _validator(schema_of(shape.__name__, shape)) for name, shape in RESULTS.items()
        }

    def __call__(self, method: str | None, message: Json) -> None:
        """Do nothing if a message is right.

        Raises:
            NotOfTheSchema: it is not.
        """
        if "error" in message:
            return
        if "method" in message:
            validator, value = self._request if "id" in message else self._notification, message
        else:
            validator = self._results[str(method)]
            value = cast("Json", message["result"])
        faults = [f"{e.instance_path}: {e.message}" for e in validator.iter_errors(value)]
        if faults or _has_null(value):
            raise NotOfTheSchema(f"{faults[:3]}: {json.dumps(message)[:1000]}")


def struct_takes(message: Json) -> bool:
    """Return whether the door's own decoders take the params of a request."""
    try:
        found, _ = decode_message(json.dumps({"id": 1, **message}).encode())
        if not isinstance(found, Incoming) or found.method not in REQUESTS:
            return False
        decode_thread_params(found.method, REQUESTS[found.method], found.params)
    except (NotARequest, DaemonError):
        return False
    return True


def schema_takes(validator: jsonschema_rs.Draft202012Validator, message: Json) -> bool:
    """Return what the schema says of a request; without params those that need none are as good as empty (T 1.6)."""
    if message.get("params", None) is None and message.get("method") in (
        "thread/start",
        "thread/list",
        "model/list",
    ):
        message = {**message, "params": {}}
    elif "params" in message and message["params"] is None:
        message = {name: value for name, value in message.items() if name != "params"}
    return validator.is_valid(message)


def cases(rng: random.Random, schema: Mapping[str, object], count: int) -> list[Json]:
    """Return requests: by the schema, and with one thing changed."""
    messages = cast("list[Json]", schema["oneOf"])
    defs = cast("Mapping[str, Json]", schema["$defs"])
    found: list[Json] = []
    for _ in range(count):
        message = cast("Json", _value(rng, rng.choice(messages), defs))
        if rng.random() < 0.6:
            _spoil(rng, message)
        found.append(message)
    return found


def request_validator() -> jsonschema_rs.Draft202012Validator:
    """Return the judge of requests."""
    return _validator(client_request())


def _validator(schema: object) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(json.dumps(schema)))


def _has_null(value: object) -> bool:
    """Absent members are left out, never null; what is only passed on may hold nulls (T 1.1)."""
    if isinstance(value, dict):
        members = cast("Json", value)
        free = ("content", "arguments", "delta")
        return any(v is None or _has_null(v) for k, v in members.items() if k not in free)
    if isinstance(value, list):
        return any(_has_null(one) for one in cast("list[object]", value))
    return False


def _value(rng: random.Random, schema: Mapping[str, object], defs: Mapping[str, Json]) -> object:
    if "$ref" in schema:
        return _value(rng, defs[str(schema["$ref"]).rpartition("/")[2]], defs)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(cast("list[object]", schema["enum"]))
    kind = schema["type"]
    if isinstance(kind, list):
        kind = rng.choice(cast("list[str]", kind))
    match kind:
        case "object":
            required = cast("list[str]", schema.get("required", []))
            properties = cast("Mapping[str, Json]", schema["properties"])
            names = [n for n in properties if n in required or rng.random() < 0.6]
            return {name: _value(rng, properties[name], defs) for name in names}
        case "array":
            items = cast("Json", schema["items"])
            return [_value(rng, items, defs) for _ in range(rng.randrange(3))]
        case "string":
            return rng.choice(["", "a", "thread ☃", "x" * 50])
        case "integer":
            return rng.choice([0, 1, 7, 2**40, 3.0])
        case "boolean":
            return rng.random() < 0.5
        case _:
            return None


_WRONG: tuple[object, ...] = (None, True, -1, 1.5, "text", [], {}, ["a"], {"a": 1}, 0)


def _spoil(rng: random.Random, message: Json) -> None:
    """Change one member somewhere to anything, take it away, or add one."""
    places = [found for found in _objects(message) if found]
    place = rng.choice(places)
    name = rng.choice(list(place))
    match rng.randrange(3):
        case 0:
            del place[name]
        case 1:
            place[name] = rng.choice(_WRONG)
        case _:
            place["surplus"] = rng.choice(_WRONG)


def _objects(value: object) -> list[Json]:
    found: list[Json] = []
    if isinstance(value, dict):
        found.append(cast("Json", value))
        for member in cast("Json", value).values():
            found += _objects(member)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            found += _objects(item)
    return found
