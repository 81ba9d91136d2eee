"""Texts of events for tests and the fuzz run: right ones of every type, and ones that are wrong in every way we know.

Everything comes from the random source that is passed in, so a seed names its texts.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, cast

from roost.schemas import recovery_codes

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

Json = dict[str, object]

CALL = ("turn_id", "tool_name", "tool_call_id")
FIELDS: dict[str, tuple[str, ...]] = {
    "session.created": (),
    "session.closed": ("reason?",),
    "user.message": ("content",),
    "user.audio.chunk": ("chunk_size_bytes",),
    "transcript.partial": ("text",),
    "transcript.final": ("text",),
    "memory.retrieval.started": ("query",),
    "memory.retrieval.completed": ("query", "documents"),
    "agent.reasoning.started": (),
    "agent.message.delta": ("delta",),
    "agent.message.completed": ("content", "tokens?", "cost_usd?"),
    "agent.turn.exhausted": ("max_iterations", "pending_tool_calls", "reason?"),
    "agent.turn.failed": ("turn_id", "error", "error_code?", "phase?", "retryable?", "outcome?"),
    "tool.call.requested": (*CALL, "tool_args"),
    "tool.call.started": CALL,
    "tool.call.completed": (*CALL, "result", "tokens?", "cost_usd?"),
    "tool.call.failed": (*CALL, "error", "error_code?", "error_path?", "retryable?", "outcome?"),
    "tool.approval.requested": (*CALL, "tool_args", "risk"),
    "tool.approval.approved": CALL,
    "tool.approval.rejected": (*CALL, "rejection_code", "rejection_reason"),
    "workflow.started": ("workflow_name",),
    "workflow.completed": ("workflow_name", "result"),
    "workflow.failed": ("workflow_name", "error"),
    "cancellation.requested": ("reason",),
    "cancellation.completed": (),
}
"""The fields of each type, written down a second time, from the text of the contract."""

CHOICES: dict[str, tuple[str, ...]] = {
    "phase": ("queue", "provider_open", "provider_stream", "approval", "tool"),
    "outcome": ("not_started", "failed", "unknown"),
    "risk": ("read", "write", "external_effect", "destructive", "admin"),
    "rejection_code": (
        "APPROVAL_REJECTED",
        "APPROVAL_TIMEOUT",
        "TURN_TIMEOUT",
        "TOOL_CANCELLED",
        "APPROVAL_UNAVAILABLE",
    ),
}
SPELLED = {"rejection_code": "error_code", "rejection_reason": "reason"}
# fmt: off
ODD_TEXTS = (
    "", " ", "\t\n", "\u00a0", "\ufeff", "\u3000 \u2028", "\x1c", "\x85", "\x00", "a\x01b", "\x7f",
    "ü", "😀", "é" * 200, "😀" * 200, "😀" * 201, "x" * 200, "x" * 201, " " * 200, "1.0", "null",
)
NUMBERS = (
    "0", "-0", "-0.0", "1", "1.0", "1e0", "10E-1", "1.5", "-1", "-1.0", "-0.5", "0.000001", "1.25e-7", "1e-6",
    "9007199254740991", "-9007199254740991", "9007199254740992", "-9007199254740992", "9007199254740991.0",
    "9007199254740992.0", "9007199254740991.9", "4503599627370495.5", "1e15", "1e16", "1e300", "1e400", "-1e400",
    "1e-400", "18446744073709551616", "1" + "0" * 400, "123456789012345678", "5e-324",
)
WRONG_VALUES = (
    "null", "true", "false", "[]", "{}", "[null]", '{"a":1}', '""', '"x"', '"1"', '"\\ud800"', '"\\udc00\\ud800"',
    '"\\ud83d\\ude00"', "NaN", "Infinity", "-Infinity", '{"\\udfff":1}', '{"input":1,"output":2}', '{"input":1}',
    '{"input":1,"output":2,"total":3}', '{"input":1.0,"output":-0.0}', '{"input":-1,"output":2}',
    '[[9007199254740992]]', '{"a":{"b":[1,2,{"c":1e300}]}}', '{"a":1,"a":2}', '{"a":9007199254740992,"a":2}',
)
EXTRA_KEYS = (
    "risk", "reason", "error_code", "reason_code", "recovery_code", "doc_url", "result", "tokens", "kind", "a/b~c", "", "ü",
    "sequence", "turn_id", "metadata", "Type", "content",
)
# fmt: on


class Case(NamedTuple):
    """A text and in what way it was made; `stored` says as what it is to be judged."""

    text: bytes
    stored: bool
    way: str


class Cases:
    """An endless supply of texts from one random source."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._changes: tuple[Callable[[dict[str, str]], None], ...] = (
            self._remove,
            self._replace,
            self._replace_number,
            self._add,
            self._odd_text,
            self._recovery,
            self._retype,
            self._deepen,
            self._into_metadata,
        )

    def right(self) -> Case:
        """Return a right event."""
        return Case(self._text(self._members(self._event())), stored=True, way="right")

    def some(self) -> Case:
        """Return a text that is right, wrong in one or two ways, or broken."""
        roll = self._random.random()
        if roll < 0.2:
            return self.right()
        members = self._members(self._event())
        if roll < 0.3:
            members.pop("sequence")
            return Case(self._text(members), stored=self._random.random() < 0.2, way="draft")
        way = ""
        for _ in range(1 if self._random.random() < 0.8 else 2):
            change = self._random.choice(self._changes)
            change(members)
            way = change.__name__.strip("_")
        text = self._text(members, doubled=self._random.random() < 0.1)
        if self._random.random() < 0.15:
            return Case(self._broken(text), stored=True, way="broken")
        return Case(text, stored=self._random.random() < 0.95, way=way)

    def at_limit(self) -> Case:
        """Return an event around one of the byte limits, on either side."""
        random = self._random
        kind = random.choice(
            ("tool.call.requested", "tool.call.completed", "workflow.completed", "user.message")
        )
        event = self._event(kind)
        filler = random.choice(('"', "x", "ü", "😀", "\x01", "\u2028"))
        numbers = [1.0, 1e-6, 1.25e-6, 2.5, -0.0, 1e-7][: random.randint(0, 6)]
        field, limit = {
            "tool.call.requested": ("tool_args", 65_536),
            "tool.call.completed": ("result", 65_536),
            "workflow.completed": ("result", 1_048_576),
            "user.message": ("content", 1_048_576),
        }[kind]

        def fill(text: str) -> None:
            event[field] = text if field == "content" else {"t": text, "n": numbers}

        fill("")
        empty = canonical_size(event if limit > 65_536 else event[field])
        width = canonical_size(filler) - 2
        room = limit + random.randint(-3, 3) - empty
        fill(filler * (room // width) + "x" * (room % width))
        return Case(self._text(self._members(event)), stored=True, way="limit")

    # The parts of an event, as Python values.

    def _event(self, kind: str = "") -> Json:
        random = self._random
        kind = kind or random.choice(tuple(FIELDS))
        event: Json = {
            "id": f"e{random.getrandbits(48):x}",
            "type": kind,
            "version": "1.0",
            "timestamp": random.choice((1_767_225_600, 1767225600.0, random.random() * 2e9)),
            "session_id": f"s{random.randint(1, 50)}",
            "sequence": random.choice((1, random.randint(1, 10**6), 2**53 - 1)),
        }
        if random.random() < 0.7:
            event["metadata"] = self._object()
        if random.random() < 0.5:
            event["turn_id"] = self._name()
        for field in FIELDS[kind]:
            if not field.endswith("?") or random.random() < 0.5:
                name = field.rstrip("?")
                event[SPELLED.get(name, name)] = self._field(kind, name)
        return event

    def _field(self, kind: str, name: str) -> object:
        random = self._random
        if name in CHOICES:
            return random.choice(CHOICES[name])
        match name:
            case "turn_id" | "tool_name" | "tool_call_id":
                return self._name()
            case "error" | "rejection_reason":
                return self._name() + "!"
            case "reason" if kind != "cancellation.requested" and random.random() < 0.3:
                return None
            case "chunk_size_bytes":
                return random.randint(-(2**53) + 1, 2**53 - 1)
            case "max_iterations":
                return random.randint(0, 64)
            case "retryable":
                return random.random() < 0.5
            case "tokens":
                counts = {"input": random.randint(0, 9999), "output": random.choice((0, 1.0))}
                return random.choice((None, counts))
            case "cost_usd":
                return random.choice((None, 0, 0.25, -0.0, 1e-7, 3))
            case "documents" | "pending_tool_calls":
                return [self._object() for _ in range(random.randint(0, 3))]
            case "tool_args":
                return self._object()
            case "result":
                return self._value(3)
            case _:
                return self._words()

    def _name(self) -> str:
        return self._random.choice((" ", "t", "read_file", "ü", "a/b", "\x00", "call-1"))

    def _words(self) -> str:
        return self._random.choice(("", "hello", "a\nb", "ü😀", '"\\', "\u2028", "x" * 300))

    def _object(self) -> Json:
        keys = ("a", "id", "type", "ü", "", "sequence", "😀")
        count = self._random.randint(0, 3)
        return {self._random.choice(keys): self._value(2) for _ in range(count)}

    def _value(self, depth: int) -> object:
        random = self._random
        scalars = (None, True, False, 0, 1.0, -7, 1.5, 2**53 - 1, 1e-6, 1e-7, self._words())
        match random.randint(0, 5 if depth else 3):
            case 4:
                return [self._value(depth - 1) for _ in range(random.randint(0, 3))]
            case 5:
                return {
                    self._words()[:3]: self._value(depth - 1) for _ in range(random.randint(0, 3))
                }
            case _:
                return random.choice(scalars)

    # The members of an event as JSON texts, so that they can be wrong in any way.

    def _members(self, event: Json) -> dict[str, str]:
        ascii_only = self._random.random() < 0.5
        return {key: json.dumps(value, ensure_ascii=ascii_only) for key, value in event.items()}

    def _text(self, members: dict[str, str], *, doubled: bool = False) -> bytes:
        space = self._random.choice(("", "", " ", "\n\t"))
        pairs = [f"{json.dumps(key)}:{space}{value}" for key, value in members.items()]
        if self._random.random() < 0.5:
            self._random.shuffle(pairs)
        if doubled and pairs:
            other = self._random.choice(WRONG_VALUES)
            pairs.insert(0, f"{json.dumps(self._random.choice(tuple(members)))}:{other}")
        return ("{" + f",{space}".join(pairs) + "}").encode(errors="surrogatepass")

    def _any_key(self, members: dict[str, str]) -> str:
        return self._random.choice(tuple(members) or ("id",))

    def _remove(self, members: dict[str, str]) -> None:
        members.pop(self._any_key(members), None)

    def _replace(self, members: dict[str, str]) -> None:
        members[self._any_key(members)] = self._random.choice(WRONG_VALUES)

    def _replace_number(self, members: dict[str, str]) -> None:
        names = (
            "timestamp",
            "sequence",
            "chunk_size_bytes",
            "max_iterations",
            "cost_usd",
            "result",
        )
        here = [name for name in names if name in members]
        members[self._random.choice(here or ["timestamp"])] = self._random.choice(NUMBERS)

    def _add(self, members: dict[str, str]) -> None:
        value = self._random.choice((*WRONG_VALUES, *NUMBERS))
        members[self._random.choice(EXTRA_KEYS)] = value

    def _odd_text(self, members: dict[str, str]) -> None:
        here = [name for name, value in members.items() if value.startswith('"') and name != "type"]
        for name in ("reason", "error"):
            if name in members and self._random.random() < 0.6:
                here = [name]
        members[self._random.choice(here or ["id"])] = json.dumps(self._random.choice(ODD_TEXTS))

    def _recovery(self, members: dict[str, str]) -> None:
        if self._random.random() < 0.9:
            members["type"] = '"tool.call.failed"'
            for name in CALL:
                members.setdefault(name, '"x"')
            members.setdefault("error", '"x"')
        row = self._random.choice(sorted(recovery_codes.ROWS))
        members.update(
            zip(("error_code", *recovery_codes.FIELDS), map(json.dumps, row), strict=True)
        )
        if self._random.random() < 0.6:
            name = self._random.choice(("error_code", *recovery_codes.FIELDS))
            members[name] = self._random.choice(('"x"', "null", '"RESET_GMAIL_GRANT"', "[]", "1"))
        if self._random.random() < 0.3:
            members.pop(self._random.choice(recovery_codes.FIELDS))

    def _retype(self, members: dict[str, str]) -> None:
        others = (*FIELDS, "artifact.emitted", "Session.created", "session.created ", "")
        members["type"] = json.dumps(self._random.choice(others))

    def _deepen(self, members: dict[str, str]) -> None:
        depth = self._random.choice((1, 60, 64, 126, 127, 128, 129, 200, 500, 100_000))
        begin, end = self._random.choice((("[", "]"), ('{"a":', "}")))
        where = self._random.choice(("metadata", "result", "tool_args", "documents", "content"))
        inner = self._random.choice(("1", "null", "9007199254740992", '"\\ud800"'))
        value = begin * depth + inner + end * depth
        members[where] = f'{{"a":{value}}}' if begin == "[" and where != "result" else value

    def _into_metadata(self, members: dict[str, str]) -> None:
        value = self._random.choice((*NUMBERS, *WRONG_VALUES))
        members["metadata"] = (
            self._random.choice(('{"n":%s}', '{"a":[1,{"n":%s}]}', "[%s]")) % value
        )

    def _broken(self, text: bytes) -> bytes:
        random = self._random
        at = random.randrange(len(text))
        match random.randint(0, 6):
            case 0:
                return text[:at]
            case 1:
                return text[:at] + bytes([text[at] ^ (1 << random.randint(0, 7))]) + text[at + 1 :]
            case 2:
                return text[:at] + random.randbytes(random.randint(1, 4)) + text[at:]
            case 3:
                return text[:at] + text[at + random.randint(1, 8) :]
            case 4:
                other = random.randrange(len(text))
                return text[: min(at, other)] + text[max(at, other) :] + text[:at]
            case 5:
                return random.choice((b"\xef\xbb\xbf", b" ", b"\x0b", b"[", b"\x00")) + text
            case _:
                return text + random.choice((b"\n", b" ", b"}", b"\x00", b",", text))


def canonical_size(value: object) -> int:
    """Return how long the canonical form is: a second opinion, made of Python's own JSON and decimals."""
    match value:
        case bool() | None | int():
            return len(json.dumps(value))
        case float():
            return len(_ecma_number(value))
        case str():
            return len(json.dumps(value, ensure_ascii=False).encode())
        case list():
            items = cast("list[object]", value)
            return 2 + max(len(items) - 1, 0) + sum(map(canonical_size, items))
        case dict():
            members = cast("dict[str, object]", value)
            inner = sum(canonical_size(x) + 1 + canonical_size(y) for x, y in members.items())
            return 2 + max(len(members) - 1, 0) + inner
        case _:
            raise TypeError("no JSON value")


def _ecma_number(value: float) -> str:
    if value.is_integer():
        return str(int(value))
    number = Decimal(repr(value))
    if number.adjusted() >= -6:
        return f"{number:f}"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{'-' if value < 0 else ''}{mantissa}e{number.adjusted()}"
