"""Messages made from a JSON Schema: right ones of every kind, and ones that were changed in one or two places.

Everything comes from the random source that is passed in, so a seed names its messages. `known` can give values for
members by name, such as ids of real sessions.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Json = dict[str, object]

# fmt: off
TEXTS = (
    "", " ", "a", "x y", "ü", "😀", "\t\n", "\u00a0", "\u2028", "\x00", "null", "1", "2.0", "/nonexistent", "../x", "once", "text", "mcp",
    "é" * 300, "a/b~c", "<b>", "{}", "-1", "\ufeff",
)
WRONG: list[object] = json.loads("""[
    null, true, false, 0, 1, -1, 2, 1.5, 1.0, -0.0, 3.0, 9007199254740992, 9223372036854775808, 1180591620717411303424, 1e300,
    "", " ", "x", "text", "2.0", [], {}, [null], [""], ["x"], [{}], {"a": 1}, {"version": "1.0.0"}, {"type": "text", "text": "x"},
    [{"type": "text", "text": "x"}], [{"type": "image", "text": "x"}], {"type": "websocket"}, {"type": "webrtc"}, {"rows": 1},
    {"name": "x", "transport": "tcp"}
]""")
EXTRA = (
    "extra", "sessionID", "session_id", "SessionId", "", "a/b~c", "ü", "type", "params", "result", "error", "metadata", "id", "limit",
    "__proto__",
)
KEYS = ("a", "", "ü", "x y", "agentId", "0")
# fmt: on
MAX_DEPTH = 3


def resolved(root: Json, schema: Json) -> Json:
    """Return what a schema within `root` says, behind its links."""
    while "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[1]
        schema = cast("dict[str, Json]", root["definitions"])[name]
    return schema


def by_method(root: Json, kind: Literal["requests", "notifications"]) -> dict[str, Json]:
    """Return the schemas of requests or of notifications by method: only the first have an id."""
    found: dict[str, Json] = {}
    for union in cast("list[Json]", root["oneOf"]):
        for one in cast("list[Json]", resolved(root, union).get("oneOf", [])):
            schema = resolved(root, one)
            members = cast("dict[str, Json]", schema.get("properties", {}))
            if ("id" in members) is (kind == "requests"):
                found[str(members["method"]["const"])] = schema
    return found


class Case(NamedTuple):
    """A message and in what way it was made."""

    message: object
    way: str


class Cases:
    """An endless supply of messages for one schema; `known` is asked for the value of a text by method and member."""

    def __init__(
        self, schema: Json, random: Random, known: Callable[[str, str], object] | None = None
    ) -> None:
        self._root = schema
        self._random = random
        self._known = known
        self._method = ""
        self.requests = by_method(schema, "requests")
        self.notifications = by_method(schema, "notifications")
        self._changes = (self._remove, self._add, self._replace, self._bend, self._spoil)

    def request(self, method: str) -> Json:
        """Return a right request."""
        self._method = method
        return cast("Json", self._make(self.requests[method], "", 0))

    def notification(self, method: str) -> Json:
        """Return a right notification."""
        self._method = method
        return cast("Json", self._make(self.notifications[method], "", 0))

    def right(self) -> Case:
        """Return a right message of any kind."""
        random = self._random
        if random.random() < 0.3:
            return Case(self.notification(random.choice(sorted(self.notifications))), "right")
        return Case(self.request(random.choice(sorted(self.requests))), "right")

    def changed(self, message: object) -> Case:
        """Return a copy of a message with one to three changes, most of which make it wrong."""
        changed = copy.deepcopy(message)
        ways: list[str] = []
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            change = self._random.choice(self._changes)
            change(self._some_object(changed))
            ways.append(change.__name__.strip("_"))
        return Case(changed, "+".join(ways))

    def _make(self, schema: object, name: str, depth: int) -> object:
        """Return a value that a schema accepts; `name` is the member that it is for."""
        random = self._random
        if schema is True or not schema:
            return self._anything(depth)
        node = resolved(self._root, cast("Json", schema))
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return random.choice(cast("list[object]", node["enum"]))
        if "type" not in node:
            choice = random.choice(cast("list[object]", node.get("oneOf") or node["anyOf"]))
            return self._make(choice, name, depth)
        kind = node["type"]
        if isinstance(kind, list):
            kind = random.choice(cast("list[str]", kind))
        return self._of_kind(str(kind), node, name, depth)

    def _of_kind(self, kind: str, node: Json, name: str, depth: int) -> object:
        random = self._random
        match kind:
            case "object":
                return self._object(node, depth)
            case "array":
                return self._array(node, name, depth)
            case "string":
                return self._text(name, cast("int", node.get("minLength", 0)))
            case "integer":
                low = cast("int", node.get("minimum", -5))
                return random.choice((low, low + 1, low + 3, 500, 2**40, float(low + 2)))
            case "boolean":
                return random.random() < 0.5
            case "null":
                return None
            case _:
                raise TypeError(f"{node} is of no kind that is used")

    def _object(self, node: Json, depth: int) -> Json:
        random = self._random
        members = cast("Mapping[str, Json]", node.get("properties", {}))
        required = set(cast("list[str]", node.get("required", [])))
        if "anyOf" in node:
            chosen = random.choice(cast("list[Json]", node["anyOf"]))
            required |= set(cast("list[str]", chosen["required"]))
        made: Json = {}
        for name, schema in members.items():
            if name in required or random.random() < 0.4:
                made[name] = self._make(schema, name, depth + 1)
        more = node.get("additionalProperties", True)
        if more is not False and not members:
            for key in random.sample(KEYS, random.choice((0, 0, 1, 2))):
                made[key] = self._make(more, "", depth + 1)
        return made

    def _array(self, node: Json, name: str, depth: int) -> list[object]:
        random = self._random
        low = cast("int", node.get("minItems", 0))
        high = cast("int", node.get("maxItems", low + 3))
        items = node.get("items", True)
        made: list[object] = []
        for number in range(random.randint(low, high)):
            if not isinstance(items, list):
                schema: object = items
            else:
                listed = cast("list[object]", items)
                more = node.get("additionalItems", True)
                schema = listed[number] if number < len(listed) else more
            made.append(self._make(schema, name, depth + 1))
        return made

    def _text(self, name: str, low: int) -> str:
        known = self._known(self._method, name) if self._known else None
        if isinstance(known, str) and len(known) >= low:
            return known
        return self._random.choice([text for text in TEXTS if len(text) >= low])

    def _anything(self, depth: int) -> object:
        roll = self._random.random()
        if depth < MAX_DEPTH and roll < 0.2:
            return {self._random.choice(KEYS): self._anything(depth + 1)}
        if depth < MAX_DEPTH and roll < 0.3:
            return [self._anything(depth + 1)]
        return self._random.choice((None, True, 0, 1.5, -3, "", "x", 2**53))

    def _some_object(self, message: object) -> Json:
        """Return the message, its params, or an object within them."""
        found = objects_in(message)
        params = [one for one in found if one is not message]
        if params and self._random.random() < 0.8:
            return self._random.choice(params)
        return cast("Json", message)

    def _wrong(self) -> object:
        return copy.deepcopy(self._random.choice(WRONG))

    def _remove(self, members: Json) -> None:
        if members:
            del members[self._random.choice(sorted(members))]

    def _add(self, members: Json) -> None:
        members[self._random.choice(EXTRA)] = self._wrong()

    def _replace(self, members: Json) -> None:
        if members:
            members[self._random.choice(sorted(members))] = self._wrong()

    def _bend(self, members: Json) -> None:
        """Put a value of the same kind that may be over an edge."""
        for key in self._random.sample(sorted(members), len(members)):
            value = members[key]
            if isinstance(value, str):
                members[key] = self._random.choice(TEXTS)
            elif isinstance(value, int | float):
                members[key] = self._random.choice((0, -1, 1, value + 0.5, -value, 1.0, 2**64))
            elif isinstance(value, list) and value:
                items = cast("list[object]", value)
                items[self._random.randrange(len(items))] = self._wrong()
            else:
                continue
            return

    def _spoil(self, members: Json) -> None:
        """Give a member the value of another one, or another name."""
        if len(members) < 2:
            return
        one, other = self._random.sample(sorted(members), 2)
        if self._random.random() < 0.5:
            members[one] = copy.deepcopy(members[other])
        else:
            members[one.swapcase()] = members.pop(one)


def objects_in(value: object) -> list[Json]:
    """Return the objects in a value, the outer before the inner ones."""
    found: list[Json] = []
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, dict):
            members = cast("Json", one)
            found.append(members)
            waiting += members.values()
        elif isinstance(one, list):
            waiting += cast("list[object]", one)
    return found
