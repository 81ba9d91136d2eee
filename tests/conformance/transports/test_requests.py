"""What becomes of requests: one answer each, in order, cancelled, refused for their number (P 2.5, 4.2, 4.6, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import trio

from roost.schemas import agent as agent_messages, turn
from tests.support.front import TRANSPORTS, Client, Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

every_transport = pytest.mark.parametrize("transport", TRANSPORTS)
every_wire = pytest.mark.parametrize("transport", [t for t in TRANSPORTS if t != "in-process"])
MESSAGES = ("message.send", "message.stream")
MESSAGE: Json = {"sessionId": "session_1", "content": "hi"}


def _data(answer: Json) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("Json", answer["error"])["data"])


async def _next(client: Client) -> Json:
    """Return the next answer; notifications are kept."""
    while True:
        message = await client.read()
        assert message is not None, "the connection ended"
        if "method" not in message:
            return message
        client.events.append(message)


async def _send_as(client: Client, request_id: object, method: str, **params: object) -> None:
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    await client.send_raw(msgspec.json.encode(request))


@every_transport
async def test_scenario_10_a_cancelled_request_is_answered_once_and_before_the_cancel(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            for number, method in enumerate(MESSAGES):
                message_id = f"m{number}"
                request = await client.send(method, {**MESSAGE, "clientMessageId": message_id})
                wrong = await client.call("request.cancel", {"requestId": str(request)})
                assert wrong == {"requestId": str(request), "cancelled": False}
                params: Json = {"requestId": request, "reason": "no"}
                cancel = await client.send("request.cancel", params)
                first, second = await _next(client), await _next(client)
                assert (first["id"], second["id"]) == (request, cancel)
                assert _data(first) == {
                    "code": "REQUEST_CANCELLED",
                    "requestId": request,
                    "reason": "no",
                }
                assert second["result"] == {**params, "cancelled": True}
                assert (await client.call("request.cancel", params))["cancelled"] is False
                pinged = await client.send("health.ping")
                assert (await _next(client))["id"] == pinged
                message = house.store.sessions["session_1"].messages[message_id]
                assert message.outcome == "interrupted"


@every_transport
async def test_scenario_10_a_cancelled_message_whose_turn_runs_is_interrupted_and_its_end_is_not_told(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            request = await client.send("message.send", {**MESSAGE, "clientMessageId": "m1"})
            await client.call("health.stats")
            house.store.begin("session_1", "m1")
            cancel = await client.send("request.cancel", {"requestId": request})
            first, second = await _next(client), await _next(client)
            assert (first["id"], second["id"]) == (request, cancel)
            assert _data(first)["reason"] == "request.cancel"
            await client.call("health.stats")
            house.store.interrupt("session_1")
            asked = await client.send("agent.list")
            assert (await _next(client))["id"] == asked


@every_transport
async def test_scenario_10_what_cannot_be_cancelled_goes_on_and_what_waits_can(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            house.store.silent.add(turn.AcceptMessage)
            unknown = await client.call("request.cancel", {"requestId": "nobody's"})
            assert unknown["cancelled"] is False
            finished = await client.send("health.ping")
            await client.answer(finished)
            assert not (await client.call("request.cancel", {"requestId": finished}))["cancelled"]
            # The message holds the session until it is accepted, so the attach waits.
            sent = await client.send("message.send", MESSAGE)
            waiting = await client.send("session.attach", {"sessionId": "session_1"})
            assert (await client.call("request.cancel", {"requestId": waiting}))["cancelled"]
            assert _data(await client.answer(waiting))["requestId"] == waiting
            house.store.silent.add(agent_messages.ListAgents)
            listed = await client.send("agent.list")
            assert not (await client.call("request.cancel", {"requestId": listed}))["cancelled"]
            assert (await client.call("request.cancel", {"requestId": sent}))["cancelled"]
            assert "error" in await client.answer(sent)


@every_transport
async def test_scenario_10_a_request_of_another_connection_is_invisible(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with (
            open_front(tmp_path) as house,
            open_client(house) as owner,
            open_client(house, transport) as client,
        ):
            house.store.add_agent()
            await _send_as(owner, "the one", "message.send", **MESSAGE)
            await owner.call("health.stats")
            cancelled = await client.call("request.cancel", {"requestId": "the one"})
            assert cancelled["cancelled"] is False
            assert (await owner.call("request.cancel", {"requestId": "the one"}))["cancelled"]


@every_transport
async def test_an_id_in_use_is_refused_and_free_again_after_its_answer(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            await _send_as(client, 7, "message.send", **MESSAGE)
            for method in ("health.ping", "agent.list", "message.send"):
                await _send_as(client, 7, method, **(MESSAGE if method in MESSAGES else {}))
                answer = await _next(client)
                assert cast("Json", answer["error"])["message"] == (
                    "daemon request is already in flight: 7"
                )
                assert (answer["id"], _data(answer)["code"]) == (7, "INVALID_ARGUMENT")
            await _send_as(client, "7", "health.ping")
            assert (await _next(client))["id"] == "7"
            await _send_as(client, 7, "request.cancel", requestId=7)
            assert _data(await _next(client))["code"] == "REQUEST_CANCELLED"
            assert (await _next(client))["result"] == {"requestId": 7, "cancelled": True}
            await _send_as(client, 7, "health.ping")
            answer = await _next(client)
            assert (answer["id"], "result" in answer) == (7, True)


@every_transport
async def test_requests_for_one_session_keep_their_order_and_others_pass(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            house.store.add_agent("agent_2", "session_2")
            house.store.silent.add(turn.AcceptMessage)
            held = await client.send("message.send", MESSAGE)
            behind = await client.send("session.attach", {"sessionId": "session_1"})
            other = await client.send("session.attach", {"sessionId": "session_2"})
            listed = await client.send("agent.list")
            assert {(await _next(client))["id"] for _ in range(2)} == {other, listed}
            await client.call("health.ping")
            # Decisions and cancels wait for nobody, not even for their own session.
            params: Json = {"sessionId": "session_1", "requestId": "none"}
            await client.refused("tool.approve", params)
            await client.call("session.cancelTurn", {"sessionId": "session_1"})
            cancel = await client.send("request.cancel", {"requestId": held})
            assert [(await _next(client))["id"] for _ in range(3)] == [held, cancel, behind]


@every_transport
async def test_a_request_that_is_sent_behind_an_attach_finds_it_done(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            named: Json = {"sessionId": "session_1", "clientId": "c"}
            attach = await client.send("session.attach", named)
            await client.send("message.send", {**MESSAGE, "clientMessageId": "m1"})
            detach = await client.send("session.detach", named)
            answers = [(await _next(client))["id"] for _ in range(2)]
            assert answers == [attach, detach]
            kinds = [
                cast("dict[str, Any]", event["params"]).get("event", {}).get("type")
                for event in client.events
            ]
            assert "message_accepted" in kinds


@every_wire
async def test_scenario_09_too_many_are_refused_controls_pass_and_it_recovers(
    tmp_path: Path, transport: str
) -> None:
    limits: dict[str, object] = {"in_flight_requests": 2, "queued_requests": 3}
    with trio.fail_after(20):
        async with (
            open_front(tmp_path, limits=limits) as house,
            open_client(house, transport) as client,
        ):
            house.store.add_agent()
            house.store.silent.add(agent_messages.ListAgents)
            listed = [await client.send("agent.list") for _ in range(6)]
            assert _data(await client.answer(listed[-1])) == {
                "code": "TOO_MANY_QUEUED_REQUESTS",
                "maxQueuedRequests": 3,
            }
            await client.call("health.ping")
            await client.call("session.cancelTurn", {"sessionId": "session_1"})
            assert (await client.call("request.cancel", {"requestId": listed[4]}))["cancelled"]
            house.store.silent.clear()
            house.link_store()
            for request_id in listed[:4]:
                assert "result" in await client.answer(request_id)
            assert "agents" in await client.call("agent.list")


@every_transport
async def test_scenario_09_the_33rd_message_is_refused_and_has_no_effect(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            found = house.store.add_agent()
            ids = [await client.send("message.send", MESSAGE) for _ in range(33)]
            assert _data(await client.answer(ids[-1])) == {
                "code": "TOO_MANY_IN_FLIGHT_REQUESTS",
                "maxInFlightRequests": 32,
            }
            await client.call("session.cancelTurn", {"sessionId": "session_1"})
            assert (await client.call("request.cancel", {"requestId": ids[0]}))["cancelled"]
            later = await client.send("message.send", MESSAGE)
            assert (await client.call("request.cancel", {"requestId": later}))["cancelled"]
            await client.call("health.stats")
            assert len(found.messages) == 33


@every_wire
async def test_scenario_09_200_short_requests_in_one_go_are_all_answered(
    tmp_path: Path, transport: str
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            ids = [await client.send("agent.list") for _ in range(200)]
            for request_id in ids:
                assert "result" in await client.answer(request_id)


async def test_scenario_09_the_33rd_request_of_a_caller_in_the_process_is_refused_whatever_it_is(
    tmp_path: Path,
) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, "in-process") as client:
            house.store.add_agent()
            house.store.silent.add(agent_messages.ListAgents)
            sent = [await client.send("message.send", MESSAGE) for _ in range(16)]
            for _ in range(16):
                await client.send("agent.list")
            for method, params in (("agent.list", {}), ("message.send", MESSAGE)):
                error = await client.refused(method, params)
                assert cast("Json", error["data"]) == {
                    "code": "TOO_MANY_IN_FLIGHT_REQUESTS",
                    "maxInFlightRequests": 32,
                }
            await client.call("health.ping")
            assert (await client.call("request.cancel", {"requestId": sent[0]}))["cancelled"]
            last = await client.send("message.send", MESSAGE)
            assert (await client.call("request.cancel", {"requestId": last}))["cancelled"]


@every_wire
async def test_scenario_09_a_burst_is_limited_controls_pass_and_it_recovers(
    tmp_path: Path, transport: str
) -> None:
    limits: dict[str, object] = {
        f"{kind}_{what}": value
        for kind in ("unix", "tcp")
        for what, value in (("rate", 20), ("burst", 4))
    }
    with trio.fail_after(20):
        async with (
            open_front(tmp_path, limits=limits) as house,
            open_client(house, transport) as client,
        ):
            ids = [await client.send("health.ping") for _ in range(8)]
            data = _data([await client.answer(request_id) for request_id in ids][-1])
            assert data == {
                "code": "RATE_LIMITED",
                "requestRatePerSecond": 20,
                "requestBurst": 4,
                "retryAfterMs": 50,
            }
            await client.send_raw(b"[]")
            assert _data(await _next(client))["code"] == "RATE_LIMITED"
            assert not (await client.call("request.cancel", {"requestId": 1}))["cancelled"]
            await client.call("session.cancelTurn", {"sessionId": "x"})
            for _ in range(10):
                await trio.sleep(data["retryAfterMs"] / 1000)
                if "result" in await client.answer(await client.send("health.ping")):
                    return
            pytest.fail("it did not recover")


@every_transport
async def test_scenario_25_no_byte_of_two_messages_is_interleaved_under_32_parallel_requests(
    tmp_path: Path, transport: str
) -> None:
    texts = [f"{number}:" + chr(97 + number % 26) * 20_000 for number in range(64)]
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            row = house.store.agents["agent_1"]
            spec = msgspec.structs.replace(row.spec, objective="o" * 20_000)
            house.store.agents["agent_1"] = msgspec.structs.replace(row, spec=spec)
            await client.call("session.attach", {"sessionId": "session_1"})
            client.events.clear()
            ids: list[int] = []
            for number in range(32):
                ids.append(await client.send("agent.list"))
                # What is read only later fills the buffers between, so that messages are sent in pieces.
                house.store.delta("session_1", *texts[2 * number : 2 * number + 2])
            for request_id in ids:
                assert "result" in await client.answer(request_id)
            found: list[str] = []
            while len(found) < len(texts):
                event = await client.event()
                if event["method"] == "event.message_chunk":
                    found.append(cast("dict[str, Any]", event["params"])["delta"])
            assert found == texts


@every_transport
async def test_long_lines_pass_both_ways(tmp_path: Path, transport: str) -> None:
    with trio.fail_after(20):
        async with open_front(tmp_path) as house, open_client(house, transport) as client:
            house.store.add_agent()
            await client.call("session.attach", {"sessionId": "session_1"})
            for size in (65 * 1024, 1024 * 1024, 3 * 1024 * 1024):
                error = await client.refused("health.ping", {"x" * size: 1})
                assert cast("Json", error["data"])["code"] == "INVALID_ARGUMENT"
                client.events.clear()
                house.store.delta("session_1", "é" * (size // 2))
                event = await client.event()
                assert cast("dict[str, Any]", event["params"])["delta"] == "é" * (size // 2)


@every_transport
async def test_a_message_of_the_limit_passes_and_one_byte_more_is_refused(
    tmp_path: Path, transport: str
) -> None:
    limit = 1024 * 1024
    start = b'{"jsonrpc":"2.0","id":"x","method":"health.ping","params":{"x":"'
    longest = start + b"y" * (limit - len(start) - 3) + b'"}}'
    with trio.fail_after(20):
        async with (
            open_front(tmp_path, limits={"line_bytes": limit}) as house,
            open_client(house, transport) as client,
        ):
            await client.send_raw(longest)
            assert _data(await client.answer("x"))["code"] == "INVALID_ARGUMENT"
            await client.send_raw(longest + b" ")
            if transport == "in-process":
                # There is no framing to be lost, so the connection goes on.
                assert _data(await _next(client))["code"] == "MESSAGE_TOO_LARGE"
                await client.call("health.ping")
                return
            last = b""
            while raw := await client.receive_raw():
                last = raw
            assert b"MESSAGE_TOO_LARGE" in last
            async with open_client(house, transport) as other:
                await other.call("health.ping")
