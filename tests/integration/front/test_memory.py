"""What has ended is given back at once: nothing of it waits for a collection of cycles."""

from __future__ import annotations

import contextlib
import gc
import struct
import weakref
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from trio.socket import SO_LINGER, SOL_SOCKET

from roost.schemas.thread_log import ReadItems
from tests.support.front import (
    Client,
    FrontHouse,
    Json,
    UnixClient,
    WebSocketClient,
    open_client,
    open_front,
)
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from pathlib import Path

    Use = Callable[[FrontHouse, Client, str], Awaitable[None]]

S: Json = {"sessionId": "session_1"}
NOWHERE: Json = {"sessionId": "session_9"}


async def _nothing(house: FrontHouse, client: Client, name: str) -> None:
    await client.call("health.ping")


async def _attach(house: FrontHouse, client: Client, name: str) -> None:
    await client.call("session.attach", {**S, "clientId": "a"})
    house.store.ask_question("session_1", name)
    await client.event()


async def _attach_and_detach(house: FrontHouse, client: Client, name: str) -> None:
    await client.call("session.attach", {**S, "clientId": "a"})
    await client.call("session.detach", {**S, "clientId": "a"})


async def _be_refused(house: FrontHouse, client: Client, name: str) -> None:
    await client.refused("session.attach", NOWHERE)
    await client.refused("message.send", {**NOWHERE, "content": "x"})
    await client.refused("agent.logs", {"agentId": "agent_9"})
    await client.refused("agent.create", {"objective": "x", "cwd": "/nowhere/at/all"})


async def _ask(house: FrontHouse, client: Client, name: str) -> int:
    params: Json = {**S, "content": "x", "clientMessageId": name}
    request = await client.send("message.send", params)
    await client.call("health.stats")
    return request


async def _send(house: FrontHouse, client: Client, name: str) -> None:
    request = await _ask(house, client, name)
    house.store.begin("session_1", name)
    house.store.complete("session_1")
    await client.answer(request)


async def _leave_open(house: FrontHouse, client: Client, name: str) -> None:
    await _ask(house, client, name)


async def _cancel(house: FrontHouse, client: Client, name: str) -> None:
    request = await _ask(house, client, name)
    await client.call("request.cancel", {"requestId": request})
    assert "error" in await client.answer(request)


async def _be_dropped(house: FrontHouse, client: Client, name: str) -> None:
    for peer in (*house.front.unix.connections, *house.front.tcp.connections):
        peer.abort("test")
    assert not await client.receive_raw()


async def _break_off(house: FrontHouse, client: Client, name: str) -> None:
    stream = client.stream if isinstance(client, UnixClient | WebSocketClient) else None
    assert stream is not None
    if isinstance(client, WebSocketClient):
        stream.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()


async def _use(house: FrontHouse, transport: str, use: Use, name: str) -> None:
    async with open_client(house, transport) as client:
        kept = [
            weakref.ref(part)
            for found in _clients(house)
            for part in found  # the connection and its caller
        ]
        assert len(kept) == 2
        await use(house, client, name)
    await house.front.services.wait_empty()
    # The tasks that served it have ended with the next passes.
    await trio.testing.wait_all_tasks_blocked()
    assert [ref() for ref in kept] == [None, None]


def _clients(house: FrontHouse) -> list[tuple[object, object]]:
    doors = (house.front.unix, house.front.tcp)
    return [(found, found.caller) for door in doors for found in door.connections]


@pytest.mark.parametrize("transport", ["unix", "websocket"])
@pytest.mark.parametrize(
    "use",
    [
        _nothing,
        _attach,
        _attach_and_detach,
        _be_refused,
        _send,
        _leave_open,
        _cancel,
        _be_dropped,
        _break_off,
    ],
)
async def test_an_ended_connection_leaves_no_cycle(
    tmp_path: Path, transport: str, use: Use
) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            await _use(house, transport, use, "first")
            with _no_collection():
                await _use(house, transport, use, "second")
                await _use(house, transport, use, "third")
                gc.collect()
                left = [repr(o)[:200] for o in gc.garbage if _is_ours(o)]
            assert left == []


def _is_ours(found: object) -> bool:
    return type(found).__module__.partition(".")[0] == "roost"


async def test_who_goes_while_a_thread_is_opened_leaves_it_to_nobody(tmp_path: Path) -> None:
    async with open_front(tmp_path) as house:
        house.store.add_agent()
        house.store.silent.add(ReadItems)
        stream = await trio.open_unix_socket(house.socket_path)
        await stream.send_all(
            b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"x"}}}\n'
            b'{"id":2,"method":"thread/resume","params":{"threadId":"session_1"}}\n'
        )
        threads = house.front.services.threads
        with trio.fail_after(10):
            await until(lambda: any(isinstance(one, ReadItems) for one in house.store.heard))
            assert len(threads) == 1
            await stream.aclose()
            await until(lambda: len(threads) == 0)
            await until(lambda: not house.store.watched)
