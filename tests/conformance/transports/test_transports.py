"""What every transport must do alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import trio

from tests.support.front import TRANSPORTS, Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

every_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def _code(error: Json) -> object:
    return cast("dict[str, Any]", error["data"])["code"]


@every_transport
async def test_initialize_advertises_what_is_wired(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house:
            async with open_client(house, transport, initialize=False) as client:
                result = cast("dict[str, Any]", await client.initialize())
    methods = result["capabilities"]["daemon.methods"]
    assert len(methods) == 42
    assert methods["message.stream"] is True
    assert methods["thread/realtime/start"] is False
    assert result["protocol"] == {"version": "1.0.0"}


@every_transport
async def test_what_follows_initialize_in_one_write_is_served(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house:
            async with open_client(house, transport, initialize=False) as client:
                cookie = "c" * 64
                params: Json = {"protocolVersion": "1.0.0", "authCookie": cookie}
                first = await client.send("initialize", params)
                second = await client.send("health.ping")
                assert "result" in await client.answer(first)
                assert "result" in await client.answer(second)


@every_transport
async def test_a_refused_version_leaves_the_connection_usable(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house:
            async with open_client(house, transport, initialize=False) as client:
                params: Json = {"protocolVersion": "1.2.0", "authCookie": "c" * 64}
                error = await client.refused("initialize", params)
                assert _code(error) == "PROTOCOL_VERSION_UNSUPPORTED"
                assert cast("Json", error["data"])["serverVersion"] == "1.0.0"
                await client.initialize()
                assert _code(
                    await client.refused("initialize", {**params, "protocolVersion": "1.0"})
                ) == ("CONNECTION_ALREADY_INITIALIZED")


@every_transport
async def test_events_come_before_the_attach_answer_and_live_ones_after(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            house.store.delta("session_1", *map(str, range(500)))
            result = await client.call("session.attach", {"sessionId": "session_1"})
            assert _sequences(client.events) == list(range(1, 502))
            assert client.events[-1]["method"] == "event.agent_status"
            assert result["lastSequence"] == 501
            client.events.clear()
            house.store.delta("session_1", "live")
            event = await client.event()
            assert cast("dict[str, Any]", event["params"])["sequence"] == 502
            house.store.add_agent("agent_2", "session_2")
            house.store.delta("session_2", *map(str, range(300)))
            await client.call("agent.attach", {"agentId": "agent_2"})
            assert _sequences(client.events) == list(range(1, 302))


@every_transport
async def test_a_message_is_answered_behind_the_last_event_of_its_turn(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            await client.call("session.attach", {"sessionId": "session_1", "clientId": "c"})
            client.events.clear()
            params: Json = {"sessionId": "session_1", "content": "hi", "clientMessageId": "m1"}
            request = await client.send("message.stream", params)
            await client.event()
            house.store.begin("session_1", "m1")
            house.store.delta("session_1", "a", "b")
            house.store.complete("session_1")
            answer = cast("dict[str, Any]", (await client.answer(request))["result"])
            assert answer["outcome"] == "completed"
            assert answer["terminal"] == {"code": 0, "message": "completed"}
            assert _sequences(client.events) == [2, 3, 4, 5]
            again = await client.call("message.stream", params)
            assert again["disposition"] == "duplicate"
            assert again["duplicateState"] == "completed"
            assert _code(await client.refused("message.send", {**params, "content": "other"})) == (
                "CLIENT_MESSAGE_ID_CONFLICT"
            )


@every_transport
async def test_a_lost_connection_does_not_interrupt_its_turn(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house) as other:
            house.store.add_agent()
            params: Json = {"sessionId": "session_1", "content": "hi", "clientMessageId": "m1"}
            async with open_client(house, transport) as client:
                await client.send("message.send", params)
                await client.call("health.stats")
            assert house.store.sessions["session_1"].messages["m1"].state == "queued"
            request = await other.send("message.send", params)
            await other.call("health.stats")
            house.store.begin("session_1", "m1")
            house.store.complete("session_1")
            answer = await other.answer(request)
            assert cast("dict[str, Any]", answer["result"])["disposition"] == "duplicate"


@every_transport
async def test_a_stop_answers_what_is_open_and_closes(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            request = await client.send("message.send", {"sessionId": "session_1", "content": "hi"})
            await client.call("health.stats")
            house.front.draining("stop")
            assert (await client.call("health.ready"))["ready"] is False
            assert _code(await client.refused("agent.list")) == "SHUTTING_DOWN"
            house.nursery.start_soon(house.front.wind_down, "stop", 5.0)
            error = cast("Json", (await client.answer(request))["error"])
            assert _code(error) == "SHUTTING_DOWN"
            assert await client.receive_raw() == b""


async def test_two_transports_see_the_same_events_and_a_cursor_misses_nothing(
    tmp_path: Path,
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, "unix") as unix:
            house.store.add_agent()
            attach: Json = {"sessionId": "session_1"}
            await unix.call("session.attach", attach)
            async with open_client(house, "websocket") as web:
                await web.call("session.attach", attach)
                web.events.clear()
                house.store.delta("session_1", *"abc")
                seen = [await web.event() for _ in "abc"]
                last = _sequences(seen)[-1]
            house.store.delta("session_1", *"defg")
            cursors = {"roost.cursors": {"session_1": last}}
            async with open_client(house, "websocket", capabilities=cursors) as web:
                result = await web.call("session.attach", attach)
                assert result["resumedAfter"] == last
                seen += web.events
            await unix.call("health.ping")
            mine = [event for event in unix.events if _sequences([event])]
            assert [event for event in seen if _sequences([event])] == mine[1:]
            assert _sequences(mine) == list(range(1, 9))


def _sequences(events: list[Json]) -> list[int]:
    """Return the sequences of the carriers."""
    found: list[int] = []
    for event in events:
        params = cast("dict[str, Any]", event["params"])
        if "sequence" in params and not params.get("metadata", {}).get("derived"):
            found.append(params["sequence"])
    return found


def test_the_helper_leaves_derived_ones_out() -> None:
    derived = msgspec.json.decode(b'{"params":{"sequence":1,"metadata":{"derived":true}}}')
    assert _sequences([derived]) == []
