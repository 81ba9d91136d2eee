"""Connections that are refused, closed, or too many; and the plain HTTP of the TCP port."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed

from roost.actors.front import socket_peer
from roost.actors.front.websocket import MAX_TURNED_AWAY
from tests.support.front import (
    COOKIE,
    Client,
    Json,
    UnixClient,
    WebSocketClient,
    open_client,
    open_front,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front import FrontHouse


async def _http(house: FrontHouse, *lines: str) -> tuple[int, str]:
    """Return the status and the body of a plain answer."""
    stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
    async with stream:
        await stream.send_all("\r\n".join((*lines, "", "")).encode())
        data = b""
        while more := await stream.receive_some(65_536):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


HOST = "Host: localhost"
BEARER = f"Authorization: Bearer {COOKIE}"
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET /healthz HTTP/1.1", HOST), 200),
        (("GET /readyz HTTP/1.1", HOST), 200),
        (("GET /readyz?x=1 HTTP/1.1", HOST), 200),
        (("GET /metrics HTTP/1.1", HOST), 401),
        (("GET /metrics HTTP/1.1", HOST, BEARER), 200),
        (("GET /metrics HTTP/1.1", HOST, BEARER + "x"), 401),
        (("GET / HTTP/1.1", HOST), 404),
        (("GET /nothing HTTP/1.1", HOST), 404),
        (("POST /healthz HTTP/1.1", HOST), 405),
        (("GET /healthz HTTP/1.1", "Host: evil.example"), 403),
        (("GET /healthz HTTP/1.1",), 403),
        (("nonsense",), 400),
        (("GET / HTTP/1.1", HOST, "Origin: http://evil.example", *UPGRADE), 403),
        (("GET / HTTP/1.1", "Host: evil.example", *UPGRADE), 403),
        (("GET /other HTTP/1.1", HOST, *UPGRADE), 404),
        (("GET / HTTP/1.1", HOST, *UPGRADE[:2]), 426),
        (("GET / HTTP/1.1", HOST, BEARER + "x", *UPGRADE), 401),
        (("GET / HTTP/1.1", HOST, "X: " + "y" * 20_000), 431),
    ],
)
async def test_plain_http(tmp_path: Path, lines: tuple[str, ...], status: int) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            assert (await _http(house, *lines))[0] == status


async def test_metrics_are_in_the_prometheus_format(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path, metrics={"open": True}) as house, open_client(house):
            _, body = await _http(house, "GET /metrics HTTP/1.1", HOST)
            assert 'roost_connections{transport="unix"} 1.0' in body
            assert "roost_requests_total 1.0" in body


async def test_readyz_follows_the_store_and_the_stop(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.front.draining("stop")
            assert (await _http(house, "GET /readyz HTTP/1.1", HOST))[0] == 503
            assert (await _http(house, "GET /healthz HTTP/1.1", HOST))[0] == 200
            assert (await _http(house, "GET / HTTP/1.1", HOST, *UPGRADE))[0] == 503


async def _ended(client: Client) -> None:
    while await client.receive_raw():
        pass


@pytest.mark.parametrize("transport", ["unix", "websocket"])
async def test_a_silent_connection_is_dropped(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(5):
        async with (
            open_front(tmp_path, timeouts={"handshake": 0.2}) as house,
            open_client(house, transport, initialize=False) as silent,
            open_client(house, transport) as client,
        ):
            assert await silent.receive_raw() == b""
            await trio.sleep(0.1)
            assert (await client.call("health.ping"))["ok"] is True


async def test_a_websocket_must_authenticate_first(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            for method, params in (
                ("health.ping", {}),
                ("initialize", {"protocolVersion": "1.0.0"}),
                ("initialize", {"protocolVersion": "1.0.0", "authCookie": "wrong"}),
                ("initialize", {"authCookie": "wrong", "x": 1}),
            ):
                async with open_client(house, "websocket", initialize=False) as client:
                    error = await client.refused(method, cast("Json", params))
                    code = cast("Json", error["data"])["code"]
                    assert code == "CONNECTION_AUTHENTICATION_FAILED"
                    await _ended(client)


async def test_a_unix_peer_of_the_same_user_needs_no_cookie(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            async with open_client(house, initialize=False) as client:
                error = await client.refused("agent.list")
                assert cast("Json", error["data"])["code"] == "CONNECTION_NOT_INITIALIZED"
                await client.call("initialize", {"protocolVersion": "1.0"})


async def test_what_the_daemon_started_is_not_let_in_even_with_the_cookie(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path, root_pid=os.getppid()) as house:
            async with open_client(house, initialize=False) as client:
                params: Json = {"protocolVersion": "1.0", "authCookie": COOKIE}
                error = await client.refused("initialize", params)
                code = cast("Json", error["data"])["code"]
                assert code == "CONNECTION_AUTHENTICATION_FAILED"
                await _ended(client)


async def test_one_connection_too_many_is_told_and_closed(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path, limits={"connections": 1}) as house:
            async with open_client(house) as client:
                stream = await trio.open_unix_socket(house.socket_path)
                async with stream:
                    raw = await UnixClient(stream).receive_raw()
                    assert b"TOO_MANY_CONNECTIONS" in raw
                assert (await _http(house, "GET /healthz HTTP/1.1", HOST))[0] == 503
                assert (await client.call("health.ping"))["ok"] is True


async def test_the_33rd_message_is_refused_and_short_requests_pass(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            params: Json = {"sessionId": "session_1", "content": "x"}
            ids = [await client.send("message.send", params) for _ in range(33)]
            error = cast("dict[str, Any]", (await client.answer(ids[-1]))["error"])
            assert error["data"] == {
                "code": "TOO_MANY_IN_FLIGHT_REQUESTS",
                "maxInFlightRequests": 32,
            }
            assert (await client.call("health.stats"))["version"] == "0.1.0"
            await client.call("session.cancelTurn", {"sessionId": "session_1"})


async def test_requests_over_the_queue_are_refused_while_the_store_is_away(tmp_path: Path) -> None:
    limits: dict[str, object] = {"in_flight_requests": 2, "queued_requests": 3}
    with trio.fail_after(5):
        async with open_front(tmp_path, limits=limits) as house, open_client(house) as client:
            assert house.store.link is not None
            house.store.link.close()
            ids = [await client.send("agent.list") for _ in range(6)]
            error = cast("dict[str, Any]", (await client.answer(ids[-1]))["error"])
            assert error["data"]["code"] == "TOO_MANY_QUEUED_REQUESTS"
            assert (await client.call("health.ping"))["ok"] is True
            house.link_store()
            for request_id in ids[:-1]:
                assert "result" in await client.answer(request_id)


async def test_a_store_that_stays_away_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with (
            open_front(tmp_path, timeouts={"link_call": 0.2}) as house,
            open_client(house) as client,
        ):
            assert house.store.link is not None
            house.store.link.close()
            error = await client.refused("agent.list")
            data = cast("Json", error["data"])
            assert (data["code"], data["retryAfterMs"]) == ("OVERLOADED", 1000)


async def test_a_burst_over_the_rate_of_tcp_is_limited_and_recovers(tmp_path: Path) -> None:
    limits: dict[str, object] = {"tcp_rate": 20, "tcp_burst": 3}
    with trio.fail_after(5):
        async with (
            open_front(tmp_path, limits=limits) as house,
            open_client(house, "websocket") as client,
        ):
            ids = [await client.send("health.ping") for _ in range(6)]
            answers = [await client.answer(request_id) for request_id in ids]
            error = cast("dict[str, Any]", answers[-1]["error"])
            assert error["data"] == {
                "code": "RATE_LIMITED",
                "requestRatePerSecond": 20,
                "requestBurst": 3,
                "retryAfterMs": 50,
            }
            await client.call("session.cancelTurn", {"sessionId": "x"})
            await trio.sleep(0.1)
            assert (await client.call("health.ping"))["ok"] is True


async def test_binary_frames_are_ignored(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house, "websocket") as client:
            assert isinstance(client, WebSocketClient)
            await client.socket.send_message(b"\x00\x01")
            assert (await client.call("health.ping"))["ok"] is True


async def test_a_request_that_comes_byte_by_byte_is_one_request(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert isinstance(client, UnixClient)
            for byte in b'{"jsonrpc":"2.0","id":"x","method":"health.ping"}\r\n':
                await client.stream.send_all(bytes((byte,)))
            assert "result" in await client.answer("x")


@pytest.mark.slow
async def test_a_very_long_line_is_handled_and_holds_no_health_request(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with (
            open_front(tmp_path) as house,
            open_client(house) as client,
            open_client(house) as other,
        ):
            house.store.add_agent()
            text = "x" * 8_000_000
            request = await client.send("message.send", {"sessionId": "session_1", "content": text})
            assert (await other.call("health.ping"))["ok"] is True
            await client.call("health.ping")
            assert request


async def test_who_has_sent_all_still_gets_the_answers_and_then_the_end(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert isinstance(client, UnixClient)
            house.store.add_agent()
            params: Json = {"sessionId": "session_1", "content": "x", "clientMessageId": "m1"}
            sent = await client.send("message.send", params)
            listed = await client.send("agent.list")
            pinged = await client.send("health.ping")
            await client.stream.send_eof()
            assert "result" in await client.answer(pinged)
            assert "result" in await client.answer(listed)
            await trio.testing.wait_all_tasks_blocked()
            house.store.begin("session_1", "m1")
            house.store.complete("session_1")
            answer = cast("Json", (await client.answer(sent))["result"])
            assert answer["outcome"] == "completed"
            assert await client.receive_raw() == b""
            assert not house.front.unix.connections


async def test_who_has_sent_all_and_waits_for_nothing_is_closed(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert isinstance(client, UnixClient)
            await client.stream.send_eof()
            assert await client.receive_raw() == b""


async def test_an_answer_of_many_bytes_is_read_to_its_end_after_the_end_of_the_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_peer, "FINISH_SECONDS", 0.01)
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert isinstance(client, UnixClient)
            house.store.add_agent()
            sent = [await client.send("health.ping", {"x": "y" * 60_000}) for _ in range(3)]
            wanted = [await client.send("agent.list") for _ in range(2_000)]
            await client.stream.send_eof()
            await trio.sleep(0.1)
            for request_id in (*sent, *wanted):
                await client.answer(request_id)
            assert await client.receive_raw() == b""


async def test_who_is_gone_is_noticed_though_a_message_is_under_way(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert isinstance(client, UnixClient)
            house.store.add_agent()
            await client.send("message.send", {"sessionId": "session_1", "content": "x"})
            await client.stream.send_eof()
            await trio.testing.wait_all_tasks_blocked()
            assert house.front.unix.connections
            await client.aclose()
            await house.front.services.wait_empty()


async def test_a_refused_client_that_goes_on_sending_is_not_read(tmp_path: Path) -> None:
    """What is left in the socket when it closes must not be taken for requests."""
    with trio.fail_after(5):
        async with open_front(tmp_path, root_pid=os.getppid()) as house:
            async with open_client(house, initialize=False) as client:
                assert isinstance(client, UnixClient)
                line = b'{"jsonrpc":"2.0","id":1,"method":"health.ping"}\n'
                await client.stream.send_all(line * 3)
                assert b"CONNECTION_AUTHENTICATION_FAILED" in await client.receive_raw()
                assert await client.receive_raw() == b""


async def test_a_refused_websocket_is_closed_with_its_code(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            async with open_client(house, "websocket", initialize=False) as client:
                assert isinstance(client, WebSocketClient)
                await client.refused("health.ping")
                with pytest.raises(ConnectionClosed) as caught:
                    await client.socket.get_message()
                assert caught.value.reason is not None
                assert caught.value.reason.code == 1008
                # The server ends the TCP connection, and at once.
                await house.front.services.wait_empty()


async def test_of_the_clients_over_the_limit_only_so_many_are_told(tmp_path: Path) -> None:
    answers: list[bytes] = []

    async def read(stream: trio.SocketStream) -> None:
        try:
            answers.append(await stream.receive_some(65_536))
        except trio.BrokenResourceError:
            answers.append(b"")

    with trio.fail_after(10):
        async with open_front(tmp_path, limits={"connections": 1}) as house:
            async with (
                open_client(house),
                AsyncExitStack() as streams,
                trio.open_nursery() as tasks,
            ):
                for _ in range(MAX_TURNED_AWAY + 10):
                    stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
                    await streams.enter_async_context(stream)
                    tasks.start_soon(read, stream)
    told = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
    assert (len(told), len(answers)) == (MAX_TURNED_AWAY, MAX_TURNED_AWAY + 10)


async def test_a_client_that_reads_some_and_then_no_more_is_closed(tmp_path: Path) -> None:
    with trio.fail_after(30):
        # Long enough for all of the requests to be sent before the first stall counts.
        async with open_front(tmp_path, timeouts={"client_stall": 1.0}) as house:
            async with open_client(house) as client:
                (peer,) = house.front.unix.connections
                ping = b'{"jsonrpc":"2.0","id":1,"method":"health.ping"}\n'
                await client.send_bytes(ping * 40_000)
                while not peer.unsent:  # noqa: ASYNC110 # no event tells of a full socket
                    await trio.sleep(0.01)
                sent = peer.sent_total
                while peer.sent_total == sent:
                    await client.receive_raw()
                    await trio.lowlevel.checkpoint()
                with trio.fail_after(10):
                    while not peer.closed:  # noqa: ASYNC110 # nor of its end
                        await trio.sleep(0.01)
                assert peer not in house.front.unix.connections
