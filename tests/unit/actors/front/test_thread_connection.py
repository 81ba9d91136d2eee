from __future__ import annotations

import json
from typing import cast

import pytest

from roost.actors.errors import DaemonError, Overloaded
from roost.actors.front.binding import judge
from roost.actors.front.connection import Limits, Pending
from roost.actors.front.method import Method
from roost.actors.front.thread_connection import ThreadConnection
from roost.actors.front.thread_wire import WIRES, Incoming, decode_message
from roost.schemas.rpc import NO_PARAMS, ClientReply
from roost.schemas.thread import InitializeParams, NoParams, ThreadListParams, ThreadReadParams

Json = dict[str, object]
METHODS = {
    "initialize": Method(name="initialize", params=InitializeParams, lane="instant"),
    "initialized": Method(name="initialized", params=NoParams, lane="instant"),
    "thread/list": Method(name="thread/list", params=ThreadListParams),
    "thread/read": Method(name="thread/read", params=ThreadReadParams, order="thread_id"),
    "turn/start": Method(name="turn/start", params=ThreadReadParams, implemented=False),
}


def connection(*, initialized: bool = True) -> ThreadConnection:
    made = ThreadConnection(
        METHODS,
        Limits(in_flight=2, queued=1),
        authenticated=True,
        authenticate=lambda _: True,
    )
    made.wire = WIRES[False]
    made.initialized = initialized
    return made


def line(message: object) -> bytes:
    return json.dumps(message).encode()


def refusal(outcome: object) -> tuple[object, object]:
    assert isinstance(outcome, bytes), outcome
    answer = json.loads(outcome)
    return answer["id"], answer["error"]["code"]


def ask(made: ThreadConnection, number: int, method: str, **params: object) -> object:
    return made.receive(line({"id": number, "method": method, "params": params}), 0.0)


def test_requests_of_one_thread_start_in_their_order() -> None:
    made = connection()
    first = ask(made, 1, "thread/read", threadId="a")
    assert isinstance(first, Pending)
    assert ask(made, 2, "thread/read", threadId="a") is None
    assert isinstance(ask(made, 3, "thread/read", threadId="b"), Pending)
    assert refusal(ask(made, 4, "thread/read", threadId="a")) == (4, -32001)
    assert [one.id for one in made.finish(first)] == [2]


def test_a_method_that_is_not_wired_is_unknown() -> None:
    assert refusal(ask(connection(), 1, "turn/start", threadId="a")) == (1, -32601)
    assert refusal(ask(connection(), 1, "agent.list")) == (1, -32601)


def test_initialize_is_done_once() -> None:
    made = connection(initialized=False)
    assert refusal(ask(made, 1, "thread/list")) == (1, -32010)
    hello = ask(made, 2, "initialize", clientInfo={"name": "x"}, capabilities={})
    assert isinstance(hello, Pending)
    made.initialized = True
    assert refusal(ask(made, 3, "initialize", clientInfo={"name": "x"})) == (3, -32011)
    assert isinstance(ask(made, 4, "initialized"), Pending)


def test_notifications_get_nothing_and_answers_are_passed_on() -> None:
    made = connection()
    assert made.receive(line({"method": "initialized"}), 0.0) is None
    assert made.receive(line({"method": "thread/list"}), 0.0) is None
    assert made.receive(b" \t", 0.0) is None
    result = made.receive(line({"id": "apr_1", "result": {"decision": "allow"}}), 0.0)
    assert isinstance(result, ClientReply)
    assert result.result is not None
    error = made.receive(line({"id": "apr_1", "error": {"code": -32601, "message": ""}}), 0.0)
    assert isinstance(error, ClientReply)
    assert error.error == -32601


def test_nothing_new_is_begun_while_the_daemon_stops() -> None:
    made = connection()
    made.stopping = True
    answer = cast("bytes", ask(made, 1, "thread/list"))
    assert json.loads(answer)["error"] == {
        "code": -32001,
        "message": "Server overloaded; retry later.",
        "data": {"code": "serverShuttingDown"},
    }


def test_null_params_are_as_good_as_none() -> None:
    found, jsonrpc = decode_message(b'{"id":1,"method":"m","params":null,"jsonrpc":"2.0"}')
    assert isinstance(found, Incoming)
    assert found.params is NO_PARAMS
    assert jsonrpc


@pytest.mark.parametrize(
    ("message", "side", "jsonrpc"),
    [
        ({"id": 1, "method": "initialize", "params": {"clientInfo": {}}}, "thread", False),
        (
            {"id": 1, "method": "initialize", "params": {"clientInfo": {}, "protocolVersion": "1"}},
            "thread",
            False,
        ),
        ({"id": 1, "method": "initialize", "params": {"protocolVersion": "1"}}, "daemon", False),
        ({"id": 1, "method": "initialize", "params": {"protocol": {}}}, "daemon", False),
        ({"id": 1, "method": "initialize", "params": {"capabilities": {}}}, "neither", False),
        ({"id": 1, "method": "initialize", "params": {"clientInfo": "x"}}, "neither", False),
        ({"id": 1, "method": "initialize", "params": []}, "neither", False),
        ({"id": 1, "method": "initialize"}, "neither", False),
        ({"jsonrpc": "2.0", "id": 1, "method": "thread/list"}, "thread", True),
        ({"jsonrpc": "2.0", "id": 1, "method": "thread/realtime/stop"}, "daemon", True),
        ({"id": 1, "method": "agent.list"}, "daemon", False),
        ({"id": 1, "result": {}}, "daemon", False),
        ([], "daemon", None),
    ],
)
def test_who_takes_a_first_message(message: object, side: str, jsonrpc: bool | None) -> None:
    found = judge(line(message))

    assert (found.side, found.jsonrpc) == (side, jsonrpc)


def test_errors_have_the_codes_of_this_door() -> None:
    def shown(error: DaemonError) -> Json:
        return cast("Json", json.loads(WIRES[True].error(7, error))["error"])

    assert shown(Overloaded("OVERLOADED", "x", {"retryAfterMs": 5})) == {
        "code": -32001,
        "message": "Server overloaded; retry later.",
        "data": {"code": "overloaded", "retryAfterMs": 5},
    }
    assert shown(DaemonError("SOMETHING_NEW", "odd")) == {"code": -32603, "message": "odd"}
    assert shown(DaemonError("PARSE_ERROR", "bad")) == {"code": -32700, "message": "bad"}
