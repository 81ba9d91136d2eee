"""What is a request and what is none: the same answers on every transport (P 4.1 to 4.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import trio

from tests.support.front import TRANSPORTS, Client, Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

every_transport = pytest.mark.parametrize("transport", TRANSPORTS)
OFFERING_BYTES = [name for name in TRANSPORTS if name != "websocket"]
Answer = tuple[object, int, str]
LAST = "the last one"


def _request(**members: object) -> bytes:
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": 1, "method": "health.ping", "params": {}, **members}
    )


def _nested(levels: int) -> bytes:
    """Return a request that is nested so deeply, itself included."""
    params = b'{"x":' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"}"
    return b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":' + params + b"}"


NO_ANSWER = [
    b"",
    b" \t ",
    b'{"jsonrpc":"2.0","method":"health.ping"}',
    b'{"jsonrpc":"2.0","method":"no.such","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}',
]

PARSE_ERRORS = [
    b"{nonsense",
    b"nonsense",
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping"',
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping"} {"jsonrpc":"2.0","id":2,"method":"health.ping"}',
    b"{'jsonrpc':'2.0'}",
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":{"x":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":{"x":-Infinity}}',
    b"\x00",
    b'{"jsonrpc":"2.0","id":"\x00","method":"health.ping"}',
    b"\xef\xbb\xbf" + _request(),
    b'{"jsonrpc":"2.0","id":7,"method":"agent.create","params":{"objective":"\\ud800"}}',
    b"[" * 5_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    _nested(129),
    _nested(100_000),
]

INVALID_UTF8 = [
    b"\xff\xfe",
    b'{"jsonrpc":"2.0","id":"\xff","method":"health.ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":{"x":"\xc3\x28"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":{"x":"\xed\xa0\x80"}}',
]

ANSWERED: list[tuple[bytes, Answer]] = [
    (b"[]", (None, -32600, "BATCH_UNSUPPORTED")),
    (b"[" + _request() + b"," + _request(id=2) + b"]", (None, -32600, "BATCH_UNSUPPORTED")),
    (b"null", (None, -32600, "INVALID_REQUEST")),
    (b"17", (None, -32600, "INVALID_REQUEST")),
    (b'"health.ping"', (None, -32600, "INVALID_REQUEST")),
    (b"{}", (None, -32600, "INVALID_REQUEST")),
    (_request(id=None), (None, -32600, "INVALID_REQUEST")),
    (_request(id=""), (None, -32600, "INVALID_REQUEST")),
    (_request(id=1.5), (None, -32600, "INVALID_REQUEST")),
    (_request(id=True), (None, -32600, "INVALID_REQUEST")),
    (_request(id={}), (None, -32600, "INVALID_REQUEST")),
    (_request(id=[1]), (None, -32600, "INVALID_REQUEST")),
    (_request(id="a", jsonrpc="1.0"), ("a", -32600, "INVALID_REQUEST")),
    (_request(id="a", jsonrpc=2), ("a", -32600, "INVALID_REQUEST")),
    (b'{"id":7,"method":"health.ping"}', (7, -32600, "INVALID_REQUEST")),
    (b'{"jsonrpc":"2.0","id":7}', (7, -32600, "INVALID_REQUEST")),
    (_request(id=7, method=5), (7, -32600, "INVALID_REQUEST")),
    (_request(id=7, more=1), (7, -32600, "INVALID_REQUEST")),
    (_request(id=7, method="no.such"), (7, -32601, "METHOD_NOT_FOUND")),
    (_request(id=7, method=""), (7, -32601, "METHOD_NOT_FOUND")),
    (_request(id=7, method="\x00"), (7, -32601, "METHOD_NOT_FOUND")),
    (_request(id=7, method="thread/realtime/start"), (7, -32601, "METHOD_NOT_FOUND")),
    (_request(id=7, params=None), (7, -32602, "INVALID_ARGUMENT")),
    (_request(id=7, params=[]), (7, -32602, "INVALID_ARGUMENT")),
    (_request(id=7, params="x"), (7, -32602, "INVALID_ARGUMENT")),
    (_request(id=7, params={"x": 1}), (7, -32602, "INVALID_ARGUMENT")),
    (
        _request(id=7, method="session.attach", params={"sessionId": []}),
        (7, -32602, "INVALID_ARGUMENT"),
    ),
    (
        _request(id=7, method="session.attach", params={"sessionId": " "}),
        (7, -32602, "INVALID_ARGUMENT"),
    ),
    (_request(id=7, method="session.attach", params={}), (7, -32602, "INVALID_ARGUMENT")),
    (
        _request(id=7, method="session.attach", params={"sessionId": None}),
        (7, -32602, "INVALID_ARGUMENT"),
    ),
    (_nested(128), (1, -32602, "INVALID_ARGUMENT")),
]


def _shown(message: Json) -> Answer:
    error = cast("dict[str, Any]", message["error"])
    return (message["id"], error["code"], error["data"]["code"])


async def _answers(client: Client, messages: list[bytes]) -> list[Json]:
    """Send messages and return all that comes back, up to the answer to a request behind them."""
    for line in messages:
        await client.send_raw(line)
    await client.send_raw(_request(id=LAST))
    found: list[Json] = []
    while True:
        message = await client.read()
        assert message is not None, "the connection ended"
        if message["id"] == LAST:
            assert "result" in message
            return found
        found.append(message)


@every_transport
async def test_scenario_08_what_is_no_request_is_refused_or_ignored_and_the_connection_goes_on(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            assert await _answers(client, NO_ANSWER) == []
            found = await _answers(client, PARSE_ERRORS)
            assert [_shown(message) for message in found] == (
                [(None, -32700, "PARSE_ERROR")] * len(PARSE_ERRORS)
            )
            found = await _answers(client, [message for message, _ in ANSWERED])
            assert [_shown(message) for message in found] == [wanted for _, wanted in ANSWERED]


@pytest.mark.parametrize("transport", OFFERING_BYTES)
async def test_invalid_utf8_is_a_parse_error(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            found = await _answers(client, INVALID_UTF8)
            assert [_shown(message) for message in found] == (
                [(None, -32700, "PARSE_ERROR")] * len(INVALID_UTF8)
            )


@every_transport
async def test_the_texts_of_the_refusals_say_what_is_wrong(tmp_path: Path, transport: str) -> None:
    wanted = {
        _request(jsonrpc="1"): "invalid JSON-RPC version",
        _request(method=None): "missing daemon method",
        _request(id=None): "missing daemon request id",
        _request(more=1): "a request has no member 'more'",
        _request(method="no.such"): "unknown daemon method: no.such",
        _request(method="thread/realtime/stop"): (
            "daemon method is not implemented yet: thread/realtime/stop"
        ),
        _request(params=[]): "daemon request params must be an object",
        _request(params={"x": 1}): "health.ping does not accept param 'x'",
        _request(method="session.attach"): "session.attach requires sessionId",
        b"[]": "batch requests are not supported",
    }
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            found = await _answers(client, list(wanted))
            assert [cast("Json", message["error"])["message"] for message in found] == list(
                wanted.values()
            )


@every_transport
async def test_ids_come_back_as_they_were_sent(tmp_path: Path, transport: str) -> None:
    ids: list[object] = [1, "1", 0, -5, 2**53, -(2**63), "é", "\n", "x" * 1000, " "]
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            found = await _answers(client, [_request(id=one) for one in ids])
            assert [(type(m["id"]), m["id"]) for m in found] == [(type(one), one) for one in ids]
            twice = b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x","method":"health.ping"}'
            (last,) = await _answers(client, [twice])
            assert last["id"] == 2
            assert "result" in last


@every_transport
async def test_params_may_be_absent_where_there_are_none(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            messages = [
                b'{"jsonrpc":"2.0","id":1,"method":"health.ping"}',
                b' { "method" : "health.ready" , "id" : 2 , "jsonrpc" : "2.0" } ',
            ]
            found = await _answers(client, messages)
            assert [("result" in m, m["id"]) for m in found] == [(True, 1), (True, 2)]


@every_transport
async def test_before_initialize_every_known_method_is_refused_and_an_unknown_one_is_unknown(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house:
            async with open_client(house, transport, initialize=False) as client:
                if transport == "websocket":
                    # Nobody is known there before the cookie has been shown.
                    await client.send_raw(_request(method="no.such"))
                    message = await client.read()
                    assert message is not None
                    assert _shown(message) == (1, -32000, "CONNECTION_AUTHENTICATION_FAILED")
                    assert await client.receive_raw() == b""
                    return
                error = await client.refused("agent.list")
                assert error["message"] == "Not initialized"
                assert cast("Json", error["data"])["code"] == "CONNECTION_NOT_INITIALIZED"
                assert (await client.refused("no.such"))["code"] == -32601
                assert (await client.refused("agent.list", {"x": 1}))["code"] == -32000
                await client.initialize()
                await client.call("agent.list")
