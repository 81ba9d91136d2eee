"""How a connection chooses its protocol, and the envelope of the thread door (T 1)."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, cast

import pytest

from bench.daemon import Client
from tests.support.thread_client import ThreadClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

Json = dict[str, object]
HELLO: Json = {"clientInfo": {"name": "desk"}, "capabilities": {}}


class Lines:
    """A raw connection: lines out, JSON in."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def ask(self, line: object) -> Json:
        self.say(line)
        found: Json = json.loads(self.file.readline())
        return found

    def say(self, line: object) -> None:
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.sock.sendall(data + b"\n")

    def error(self, line: object) -> tuple[object, object, object]:
        """Return the id of an answer, and code and data code of its error."""
        answer = self.ask(line)
        error = cast("Json", answer["error"])
        return answer["id"], error["code"], cast("Json", error.get("data") or {}).get("code")


@pytest.fixture
def lines(daemon: RunningDaemon) -> Iterator[Callable[[], Lines]]:
    opened: list[Lines] = []

    def connect() -> Lines:
        opened.append(Lines(daemon.socket))
        return opened[-1]

    yield connect
    for one in opened:
        one.file.close()
        one.sock.close()


def test_initialize_says_what_is_served(lines: Callable[[], Lines]) -> None:
    answer = lines().ask({"id": 1, "method": "initialize", "params": HELLO})

    result = cast("Json", answer["result"])
    assert "jsonrpc" not in answer
    assert result["protocolVersion"] == "2026-06-02"
    assert cast("Json", result["serverInfo"])["name"] == "roost"
    assert str(result["userAgent"]).startswith("roost/")
    assert cast("Json", result["capabilities"])["turnSteer"] is True


@pytest.mark.parametrize(
    "params",
    [
        {"clientInfo": {"name": ""}},
        {"clientInfo": {"name": "codex", "title": None, "version": None, "more": 1}, "x": 1},
        {"clientInfo": {"name": "mcp"}, "protocolVersion": "2025-06-18", "capabilities": {}},
    ],
)
def test_client_info_makes_it_the_thread_protocol(lines: Callable[[], Lines], params: Json) -> None:
    connection = lines()
    assert "result" in connection.ask({"id": "a", "method": "initialize", "params": params})
    assert connection.error({"id": 2, "method": "tools/list"})[1] == -32601


def test_before_it_is_initialized_nothing_else_is_done(lines: Callable[[], Lines]) -> None:
    connection = lines()
    assert connection.error({"id": 1, "method": "thread/list"}) == (1, -32010, None)
    assert connection.error({"id": 2, "method": "initialized"}) == (2, -32010, None)
    assert connection.error({"id": 3, "method": "initialize"}) == (3, -32602, "unknownProtocol")
    wrong: Json = {"id": 4, "method": "initialize", "params": {"clientInfo": {}}}
    assert connection.error(wrong) == (4, -32602, "invalidParams")
    connection.say({"method": "initialized"})
    connection.say({"method": "what/ever"})
    assert "result" in connection.ask({"id": 5, "method": "initialize", "params": HELLO})
    again = {"id": 6, "method": "initialize", "params": HELLO}
    assert connection.error(again) == (6, -32011, None)
    connection.say({"method": "initialized"})
    assert connection.ask({"id": 7, "method": "initialized"}) == {"id": 7, "result": {}}


def test_a_first_message_of_the_other_protocol_binds_nothing(lines: Callable[[], Lines]) -> None:
    connection = lines()
    request: Json = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "thread/realtime/start",
        "params": {},
    }
    assert connection.error(request) == (1, -32000, "CONNECTION_NOT_INITIALIZED")
    hello = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": HELLO}
    assert "result" in connection.ask(hello)
    refused = connection.ask({"id": 3, "method": "agent.list"})
    error = cast("Json", refused["error"])
    assert error["code"] == -32601
    assert error["data"] == {"method": "agent.list", "boundProtocol": "thread"}


def test_a_first_message_without_jsonrpc_is_judged_by_its_method(
    lines: Callable[[], Lines],
) -> None:
    connection = lines()
    unknown = connection.ask({"id": 1, "method": "no/such"})
    assert cast("Json", unknown["error"])["code"] == -32601
    assert cast("Json", unknown["error"])["data"] == {"method": "no/such"}
    other = connection.ask({"id": "a", "method": "agent.list", "params": {}})
    error = cast("Json", other["error"])
    assert (other["id"], error["code"], error["message"]) == ("a", -32000, "Not initialized")
    assert cast("Json", error["data"])["code"] == "CONNECTION_NOT_INITIALIZED"
    assert "jsonrpc" not in unknown
    assert "jsonrpc" not in other
    connection.say({"method": "agent.list"})
    bound = connection.error({"id": 2, "method": "initialize", "params": {"protocol": {}}})
    assert bound[1] == -32600
    assert "result" in connection.ask({"id": 3, "method": "initialize", "params": HELLO})


@pytest.mark.parametrize(
    "params",
    [
        {"clientInfo": {"name": "x"}, "capabilities": None},
        {
            "clientInfo": {"name": "x", "title": None},
            "capabilities": {"experimentalApi": None, "optOutNotificationMethods": None},
        },
    ],
)
def test_what_a_greeting_may_leave_out_may_be_null(
    lines: Callable[[], Lines], params: Json
) -> None:
    connection = lines()
    assert "result" in connection.ask({"id": 1, "method": "initialize", "params": params})
    assert connection.error({"id": 2, "method": "thread/list", "params": {"limit": "1"}})[1] == (
        -32602
    )
    nameless = lines().ask(
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": None}}}
    )
    assert cast("Json", nameless["error"])["code"] == -32602


def test_a_daemon_client_stays_one(daemon: RunningDaemon) -> None:
    client = Client(daemon.socket)
    with pytest.raises(Exception, match="thread/list"):
        client.call("thread/list")
    client.close()


def test_jsonrpc_is_mirrored(daemon: RunningDaemon) -> None:
    for jsonrpc in (True, False):
        client = ThreadClient(daemon.socket, jsonrpc=jsonrpc)
        client.start(title="mirrored")
        client.wait("thread/started")
        assert client.refusal("thread/read", threadId="nobody").code == -32020
        client.close()


def test_what_is_no_message_is_answered_without_an_id(lines: Callable[[], Lines]) -> None:
    connection = lines()
    first = connection.ask(b"{nonsense")
    assert first["jsonrpc"] == "2.0"
    connection.ask({"id": 1, "method": "initialize", "params": HELLO})
    assert connection.error(b"{nonsense") == (None, -32700, None)
    connection.say(b"   ")
    wrongs: list[object] = [
        {"id": None, "method": "thread/list"},
        {"id": True, "method": "thread/list"},
        {"id": 1.5, "method": "thread/list"},
        {"id": [], "method": "thread/list"},
        {"id": 2**63, "method": "thread/list"},
        {"id": 1},
        {"method": 3, "id": 1},
        [],
        [{"id": 1, "method": "thread/list"}],
        "text",
    ]
    for wrong in wrongs:
        assert connection.error(wrong) == (None, -32600, None), wrong
    assert "result" in connection.ask({"id": -(2**63), "method": "thread/list", "params": None})
    assert "result" in connection.ask({"id": "", "method": "thread/list"})


def test_params_of_the_wrong_kind_are_refused(lines: Callable[[], Lines]) -> None:
    connection = lines()
    connection.ask({"id": 1, "method": "initialize", "params": HELLO})
    wrongs: list[tuple[str, object]] = [
        ("thread/list", []),
        ("thread/list", {"limit": -1}),
        ("thread/list", {"limit": 1.5}),
        ("thread/list", {"limit": True}),
        ("thread/list", {"limit": "1"}),
        ("thread/list", {"includeArchived": None}),
        ("thread/read", None),
        ("thread/read", {}),
        ("thread/resume", {"threadId": "t", "subscribe": None}),
        ("turn/start", {"threadId": "t", "input": "go"}),
        ("turn/start", {"threadId": "t", "input": [{}]}),
        ("schema/export", {"a": 1}),
        ("schema/export", []),
        ("approval/resolve", {"threadId": "t", "turnId": "u", "requestId": "r", "decision": "x"}),
    ]
    for method, params in wrongs:
        request: Json = {"id": 2, "method": method, "params": params}
        assert connection.error(request) == (2, -32602, "invalidParams"), (method, params)
    taken: list[Json] = [{"limit": 2**70, "offset": None}, {"limit": 1.0}, {"more": {}}]
    for members in taken:
        answer = connection.ask({"id": 3, "method": "thread/list", "params": members})
        assert "result" in answer, answer


def test_what_a_client_does_not_want_to_hear_it_is_not_told(daemon: RunningDaemon) -> None:
    without = ["item/started", "thread/started", "no/such"]
    client = ThreadClient(daemon.socket, capabilities={"optOutNotificationMethods": without})
    thread = client.start()
    client.turn(thread, "hello")
    heard = set(client.methods())
    client.close()

    assert heard.isdisjoint(without)
    assert "item/completed" in heard


def test_the_experimental_part_is_for_those_who_ask(daemon: RunningDaemon) -> None:
    plain = ThreadClient(daemon.socket)
    refused = plain.refusal("thread/unsubscribe", threadId="t")
    assert refused.code == -32012
    assert refused.message == "thread/unsubscribe requires experimentalApi capability"
    assert refused.data == {
        "code": "experimentalApiRequired",
        "descriptor": "thread/unsubscribe",
    }
    asked = ThreadClient(daemon.socket, capabilities={"experimentalApi": True})
    thread = asked.start()
    answer = asked.call("thread/unsubscribe", threadId=thread)
    assert answer == {"threadId": thread, "subscribed": False}
    assert asked.call("thread/unsubscribe", threadId=thread) == answer
    unknown = asked.refusal("thread/unsubscribe", threadId="nobody")
    assert (unknown.code, unknown.data["code"]) == (-32020, "threadNotFound")
    turn = cast("Json", asked.call("turn/start", threadId=thread, input=[{"text": "x"}])["turn"])
    asked.wait("turn/completed", lambda p: cast("Json", p["turn"])["id"] == turn["id"])
    plain.close()
    asked.close()


def test_an_id_in_flight_is_refused_and_the_first_request_is_not_disturbed(
    lines: Callable[[], Lines],
) -> None:
    connection = lines()
    connection.ask({"id": 1, "method": "initialize", "params": HELLO})
    request: Json = {"id": 2, "method": "thread/start", "params": {}}
    connection.say(json.dumps(request).encode() + b"\n" + json.dumps(request).encode())
    answers = [json.loads(connection.file.readline()) for _ in range(3)]
    kinds = ["error" if "error" in a else a.get("method", "result") for a in answers]

    assert sorted(kinds) == ["error", "result", "thread/started"]
    assert next(a for a in answers if "error" in a)["error"]["code"] == -32600


def test_the_exported_schemas_are_texts(daemon: RunningDaemon) -> None:
    client = ThreadClient(daemon.socket)
    result = client.call("schema/export")
    client.close()

    schemas = cast("dict[str, str]", result["jsonSchema"])
    assert json.loads(schemas["ClientRequest"])["title"] == "ClientRequest"
    assert "AppItem.ts" in cast("Json", result["typescript"])
