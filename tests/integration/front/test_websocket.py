"""What is the WebSocket's own: frames that break its protocol, its way to close, and its upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import trio
from trio_websocket import ConnectionClosed

from roost.actors.front import socket_peer
from tests.support.front import COOKIE, Client, Json, WebSocketClient, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front import FrontHouse

LIMIT = 20
PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping"}'
frame = WebSocketClient.frame


def _websocket(client: Client) -> WebSocketClient:
    assert isinstance(client, WebSocketClient)
    return client


async def _closed_with(client: Client) -> tuple[int, str]:
    """Return the code and the reason of the close that comes next."""
    with pytest.raises(ConnectionClosed) as caught:
        await _websocket(client).socket.get_message()
    reason = caught.value.reason
    assert reason is not None
    return reason.code, reason.reason or ""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(PING % 2, masked=False), 1002),
        (frame(PING % 2, rsv=4), 1002),
        (frame(PING % 2, opcode=3), 1002),
        (frame(PING % 2, opcode=0), 1002),
        (frame(b"x" * 126, opcode=9), 1002),
        (frame(b"x", opcode=8), 1002),
        (frame(b"\xff"), 1007),
    ],
)
async def test_a_broken_frame_is_closed_with_its_code_after_what_came_before_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, code: int
) -> None:
    monkeypatch.setattr(socket_peer, "FINISH_SECONDS", 0.1)
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "websocket") as client:
            await client.send_bytes(frame(PING % 100) + data + frame(PING % 101) * 3)
            assert "result" in await client.answer(100)
            assert (await _closed_with(client))[0] == code
            await house.front.services.wait_empty()


@pytest.mark.parametrize("size", [16 * 1024 * 1024 + 1, 2**40, 2**63])
async def test_a_frame_that_announces_too_much_is_refused_by_its_head(
    tmp_path: Path, size: int
) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "websocket") as client:
            await client.send_bytes(b"\x81\xff" + size.to_bytes(8))
            message = await client.read()
            assert message is not None
            error = cast("Json", message["error"])
            assert error["data"] == {"code": "MESSAGE_TOO_LARGE", "limit": 16 * 1024 * 1024}
            assert message["id"] is None
            code, reason = await _closed_with(client)
            assert (code, reason) == (1009, error["message"])


@pytest.mark.parametrize("code", [1000, 1001, 4000])
async def test_a_close_is_answered_with_its_code_and_ends_the_connection(
    tmp_path: Path, code: int
) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "websocket") as client:
            await client.send_bytes(
                frame(PING % 100) + frame(code.to_bytes(2) + b"bye", opcode=8) + frame(PING % 101)
            )
            assert "result" in await client.answer(100)
            assert (await _closed_with(client))[0] == code
            await house.front.services.wait_empty()


async def test_a_ping_is_answered_with_its_payload(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
            async with stream:
                await stream.send_all(_upgrade_of(house) + frame(b"are you there", opcode=9))
                _, _, rest = (await _read_upgrade(stream)).partition(b"\r\n\r\n")
                while len(rest) < 15:
                    rest += await stream.receive_some(65_536)
                assert rest == b"\x8a\x0dare you there"
            await house.front.services.wait_empty()


async def _read_upgrade(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65_536)
        assert more
        data += more
    return data


def _upgrade_of(house: FrontHouse) -> bytes:
    return (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{house.tcp_port}\r\nUpgrade: WebSocket\r\n"
        "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {COOKIE}\r\n\r\n"
    ).encode()


async def test_what_comes_behind_the_upgrade_in_one_write_is_served(tmp_path: Path) -> None:
    initialize = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0"}}'
    )
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
            async with stream:
                await stream.send_all(_upgrade_of(house) + frame(initialize) + frame(PING % 2))
                data = await _read_upgrade(stream)
                head, _, rest = data.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 101 ")
                assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
                assert b"extensions" not in head.lower()
                while b'"id":2' not in rest:
                    rest += await stream.receive_some(65_536)
                # The server does not mask.
                assert rest[:1] == b"\x81"
            await house.front.services.wait_empty()


async def test_a_client_that_goes_on_sending_can_still_read_why_it_was_closed(
    tmp_path: Path,
) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path, limits={"line_bytes": 10_000}) as house:
            stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
            async with stream:
                await stream.send_all(_upgrade_of(house))
                await _read_upgrade(stream)
                for _ in range(50):
                    await stream.send_all(frame(b"x" * 60_000))
                data = b""
                while more := await stream.receive_some(65_536):
                    data += more
                assert b"MESSAGE_TOO_LARGE" in data
                assert (1009).to_bytes(2) in data
            await house.front.services.wait_empty()


async def test_who_does_not_read_is_not_waited_for_when_it_is_closed(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            stream = await trio.open_tcp_stream("127.0.0.1", house.tcp_port)
            async with stream:
                await stream.send_all(_upgrade_of(house))
                await _read_upgrade(stream)
                (connection,) = house.front.tcp.connections
                for _ in range(100):
                    connection.answer(b'"' + b"x" * 100_000 + b'"\n')
                connection.finish(1001, "the test wants it")
                await house.front.services.wait_empty()
                assert not house.front.tcp.connections


async def test_nothing_follows_the_close_frame_and_nothing_counts_as_seen(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            async with open_client(house, "websocket") as client:
                await client.call("session.attach", {"sessionId": "session_1"})
                house.store.delta("session_1", "seen")
                await client.until("chunk")
                (connection,) = house.front.tcp.connections
                connection.finish(1001, "the test wants it")
                house.store.delta("session_1", "missed")
                assert (await _closed_with(client))[0] == 1001
            async with open_client(house) as client:
                await client.call("session.attach", {"sessionId": "session_1"})
                deltas = [e for e in client.events if e["method"] == "event.message_chunk"]
                assert [cast("Json", e["params"])["delta"] for e in deltas] == ["missed"]
