"""Where a message begins and ends on each transport, however its bytes come (P 2.1 to 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import trio
import trio.testing

from tests.support.front import open_client, open_front
from tests.support.front_clients import LineClient, StdioClient, WebSocketClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front import Client, Json

every_stream = pytest.mark.parametrize("transport", ["unix", "stdio"])
WIRES = ("unix", "stdio", "websocket")
PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping"}'


def _line_client(client: Client) -> LineClient:
    assert isinstance(client, LineClient)
    return client


def _wire(client: Client, *messages: bytes) -> list[bytes]:
    """Return the bytes of messages as they go over the wire."""
    if isinstance(client, WebSocketClient):
        return [client.frame(message) for message in messages]
    return [message + b"\n" for message in messages]


@pytest.mark.parametrize("transport", WIRES)
async def test_several_messages_in_one_write_are_several_messages(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            wire = _wire(client, *(PING % number for number in range(100, 150)))
            await client.send_bytes(b"".join(wire))
            for number in range(100, 150):
                assert "result" in await client.answer(number)


@pytest.mark.parametrize("transport", WIRES)
async def test_a_message_that_comes_byte_by_byte_is_one_message(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            (wire,) = _wire(client, PING % 100)
            for byte in wire:
                await client.send_bytes(bytes((byte,)))
                await trio.testing.wait_all_tasks_blocked()
            assert "result" in await client.answer(100)


@pytest.mark.parametrize("transport", WIRES)
async def test_the_end_of_a_message_and_the_beginning_of_the_next_may_come_together(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            first, second = _wire(client, PING % 100, PING % 101)
            await client.send_bytes(first[:20])
            await trio.testing.wait_all_tasks_blocked()
            await client.send_bytes(first[20:] + second[:20])
            assert "result" in await client.answer(100)
            await client.send_bytes(second[20:])
            assert "result" in await client.answer(101)


@pytest.mark.parametrize("transport", WIRES)
async def test_what_came_before_a_message_that_is_too_long_is_answered(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with (
            open_front(tmp_path, limits={"line_bytes": 10_000}) as house,
            open_client(house, transport) as client,
        ):
            pings = [PING % number for number in range(100, 140)]
            wire = _wire(client, *pings, b"x" * 20_000, PING % 200)
            await client.send_bytes(b"".join(wire))
            answers = [await client.read() for _ in range(41)]
            assert [answer and answer["id"] for answer in answers] == [*range(100, 140), None]
            assert await client.receive_raw() == b""


@every_stream
async def test_lines_may_end_in_cr_lf_and_empty_ones_are_ignored(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            lines = b"\n\r\n" + PING % 100 + b"\r\n  \n\n" + PING % 101 + b"\n\r\n\r\n"
            await _line_client(client).send_bytes(lines)
            for number in (100, 101):
                raw = await client.receive_raw()
                assert msgspec.json.decode(raw)["id"] == number
                assert b"\r" not in raw
            await client.call("health.ping")


@every_stream
async def test_a_byte_order_mark_and_a_nul_are_parse_errors_and_the_next_line_is_read(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            for start in (b"\xef\xbb\xbf", b"\x00", b"\xff\xff"):
                await _line_client(client).send_bytes(start + PING % 100 + b"\n")
                message = await client.read()
                assert message is not None
                assert cast("Json", message["error"])["code"] == -32700
                assert message["id"] is None
            await client.call("health.ping")


@every_stream
async def test_after_the_end_of_the_input_everything_is_answered_and_then_it_ends(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            await client.call("session.attach", {"sessionId": "session_1"})
            params: Json = {"sessionId": "session_1", "content": "x", "clientMessageId": "m1"}
            sent = await client.send("message.send", params)
            listed = await client.send("agent.list")
            # An unfinished line is no message.
            await _line_client(client).send_bytes(PING % 100)
            await _line_client(client).end_input()
            assert "result" in await client.answer(listed)
            while not house.store.sessions["session_1"].messages:
                await client.event()
            house.store.begin("session_1", "m1")
            house.store.delta("session_1", "late")
            house.store.complete("session_1")
            answer = cast("dict[str, Any]", (await client.answer(sent))["result"])
            assert answer["outcome"] == "completed"
            assert any(event["method"] == "event.message_chunk" for event in client.events)
            assert await client.receive_raw() == b""
            if isinstance(client, StdioClient):
                assert await client.process.wait() == 0


@every_stream
async def test_the_end_of_the_input_ends_a_connection_that_waits_for_nothing(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            await _line_client(client).end_input()
            assert await client.receive_raw() == b""
            if isinstance(client, StdioClient):
                assert await client.process.wait() == 0
            await house.front.services.wait_empty()


async def test_a_message_in_many_fragments_is_one_and_control_frames_may_stand_between(
    tmp_path: Path,
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, "websocket") as client:
            assert isinstance(client, WebSocketClient)
            message = PING % 100
            await client.send_bytes(client.frame(message[:1], final=False))
            for at in range(1, len(message)):
                await client.send_bytes(client.frame(message[at : at + 1], opcode=0, final=False))
            await client.send_bytes(client.frame(b"are you there", opcode=9))
            await client.send_bytes(client.frame(b"", opcode=0))
            assert "result" in await client.answer(100)
