"""Several clients on one session, over both transports."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    open_websocket_url,
    wrap_client_stream,
)

from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    create_agent,
    is_method,
    next_note,
    send_script,
    status_is,
    within,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bench.daemon import Json

pytestmark = pytest.mark.slow


class WsClient:
    """A client on the WebSocket."""

    def __init__(self, ws: WebSocketConnection) -> None:
        self.ws = ws
        self.number = 0
        self.notes: list[Json] = []

    async def call(self, method: str, **params: object) -> Json:
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        await self.ws.send_message(json.dumps(request))
        while True:
            message: Json = json.loads(await self.ws.get_message())
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: Json = message["result"]  # type: ignore[assignment]
                return result
            self.notes.append(message)

    async def until_idle(self, session: str) -> None:
        """Read until a turn has ended; the status that an attach ends with has no turn."""
        matches = status_is(session, "idle")
        while not any(matches(note) and "turnId" in note["params"] for note in self.notes):  # type: ignore[operator]
            self.notes.append(json.loads(await self.ws.get_message()))


def info(daemon: RunningDaemon) -> tuple[str, str]:
    url: str = json.loads((daemon.home / "daemon.json").read_text())["websocket"]
    return url, (daemon.home / "daemon.cookie").read_text().strip()


@asynccontextmanager
async def websocket(daemon: RunningDaemon, **capabilities: object) -> AsyncGenerator[WsClient]:
    url, cookie = info(daemon)
    with trio.fail_after(30):
        async with open_websocket_url(url) as ws:
            client = WsClient(ws)
            await client.call(
                "initialize",
                protocolVersion="1.0.0",
                authCookie=cookie,
                capabilities=capabilities,
            )
            yield client


async def test_both_transports_see_the_same_events_and_one_comes_back_with_its_cursor(
    daemon: RunningDaemon,
) -> None:
    unix = daemon.client()
    _, session = create_agent(unix)
    attach(unix, session, "unix")
    async with websocket(daemon) as first:
        await first.call("session.attach", sessionId=session, clientId="ws")
        unix.answer(send_script(unix, session, {"say": "one two three", "chunks": 3}))
        await first.until_idle(session)
    seen = carriers(first.notes, session)
    last = int(str(seen[-1]["sequence"]))
    unix.answer(send_script(unix, session, {"say": "four five six", "chunks": 3}))
    async with websocket(daemon, **{"roost.cursors": {session: last}}) as second:
        result = await second.call("session.attach", sessionId=session, clientId="ws")
        assert result["resumedAfter"] == last
        unix.answer(send_script(unix, session, {"say": "seven"}))
        expected = len(carriers(unix.notes, session)) - 1 - len(seen)
        while len(carriers(second.notes, session)) < expected:
            second.notes.append(json.loads(await second.ws.get_message()))
    seen += carriers(second.notes, session)
    # The first event was written to the Unix client before the other attached, who starts after it.
    there = carriers(unix.notes, session)[1:]
    assert [(e["sequence"], e["eventId"]) for e in seen] == [
        (e["sequence"], e["eventId"]) for e in there
    ]
    assert [e["sequence"] for e in seen] == list(range(2, len(seen) + 2))


async def test_a_wrong_cookie_on_the_websocket_is_refused(daemon: RunningDaemon) -> None:
    url, _ = info(daemon)
    with trio.fail_after(10):
        # A client whose server closes first leaves its own socket open, so it is closed here.
        host = url.removeprefix("ws://").rstrip("/")
        name, _, port = host.rpartition(":")
        async with await trio.open_tcp_stream(name, int(port)) as stream, trio.open_nursery() as n:
            ws = await wrap_client_stream(n, stream, host, "/")
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {"protocolVersion": "1.0.0", "authCookie": "0" * 64},
            }
            await ws.send_message(json.dumps(request))
            answer = json.loads(await ws.get_message())
            assert answer["error"]["data"]["code"] == "CONNECTION_AUTHENTICATION_FAILED"
            with pytest.raises(ConnectionClosed) as caught:
                await ws.get_message()
            assert caught.value.reason is not None
            assert caught.value.reason.code == 1008


def test_the_first_decision_wins_and_the_others_are_told(daemon: RunningDaemon) -> None:
    one, two = daemon.client(), daemon.client()
    _, session = create_agent(one)
    attach(one, session, "one")
    attach(two, session, "two")
    number = one.send("message.send", sessionId=session, content="$ echo decided")
    asked = [
        within(next_note(client, is_method("event.permission_request", session)), "params")
        for client in (one, two)
    ]
    assert asked[0] == asked[1]
    request_id = asked[0]["requestId"]
    first = two.send("tool.deny", sessionId=session, requestId=request_id, reason="no")
    assert two.answer(first)["decision"] == "denied"
    with pytest.raises(Exception, match="not pending"):
        one.call("tool.approve", sessionId=session, requestId=request_id)
    answer = one.answer(number)
    assert answer["outcome"] == "completed"
    for client in (one, two):
        resolved = [n for n in client.notes if "permission_resolved" in json.dumps(n)]
        assert len(resolved) == 1


def test_a_full_disk_refuses_new_work_and_nothing_else(home: object) -> None:
    from tests.support.daemon import daemon_in

    with daemon_in(home, "store.min_free_mib=1000000000") as daemon:  # type: ignore[arg-type]
        client = daemon.client()
        with pytest.raises(Exception, match="DISK_FULL"):
            client.call("agent.create", objective="x")
        assert client.call("agent.list")["agents"] == []
        assert client.call("health.ping")["ok"] is True
