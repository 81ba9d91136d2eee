"""The thread protocol over a WebSocket; who a client is, is said on the upgrade (design 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio
from trio_websocket import ConnectionClosed, open_websocket_url, wrap_client_stream

if TYPE_CHECKING:
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

HELLO = '{"id":1,"method":"initialize","params":{"clientInfo":{"name":"web"}}}'


def address(daemon: RunningDaemon) -> str:
    url: str = json.loads((daemon.home / "daemon.json").read_text())["websocket"]
    return url


async def test_a_client_with_the_token_runs_a_turn(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    token = (daemon.home / "daemon.cookie").read_text().strip()
    headers = [(b"Authorization", b"Bearer " + token.encode())]
    with trio.fail_after(30):
        async with open_websocket_url(address(daemon), extra_headers=headers) as socket:
            await socket.send_message(HELLO)
            greeting = json.loads(await socket.get_message())
            assert greeting["result"]["protocolVersion"] == "2026-06-02"
            await socket.send_message('{"id":2,"method":"thread/start"}')
            thread = json.loads(await socket.get_message())["result"]["thread"]["id"]
            params = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
            request = {"id": 3, "method": "turn/start", "params": params}
            await socket.send_message(json.dumps(request))
            heard: list[str] = []
            while not heard or heard[-1] != "turn/completed":
                message = json.loads(await socket.get_message())
                assert "jsonrpc" not in message
                heard.append(str(message.get("method", message.get("id"))))
            assert heard[:3] == ["thread/started", "3", "thread/status/changed"]


async def test_a_client_without_the_token_is_turned_away(daemon: RunningDaemon) -> None:
    host = address(daemon).removeprefix("ws://").rstrip("/")
    name, _, port = host.rpartition(":")
    with trio.fail_after(30):
        # A client whose server closes first leaves its own socket open, so it is closed here.
        async with await trio.open_tcp_stream(name, int(port)) as stream, trio.open_nursery() as n:
            socket = await wrap_client_stream(n, stream, host, "/")
            await socket.send_message(HELLO)
            error = json.loads(await socket.get_message())["error"]
            assert error["data"]["code"] == "CONNECTION_AUTHENTICATION_FAILED"
            with pytest.raises(ConnectionClosed):
                await socket.get_message()
