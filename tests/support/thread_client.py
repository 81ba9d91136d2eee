"""A blocking client of the thread door over the Unix socket, for tests and measurements."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, ClassVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Json = dict[str, object]
SECONDS = 60.0


class Refused(Exception):
    """The daemon answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(json.dumps(error))
        self.code = cast("int", error["code"])
        self.message = str(error["message"])
        self.data = cast("Json", error.get("data") or {})


class ThreadClient:
    """One connection; what comes unasked is kept in order in `heard`, requests of the daemon in `asked`.

    `check`, if set, is called with every message of the daemon, and the method that an answer is to.
    """

    check: ClassVar[Callable[[str | None, Json], None] | None] = None

    def __init__(
        self,
        path: str,
        *,
        capabilities: Json | None = None,
        initialize: bool = True,
        jsonrpc: bool = False,
    ) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb", buffering=1 << 18)
        self.jsonrpc = jsonrpc
        self.heard: list[Json] = []
        self.asked: list[Json] = []
        self.answers: dict[object, Json] = {}
        self.order: list[str] = []
        """Methods of what came unasked, and the ids of answers as `#1`, in the order in which they came."""
        self._number = 0
        self._methods: dict[object, str] = {}
        if initialize:
            params: Json = {"clientInfo": {"name": "test"}, "capabilities": capabilities or {}}
            self.greeting = self.call("initialize", **params)

    def send(self, method: str, **params: object) -> int:
        self._number += 1
        self._methods[self._number] = method
        self.write({"id": self._number, "method": method, "params": params})
        return self._number

    def write(self, message: Json) -> None:
        head: Json = {"jsonrpc": "2.0"} if self.jsonrpc else {}
        self.sock.sendall(json.dumps({**head, **message}).encode() + b"\n")

    def call(self, method: str, **params: object) -> Json:
        """Return the result of a request.

        Raises:
            Refused: it was refused.
        """
        return self.result(self.send(method, **params))

    def result(self, number: int) -> Json:
        while number not in self.answers:
            self.read()
        answer = self.answers.pop(number)
        if "error" in answer:
            raise Refused(cast("Json", answer["error"]))
        return cast("Json", answer["result"])

    def refusal(self, method: str, **params: object) -> Refused:
        """Return why a request was refused."""
        try:
            result = self.call(method, **params)
        except Refused as refused:
            return refused
        raise AssertionError(f"{method} was not refused: {result}")

    def read(self) -> Json:
        """Take the next message."""
        line = self.file.readline()
        if not line:
            raise ConnectionError("the daemon closed the connection")
        message: Json = json.loads(line)
        assert ("jsonrpc" in message) is self.jsonrpc
        if "method" not in message:
            self.answers[message["id"]] = message
            self.order.append(f"#{message['id']}")
            if ThreadClient.check is not None and "result" in message:
                ThreadClient.check(self._methods.get(message["id"]), message)
            return message
        self.order.append(str(message["method"]))
        (self.asked if "id" in message else self.heard).append(message)
        if ThreadClient.check is not None:
            ThreadClient.check(None, message)
        return message

    def wait(self, method: str, claim: Callable[[Json], object] = lambda _: True) -> Json:
        """Return the params of the first notification that has not been looked at by `wait`, of this kind."""
        at = 0
        while True:
            while at < len(self.heard):
                found = self.heard[at]
                params = cast("Json", found["params"])
                if found["method"] == method and not found.get("seen") and claim(params):
                    found["seen"] = True
                    return params
                at += 1
            self.read()

    def wait_asked(self) -> Json:
        """Return the next request of the daemon."""
        while not self.asked:
            self.read()
        return self.asked.pop(0)

    def methods(self) -> list[str]:
        return [str(message["method"]) for message in self.heard]

    def start(self, **params: object) -> str:
        """Make a thread and return its id."""
        thread = cast("Json", self.call("thread/start", **params)["thread"])
        return str(thread["id"])

    def turn(self, thread_id: str, text: str) -> Json:
        """Start a turn, wait until it has ended, and return it."""
        turn = cast(
            "Json", self.call("turn/start", threadId=thread_id, input=[{"text": text}])["turn"]
        )
        ended = self.wait("turn/completed", lambda p: cast("Json", p["turn"])["id"] == turn["id"])
        return cast("Json", ended["turn"])

    def items(self, thread_id: str) -> list[Json]:
        """Return all items, page by page."""
        found: list[Json] = []
        after: str | None = None
        while True:
            page = self.call("thread/read", threadId=thread_id, afterItemId=after)
            items = cast("Sequence[Json]", page["items"])
            found += items
            if not page.get("hasMore"):
                return found
            after = str(items[-1]["id"])

    def close(self) -> None:
        self.file.close()
        self.sock.close()
