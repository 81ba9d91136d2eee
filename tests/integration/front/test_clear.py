"""Who is told that a conversation begins anew, and where between the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio
import trio.testing

from roost.actors.front.services import READERS
from roost.schemas.session import ReadTexts
from tests.support.front import open_front
from tests.support.front_clients import open_client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front_clients import Client, Json

S: Json = {"sessionId": "session_1"}


def told(client: Client) -> list[object]:
    """Return what a client was told, in order: sequences of events, and ids of clears."""
    found: list[object] = []
    for event in client.events:
        params = cast("dict[str, Any]", event["params"])
        if params.get("event", {}).get("type") == "history_cleared":
            found.append(params["eventId"])
        elif "sequence" in params:
            found.append(params["sequence"])
    return found


def clear_id(result: Json) -> str:
    return f"history-cleared-session_1-{result['clearedAt']}"


async def test_a_clear_is_told_before_its_answer_and_once_however_many_names_there_are(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            house.store.delta("session_1", "a")
            first = await client.call("session.clear", S)
            assert told(client) == [1, 2, clear_id(first)]
            await client.call("session.attach", {**S, "clientId": "again"})
            second = await client.call("session.clear", S)
            house.store.delta("session_1", "b")
            while told(client)[-1] != 3:
                message = await client.read()
                assert message is not None
                client.events.append(message)
            await client.call("session.attach", {**S, "clientId": "third"})
            assert told(client) == [1, 2, clear_id(first), clear_id(second), 3]


async def test_who_comes_back_to_the_place_of_a_clear_is_told_again_and_who_is_behind_it_is_not(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            house.store.delta("session_1", "a")
            async with open_client(house) as client:
                cleared = clear_id(await client.call("session.clear", S))
            house.store.delta("session_1", "b")
            for after, expected in ((1, [2, cleared, 3]), (2, [cleared, 3]), (3, [])):
                cursors = {"roost.cursors": {"session_1": after}}
                async with open_client(house, capabilities=cursors) as late:
                    await late.call("session.attach", S)
                    assert told(late) == expected


async def test_a_client_without_room_hears_of_a_clear_where_it_stands_once_it_reads(
    tmp_path: Path,
) -> None:
    limits: dict[str, object] = {"client_queue_bytes": 10_000}
    with trio.fail_after(10):
        async with open_front(tmp_path, limits=limits) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            (stuck,) = house.front.unix.connections
            last = 0
            while stuck.has_room:
                last = house.store.delta("session_1", "x" * 50_000)
                await trio.testing.wait_all_tasks_blocked()
            async with open_client(house) as other:
                cleared = clear_id(await other.call("session.clear", S))
            house.store.delta("session_1", "after")
            await client.call("health.stats")
            while last + 1 not in told(client):
                message = await client.read()
                assert message is not None
                client.events.append(message)
            assert told(client) == [*range(1, last + 1), cleared, last + 1]


async def test_a_clear_that_happened_without_a_link_to_the_store_is_told_when_there_is_one(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            found = house.store.add_agent()
            await client.call("session.attach", S)
            assert house.store.link is not None
            house.store.link.close()
            await trio.testing.wait_all_tasks_blocked()
            found.cleared = (1, 1_700_000_000_000)
            house.link_store()
            await client.call("session.list")
            while len(told(client)) < 2:
                message = await client.read()
                assert message is not None
                client.events.append(message)
            assert told(client) == [1, "history-cleared-session_1-2023-11-14T22:13:20.000Z"]


async def test_only_some_transcripts_are_made_at_once_and_the_others_in_turn(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            house.store.silent.add(ReadTexts)
            numbers = [await client.send("session.transcript", S) for _ in range(10)]
            async with open_client(house) as gone:
                for _ in range(3):
                    await gone.send("session.transcript", S)
                await gone.call("health.ping")
            await client.call("health.ping")
            await trio.testing.wait_all_tasks_blocked()
            assert sum(isinstance(message, ReadTexts) for message in house.store.heard) == READERS
            # A new link carries again what was not answered.
            house.store.silent.clear()
            assert house.store.link is not None
            house.store.link.close()
            await trio.testing.wait_all_tasks_blocked()
            house.link_store()
            for number in numbers:
                answer = await client.answer(number)
                assert cast("dict[str, Any]", answer["result"])["messages"] == []
