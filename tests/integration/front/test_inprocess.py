"""Connections of code in the front's own process: the handle's own rules (P 2.4)."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing

from roost.actors.errors import DaemonError
from tests.support.front import Json, open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 20


def _ignore(_line: bytes) -> None:
    pass


async def test_initialize_without_params_is_of_the_servers_own_version(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            handle = house.front.inprocess.connect()
            with pytest.raises(DaemonError) as caught:
                await handle.request("agent.list")
            assert caught.value.code == "CONNECTION_NOT_INITIALIZED"
            result = msgspec.json.decode(await handle.initialize())
            assert result["protocolVersion"] == "1.0.0"
            with pytest.raises(DaemonError) as caught:
                await handle.initialize()
            assert caught.value.code == "CONNECTION_ALREADY_INITIALIZED"
            handle.close()


async def test_a_refused_initialize_raises_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            with pytest.raises(DaemonError) as caught:
                await house.front.inprocess.open(_ignore, protocolVersion="9.0.0")
            assert caught.value.code == "PROTOCOL_VERSION_UNSUPPORTED"
            assert caught.value.data["serverVersion"] == "1.0.0"
            assert not house.front.inprocess.peers


async def test_dispatch_answers_a_message_as_it_is(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            handle = await house.front.inprocess.open()
            answered = handle.dispatch(
                b'{"jsonrpc":"2.0","id":"a","method":"agent.list","params":{}}'
            )
            assert not answered.done
            await trio.testing.wait_all_tasks_blocked()
            assert msgspec.json.decode(answered.result() or b"")["id"] == "a"
            nothing = handle.dispatch(b'{"jsonrpc":"2.0","method":"health.ping"}')
            assert nothing.done
            assert nothing.result() is None
            handle.close()


async def test_a_closed_handle_detaches_cancels_and_refuses_every_call(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            handle = await house.front.inprocess.open(_ignore)
            await handle.request("session.attach", {"sessionId": "session_1", "clientId": "c"})
            message: Json = {"sessionId": "session_1", "content": "x", "clientMessageId": "m1"}
            request = {"jsonrpc": "2.0", "id": 5, "method": "message.send", "params": message}
            sent = handle.dispatch(msgspec.json.encode(request))
            await handle.request("health.stats")
            handle.close()
            handle.close()
            assert handle.closed
            assert handle.ended.done
            with pytest.raises(DaemonError) as caught:
                sent.result()
            assert caught.value.code == "REQUEST_CANCELLED"
            assert caught.value.data == {"requestId": 5, "reason": "connection closed"}
            with pytest.raises(trio.ClosedResourceError):
                await handle.initialize()
            with pytest.raises(trio.ClosedResourceError):
                await handle.request("health.ping")
            with pytest.raises(trio.ClosedResourceError):
                handle.dispatch(b"{}")
            # Its turn goes on, its name is free, and nobody is attached.
            assert house.store.sessions["session_1"].messages["m1"].state == "queued"
            async with open_client(house) as client:
                named: Json = {"sessionId": "session_1", "clientId": "c"}
                await client.call("session.attach", named)
                ended = await client.call("session.detach", named)
                assert ended["remainingAttachmentIds"] == []


async def test_without_a_callback_nothing_is_delivered_and_nothing_counts_as_seen(
    tmp_path: Path,
) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            house.store.delta("session_1", *"ab")
            handle = await house.front.inprocess.open()
            attached = await handle.request("session.attach", {"sessionId": "session_1"})
            assert msgspec.json.decode(attached)["lastSequence"] == 3
            house.store.delta("session_1", *"cd")
            await handle.request("health.stats")
            async with open_client(house) as client:
                result = await client.call("session.attach", {"sessionId": "session_1"})
                assert result["resumedAfter"] == 0
            handle.close()


async def test_notifications_come_one_by_one_and_before_the_answer_they_belong_to(
    tmp_path: Path,
) -> None:
    heard: list[str] = []
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            house.store.delta("session_1", *"ab")
            handle = await house.front.inprocess.open(
                lambda line: heard.append(msgspec.json.decode(line)["method"])
            )
            params = b'{"sessionId":"session_1"}'
            answer = handle.dispatch(
                b'{"jsonrpc":"2.0","id":1,"method":"session.attach","params":' + params + b"}"
            )
            answer.then(lambda: heard.append("the answer"))
            assert not heard
            await trio.testing.wait_all_tasks_blocked()
            assert heard.count("event.message_chunk") == 2
            assert heard[-1] == "the answer"
            handle.close()


async def test_a_callback_that_fails_closes_its_own_handle_only(tmp_path: Path) -> None:
    def fail(_line: bytes) -> None:
        raise ValueError

    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            handle = await house.front.inprocess.open(fail)
            await client.call("session.attach", {"sessionId": "session_1"})
            with pytest.raises(DaemonError):
                await handle.request("session.attach", {"sessionId": "session_1"})
            assert handle.closed
            house.store.delta("session_1", "x")
            await client.until("chunk")


async def test_who_asks_again_in_every_answer_stops_nobody_else(tmp_path: Path) -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"health.ping"}'
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house) as client:
            handle = await house.front.inprocess.open()
            count = 0

            def again() -> None:
                nonlocal count
                count += 1
                if not handle.closed:
                    handle.dispatch(ping).then(again)

            again()
            for _ in range(10):
                await client.call("agent.list")
            handle.close()
            assert count > 10


async def test_nothing_of_a_closed_handle_waits_for_a_collection(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            gc.disable()
            try:
                handle = await house.front.inprocess.open(_ignore)
                await handle.request("session.attach", {"sessionId": "session_1"})
                (found,) = house.front.inprocess.peers.items()
                kept = [weakref.ref(part) for part in (handle, *found)]
                handle.close()
                del handle, found
                await trio.testing.wait_all_tasks_blocked()
                assert [ref() for ref in kept] == [None, None, None]
            finally:
                gc.enable()


async def test_the_stop_of_the_daemon_answers_what_is_open_and_closes(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            handle = await house.front.inprocess.open(_ignore)
            message: Json = {"sessionId": "session_1", "content": "x"}
            request = {"jsonrpc": "2.0", "id": 5, "method": "message.send", "params": message}
            sent = handle.dispatch(msgspec.json.encode(request))
            await handle.request("health.stats")
            await house.front.wind_down("stop", 1.0)
            assert handle.closed
            error = msgspec.json.decode(sent.result() or b"")["error"]
            assert error["data"]["code"] == "SHUTTING_DOWN"


async def test_a_thread_client_is_answered_without_jsonrpc(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            handle = house.front.inprocess.connect(_ignore)
            lines = [
                b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"in"}}}',
                b'{"id":2,"method":"schema/export"}',
                b'{"id":3,"method":"agent.list"}',
            ]
            promises = [handle.dispatch(line) for line in lines]
            await trio.testing.wait_all_tasks_blocked()
            greeting, exported, refused = (promise.result() or b"" for promise in promises)
            assert greeting.startswith(b'{"id":1,"result":')
            assert b"jsonSchema" in exported
            assert b"-32601" in refused
            handle.close()
