"""Many clients on one front: what they share, what they may take, and what they leave behind."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import trio
import trio.testing

from roost.actors.front import fanout
from tests.integration.front.test_following import carriers
from tests.support.front import Client, FrontHouse, Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

S: Json = {"sessionId": "session_1"}
FROM_START: Json = {"capabilities": {"roost.cursors": {"session_1": 0}}}


async def _crowd(stack: AsyncExitStack, house: FrontHouse, count: int) -> list[Client]:
    """Return clients that will attach from the beginning."""
    clients: list[Client] = []
    for _ in range(count):
        client = await stack.enter_async_context(open_client(house, initialize=False))
        await client.initialize(**FROM_START)
        clients.append(client)
    return clients


async def _attach_at_once(house: FrontHouse, clients: list[Client]) -> list[int]:
    """Let the clients ask to be attached, and the store answer when all have asked; return their requests' ids."""
    assert house.store.link is not None
    house.store.link.close()
    numbers = [await client.send("session.attach", S) for client in clients]
    await trio.testing.wait_all_tasks_blocked()
    house.link_store()
    return numbers


async def test_clients_that_replay_together_share_what_is_read(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_front(tmp_path) as house, AsyncExitStack() as stack:
            house.store.add_agent()
            house.store.delta("session_1", *["x" * 500] * 1_000)
            clients = await _crowd(stack, house, 20)
            numbers = await _attach_at_once(house, clients)
            for client, number in zip(clients, numbers, strict=True):
                assert "result" in await client.answer(number)
                assert carriers(client.events) == list(range(1, 1_002))
            # Each alone would have read six pages.
            assert house.store.pages <= 12
            assert house.front.services.fanout.behind == 0


async def test_who_left_the_tail_at_another_place_reads_to_a_common_one(tmp_path: Path) -> None:
    cursors = (0, 50, 150, 399)
    with trio.fail_after(60):
        async with open_front(tmp_path) as house, AsyncExitStack() as stack:
            house.store.add_agent()
            house.store.delta("session_1", *["x" * 50] * 1_000)
            clients: list[Client] = []
            for after in cursors:
                client = await stack.enter_async_context(open_client(house, initialize=False))
                capabilities: Json = {"roost.cursors": {"session_1": after}}
                await client.initialize(capabilities=capabilities)
                clients.append(client)
            numbers = await _attach_at_once(house, clients)
            for client, number, after in zip(clients, numbers, cursors, strict=True):
                await client.answer(number)
                assert carriers(client.events) == list(range(after + 1, 1_002))
            # Each for itself they would have read twenty pages.
            assert house.store.pages <= 12


async def test_the_more_are_behind_the_less_may_wait_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "BEHIND_BYTES", 400_000)
    with trio.fail_after(60):
        async with open_front(tmp_path) as house, AsyncExitStack() as stack:
            house.store.add_agent()
            house.store.delta("session_1", *["x" * 4_000] * 500)
            clients = await _crowd(stack, house, 20)
            await _attach_at_once(house, clients)
            await trio.testing.wait_all_tasks_blocked()
            waiting = [connection.unsent for connection in house.front.unix.connections]
            # A page and what was allowed before it; alone, each would have a megabyte.
            assert 0 < max(waiting) < 350_000
            for client in clients:
                await _read_to(client, 501)
                assert carriers(client.events) == list(range(1, 502))


async def _read_to(client: Client, sequence: int) -> None:
    """Read until the event with this sequence has come."""
    while not client.events or carriers(client.events[-1:]) != [sequence]:
        message = await client.read()
        assert message is not None
        if "method" in message:
            client.events.append(message)


async def test_a_session_that_nobody_waits_for_any_more_is_not_followed(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            follows = house.front.services.fanout
            follows.release(follows.hold("session_1"))
            await trio.testing.wait_all_tasks_blocked()
            assert (follows.followed, house.store.watched) == (0, set())
            first = follows.hold("session_1")
            follows.release(first)
            second = follows.hold("session_1")
            await trio.testing.wait_all_tasks_blocked()
            assert second.opened.done
            assert house.store.watched == {"session_1"}
            follows.release(second)
            await trio.testing.wait_all_tasks_blocked()
            assert house.store.watched == set()


async def test_who_comes_and_goes_leaves_nothing(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_front(tmp_path, timeouts={"handshake": 0}) as house:
            for at in range(1, 6):
                house.store.add_agent(f"agent_{at}", f"session_{at}")
            async with open_client(house) as client:
                await _come_and_go(house, client, 50)
                before = _objects()
                await _come_and_go(house, client, 200)
                assert _objects() - before < 10
                services = house.front.services
                assert (len(services.attachments), services.fanout.followed) == (0, 0)
                assert services.fanout.behind == 0
                assert house.store.watched == set()
                assert len(house.front.unix.connections) == 1


async def _come_and_go(house: FrontHouse, client: Client, times: int) -> None:
    for at in range(times):
        session: Json = {"sessionId": f"session_{at % 5 + 1}"}
        await client.call("session.attach", {**session, "clientId": f"n{at % 8}"})
        await client.call("session.attach", session)
        for key in (await client.call("session.attach", session))["activeAttachmentIds"]:  # type: ignore[attr-defined]
            await client.call("session.detach", {**session, "attachmentId": key})
        async with open_client(house) as other:
            await other.call("session.attach", {**session, "clientId": "passing"})
        client.events.clear()
        house.store.heard.clear()
    while len(house.front.unix.connections) > 1:
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()


def _objects() -> int:
    gc.collect()
    return sum(type(found).__module__.startswith("roost") for found in gc.get_objects())


async def test_nothing_is_to_be_done_while_all_is_quiet_though_one_does_not_read(
    tmp_path: Path,
) -> None:
    limits: dict[str, object] = {"client_queue_bytes": 20_000}
    timeouts: dict[str, object] = {"handshake": 0, "link_call": 1.0}
    with trio.fail_after(60):
        async with (
            open_front(tmp_path, limits=limits, timeouts=timeouts) as house,
            AsyncExitStack() as stack,
        ):
            house.store.add_agent()
            (stuck,) = await _crowd(stack, house, 1)
            await stuck.send("session.attach", S)
            house.store.delta("session_1", *["x" * 4_000] * 200)
            await trio.testing.wait_all_tasks_blocked()
            timers = house.front.services.timers
            while timers.armed:  # noqa: ASYNC110 - nobody tells when a timer has fired
                await trio.sleep(0.05)
            assert max(connection.unsent for connection in house.front.unix.connections) > 0
            await _read_to(stuck, 201)
            while house.store.sessions["session_1"].delivered < 201:  # noqa: ASYNC110
                await trio.sleep(0.05)
