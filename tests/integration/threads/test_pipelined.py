"""Requests that a client sends all at once, in one write: what is carried out at once is answered in that order."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, cast

import pytest

from tests.support.commands import command, environ
from tests.support.front import open_client, open_front
from tests.support.front_clients import WebSocketClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.daemon import Json
    from tests.support.daemon import RunningDaemon

    Talk = Callable[[RunningDaemon, Sequence[bytes], int], list[Json]]

pytestmark = pytest.mark.slow

SECONDS = 30
HELLO: dict[str, object] = {"clientInfo": {"name": "all at once"}}
NOTHING: list[object] = []
EMPTY: dict[str, object] = {"threadId": "t", "turnId": "u", "input": NOTHING}
ROUNDS = 5


def requests(head: Json) -> list[bytes]:
    """Return a greeting with requests behind it that nobody has to be asked for, some of them refused."""
    said: list[Json] = [{"id": 0, "method": "initialize", "params": HELLO}]
    for at in range(1, 5 * ROUNDS, 5):
        more: list[Json] = [
            {"id": at, "method": "schema/export"},
            {"id": at + 1, "method": "no/such"},
            {"id": at + 2, "method": "turn/steer", "params": EMPTY},
            {"id": at + 3, "method": "initialized"},
            {"id": at + 4, "method": "initialize", "params": HELLO},
        ]
        said += more
    return [json.dumps({**head, **one}).encode() for one in said]


def over_unix(daemon: RunningDaemon, said: Sequence[bytes], count: int) -> list[Json]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SECONDS)
        sock.connect(daemon.socket)
        sock.sendall(b"".join(line + b"\n" for line in said))
        with sock.makefile("rb") as file:
            return [json.loads(file.readline()) for _ in range(count)]


def over_websocket(daemon: RunningDaemon, said: Sequence[bytes], count: int) -> list[Json]:
    """Send the frames together with the request for the upgrade itself."""
    url: str = json.loads((daemon.home / "daemon.json").read_text())["websocket"]
    host, _, port = url.removeprefix("ws://").rstrip("/").rpartition(":")
    token = (daemon.home / "daemon.cookie").read_text().strip()
    head = (
        f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), SECONDS) as sock:
        sock.sendall(head.encode() + b"".join(map(WebSocketClient.frame, said)))
        with sock.makefile("rb") as file:
            assert b" 101 " in file.readline()
            while file.readline() != b"\r\n":
                pass
            return [json.loads(_payload(file.read)) for _ in range(count)]


def _payload(read: Callable[[int], bytes]) -> bytes:
    size = read(2)[1]
    if size >= 126:
        size = int.from_bytes(read(2 if size == 126 else 8))
    return read(size)


def over_stdio(daemon: RunningDaemon, said: Sequence[bytes], count: int) -> list[Json]:
    process = subprocess.Popen(
        command(daemon.home, "app-server"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ(),
    )
    found, _ = process.communicate(b"".join(line + b"\n" for line in said), SECONDS)
    assert process.returncode == 0
    assert found.count(b"\n") == count
    return [json.loads(line) for line in found.splitlines()]


TRANSPORTS = {"unix": over_unix, "websocket": over_websocket, "stdio": over_stdio}


@pytest.mark.parametrize("talk", TRANSPORTS.values(), ids=TRANSPORTS)
def test_what_is_done_at_once_is_answered_in_the_order_of_the_requests(
    daemon: RunningDaemon, talk: Talk
) -> None:
    heads: list[Json] = [{}, {"jsonrpc": "2.0"}]
    for head in heads:
        said = requests(head)
        answers = talk(daemon, said, len(said))
        assert [answer["id"] for answer in answers] == list(range(len(said)))
        assert "result" in answers[0]
        codes = [cast("Json", a.get("error", {})).get("code") for a in answers[1:6]]
        assert codes == [None, -32601, -32602, None, -32011]


async def test_a_handle_in_the_fronts_process_is_answered_in_that_order(tmp_path: Path) -> None:
    async with (
        open_front(tmp_path) as house,
        open_client(house, "in-process", initialize=False) as client,
    ):
        said = requests({})
        for line in said:
            await client.send_raw(line)
        answers = [json.loads(await client.receive_raw()) for _ in said]
        assert [answer["id"] for answer in answers] == list(range(len(said)))


@pytest.mark.parametrize("talk", TRANSPORTS.values(), ids=TRANSPORTS)
def test_the_daemon_door_keeps_that_order_too(daemon: RunningDaemon, talk: Talk) -> None:
    hello: Json = {"protocolVersion": "1.0.0"}
    kill: Json = {"processId": "none"}
    nothing: Json = {}
    said: list[Json] = [{"id": 0, "method": "initialize", "params": hello}]
    for at in range(1, 3 * ROUNDS, 3):
        more: list[Json] = [
            {"id": at, "method": "commandExec.terminate", "params": kill},
            {"id": at + 1, "method": "health.ping", "params": nothing},
            {"id": at + 2, "method": "no.such", "params": nothing},
        ]
        said += more
    lines = [json.dumps({"jsonrpc": "2.0", **one}).encode() for one in said]
    answers = talk(daemon, lines, len(said))
    assert [answer["id"] for answer in answers] == list(range(len(said)))
