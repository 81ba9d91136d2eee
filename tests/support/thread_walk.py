"""Holds what the thread door sends against written examples: whole messages, one after the other, nothing between them.

In examples `th_…`, `tn_…`, `call_…` and `e1`, `e2`, … stand for the ids of threads, turns, calls and stored events, the same
word always for the same id and two words never for one; `item_e1` and `apr_e1` are what is named after an event. Numbers
of `…AtMs` and of sequences only say what is not later than what: the same number is the same time, a larger one no earlier.
Those of `updatedAtMs`, which the store stamps by itself, are compared among themselves.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.thread_schema import Check

Json = dict[str, object]
SECONDS = 20.0
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KINDS = (
    (re.compile(r"th_\w+"), re.compile(rf"session_{_UUID}")),
    (re.compile(r"tn_\w+"), re.compile(r"turn_[0-9a-f]{32}")),
    (re.compile(r"call_\w+"), re.compile(r"call_[0-9a-f]{32}")),
    (re.compile(r"e\d+"), re.compile(_UUID)),
)
_OF_EVENT = re.compile(r"(item_|apr_)(e\d+)")
_SEQUENCES = frozenset(("sequence", "asOfSequence"))


class OneOf:
    """In an example: either of these."""

    def __init__(self, *examples: object) -> None:
        self.examples = examples


class Some:
    """In an example: any text that is of this pattern as a whole; or, without one, anything."""

    def __init__(self, pattern: str = "") -> None:
        self.pattern = pattern


class Names:
    """What the words and the numbers of examples stand for, as far as messages have told."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.times: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.updates: dict[int, int] = {}

    def matches(self, actual: object, example: object) -> None:
        """Do nothing if a message is as the example says, with no member more and none less.

        Raises:
            AssertionError: it is not; says where.
        """
        fault = self._fault(actual, example, "", "")
        assert not fault, f"{fault}\n  is: {json.dumps(actual)[:2000]}"

    def filled(self, example: object) -> object:
        """Return an example with the ids that its words stand for; what nothing was told of stays as it is."""
        if isinstance(example, dict):
            return {name: self.filled(one) for name, one in cast("Json", example).items()}
        if isinstance(example, list):
            return [self.filled(one) for one in cast("list[object]", example)]
        return self._known(example) if isinstance(example, str) else example

    def __getitem__(self, word: str) -> str:
        """Return the id that a word stands for."""
        return self._known(word)

    def _known(self, word: str) -> str:
        of_event = _OF_EVENT.fullmatch(word)
        if of_event is not None and of_event[2] in self.ids:
            return of_event[1] + self.ids[of_event[2]]
        return self.ids.get(word, word)

    def _fault(self, actual: object, example: object, path: str, member: str) -> str:
        match example:
            case OneOf():
                return self._either(actual, example, path, member)
            case Some():
                fits = isinstance(actual, str) and re.fullmatch(example.pattern, actual)
                return "" if fits or not example.pattern else f"{path}: {actual!r}"
            case dict():
                return self._members(actual, cast("Json", example), path)
            case list():
                return self._elements(actual, cast("list[object]", example), path)
            case str():
                return self._text(actual, example, path)
            case int() if not isinstance(example, bool):
                return self._number(actual, example, path, member)
            case _:
                same = type(actual) is type(example) and actual == example
                return "" if same else f"{path}: {actual!r}, not {example!r}"

    def _either(self, actual: object, example: OneOf, path: str, member: str) -> str:
        faults: list[str] = []
        for one in example.examples:
            other = Names()
            other.ids.update(self.ids)
            other.times.update(self.times)
            other.sequences.update(self.sequences)
            other.updates.update(self.updates)
            faults.append(other._fault(actual, one, path, member))
            if not faults[-1]:
                return self._fault(actual, one, path, member)
        return " or ".join(faults)

    def _members(self, actual: object, example: Json, path: str) -> str:
        if not isinstance(actual, dict):
            return f"{path}: {actual!r} is no object"
        found = cast("Json", actual)
        if found.keys() != example.keys():
            more, less = sorted(found.keys() - example), sorted(example.keys() - found)
            return f"{path}: has {more} too many, and not {less}"
        for name, one in example.items():
            fault = self._fault(found[name], one, f"{path}/{name}", name)
            if fault:
                return fault
        return ""

    def _elements(self, actual: object, example: list[object], path: str) -> str:
        if not isinstance(actual, list) or len(cast("list[object]", actual)) != len(example):
            return f"{path}: {actual!r} is not as long as {example!r}"
        for at, (found, one) in enumerate(zip(cast("list[object]", actual), example, strict=True)):
            fault = self._fault(found, one, f"{path}/{at}", "")
            if fault:
                return fault
        return ""

    def _text(self, actual: object, example: str, path: str) -> str:
        of_event = _OF_EVENT.fullmatch(example)
        if of_event is not None:
            if not isinstance(actual, str) or not actual.startswith(of_event[1]):
                return f"{path}: {actual!r} is not named after an event"
            return self._text(actual.removeprefix(of_event[1]), of_event[2], path)
        for word, pattern in _KINDS:
            if word.fullmatch(example):
                return self._id(actual, example, pattern, path)
        return "" if actual == example else f"{path}: {actual!r}, not {example!r}"

    def _id(self, actual: object, word: str, pattern: re.Pattern[str], path: str) -> str:
        if not isinstance(actual, str) or not pattern.fullmatch(actual):
            return f"{path}: {actual!r} is no id of this kind ({word})"
        if word not in self.ids:
            if actual in self.ids.values():
                return f"{path}: {word} has the id of another one"
            self.ids[word] = actual
        return "" if self.ids[word] == actual else f"{path}: {actual!r} is not {word}"

    def _number(self, actual: object, example: int, path: str, member: str) -> str:
        if type(actual) is not int:
            return f"{path}: {actual!r} is no integer"
        if member == "updatedAtMs":
            return self._ordered(self.updates, actual, example, path)
        if member.endswith("AtMs"):
            return self._ordered(self.times, actual, example, path)
        if member in _SEQUENCES:
            return self._ordered(self.sequences, actual, example, path)
        return "" if actual == example else f"{path}: {actual}, not {example}"

    def _ordered(self, known: dict[int, int], actual: int, example: int, path: str) -> str:
        if known.setdefault(example, actual) != actual:
            return f"{path}: {actual} is not {known[example]}, which {example} stands for"
        for number, found in known.items():
            if (number < example and found > actual) or (number > example and found < actual):
                return f"{path}: {actual} ({example}) is out of order with {found} ({number})"
        return ""


class Walk:
    """One connection, walked through message by message."""

    check: Check | None = None

    def __init__(
        self,
        write: Callable[[bytes], object],
        readline: Callable[[], bytes],
        names: Names | None = None,
    ) -> None:
        self._write, self._readline = write, readline
        self.names = names or Names()
        self._methods: dict[object, str] = {}

    def says(self, message: object) -> None:
        """Send a message, or the bytes of a line; its words are filled in."""
        if isinstance(message, bytes):
            for line in message.splitlines():
                self._note(line)
            self._write(message + b"\n")
            return
        line = json.dumps(self.names.filled(message)).encode()
        self._note(line)
        self._write(line + b"\n")

    def _note(self, line: bytes) -> None:
        """Keep what an answer will be to."""
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and "id" in message:
                members = cast("Json", message)
                self._methods[json.dumps(members["id"])] = str(members.get("method"))

    def expect(self, *examples: object) -> None:
        """See that the next messages are these, one after the other."""
        for example in examples:
            self.names.matches(self.next(), example)

    def next(self) -> Json:
        """Return the next message, which is of the schema."""
        line = self._readline()
        if not line:
            raise ConnectionError("the daemon closed the connection")
        message: Json = json.loads(line)
        if Walk.check is not None:
            Walk.check(self._methods.get(json.dumps(message.get("id"))), message)
        return message

    def until(self, method: str) -> Json:
        """Let messages pass until one of this method; return it."""
        while (message := self.next()).get("method") != method:
            pass
        return message

    def answer(self, request: object) -> Json:
        """Send a request and return its answer; what comes before it passes."""
        self.says(request)
        return self.answer_to(cast("Json", request)["id"])

    def answer_to(self, number: object) -> Json:
        """Return the answer to the request of this id; what comes before it passes."""
        while "method" in (message := self.next()) or message["id"] != number:
            pass
        return message

    def ask(self, method: str, **params: object) -> Json:
        """Send a request of its own and return its result; what comes before it passes."""
        answer = self.answer({"id": f"own {method}", "method": method, "params": params})
        return cast("Json", answer["result"])

    def refused(self, method: str, **params: object) -> Json:
        """Send a request of its own and return the error that it is answered with."""
        answer = self.answer({"id": f"own {method}", "method": method, "params": params})
        return cast("Json", answer["error"])


class SocketWalk(Walk):
    """One over the Unix socket; unless told otherwise it has been greeted."""

    def __init__(self, path: str, names: Names | None = None, **capabilities: object) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb", buffering=1 << 16)
        super().__init__(self.sock.sendall, self.file.readline, names)
        if capabilities.pop("greeted", True):
            self.ask("initialize", clientInfo={"name": "walk"}, capabilities=capabilities)

    def close(self) -> None:
        self.file.close()
        self.sock.close()
