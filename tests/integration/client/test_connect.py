"""`roost connect` as a program: its exit statuses, what it starts, and what it holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
import trio

from tests.support.commands import command, environ, redirected, roost
from tests.support.front import open_client, open_front
from tests.support.front_clients import StdioClient

if TYPE_CHECKING:
    from tests.support.front import Client, FrontHouse

LIMIT = 30
MIB = 1024 * 1024
PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping"}\n'
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0.0"}}\n'
)


def _stdio(client: Client) -> StdioClient:
    assert isinstance(client, StdioClient)
    return client


async def test_a_home_without_a_daemon_is_status_3_and_nothing_is_said_on_standard_output(
    tmp_path: Path,
) -> None:
    ended = await roost(tmp_path / "h", "connect", stdin=INITIALIZE)
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert b"no daemon runs" in ended.stderr


async def test_requests_may_come_from_a_file_and_an_empty_one_is_no_error(tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(INITIALIZE + PING % 2 + PING % 3)
    answers = tmp_path / "answers"
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            for source, wanted in ((requests, [1, 2, 3]), (Path(os.devnull), [])):
                with source.open("rb") as stdin, answers.open("wb") as stdout:
                    process = await trio.run_process(
                        command(house.home, "connect"), stdin=stdin, stdout=stdout, env=environ()
                    )
                assert process.returncode == 0
                lines = answers.read_bytes().splitlines()
                assert [json.loads(line)["id"] for line in lines] == wanted


async def test_without_standard_input_it_fails(tmp_path: Path) -> None:
    argv = redirected(command(tmp_path, "connect"), "<&-")
    with trio.fail_after(LIMIT):
        ended = await trio.run_process(
            argv, capture_stdout=True, capture_stderr=True, check=False, env=environ()
        )
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"must be open" in ended.stderr


async def test_who_says_nothing_for_long_is_not_dropped(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with (
            open_front(tmp_path, timeouts={"handshake": 0.2}) as house,
            open_client(house, "stdio", initialize=False) as client,
        ):
            await trio.sleep(0.6)
            assert "protocolVersion" in await client.initialize()


async def test_a_front_that_is_gone_ends_it_with_status_3(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "stdio") as client:
            (connection,) = house.front.unix.connections
            connection.abort("the test wants it")
            assert await client.receive_raw() == b""
            assert await _stdio(client).process.wait() == 3


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
async def test_a_signal_ends_it(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "stdio") as client:
            _stdio(client).process.send_signal(number)
            assert await _stdio(client).process.wait() == status
            await house.front.services.wait_empty()


async def test_a_reader_that_is_gone_ends_it_though_a_message_is_under_way(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "stdio") as client:
            house.store.add_agent()
            await client.send("message.send", {"sessionId": "session_1", "content": "x"})
            await client.call("health.stats")
            await _stdio(client).end_input()
            process = _stdio(client).process
            assert process.stdout is not None
            await process.stdout.aclose()
            assert await process.wait() == 1
            await house.front.services.wait_empty()


async def test_what_is_not_read_is_not_held_by_the_bridge_and_arrives_later(
    tmp_path: Path,
) -> None:
    texts = [f"{number}:" + "x" * 64 * 1024 for number in range(400)]
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house, open_client(house, "stdio") as client:
            house.store.add_agent()
            await client.call("session.attach", {"sessionId": "session_1"})
            client.events.clear()
            process = psutil.Process(_stdio(client).process.pid)
            before = process.memory_info().rss
            for text in texts:
                house.store.delta("session_1", text)
            await _until_blocked(house)
            assert process.memory_info().rss - before < 4 * MIB
            found: list[str] = []
            while len(found) < len(texts):
                event = await client.event()
                if event["method"] == "event.message_chunk":
                    found.append(cast("dict[str, Any]", event["params"])["delta"])
            assert found == texts
            assert process.memory_info().rss - before < 4 * MIB


async def _until_blocked(house: FrontHouse) -> None:
    """Return once the front cannot write to the bridge any more, which then stands still."""
    (connection,) = house.front.unix.connections
    last = -1
    while not connection.unsent or connection.sent_total != last:
        last = connection.sent_total
        await trio.sleep(0.05)


@pytest.mark.slow
async def test_it_starts_a_daemon_and_ends_with_it(tmp_path: Path) -> None:
    home, said = tmp_path / "h", tmp_path / "said"
    with trio.fail_after(60), said.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            command(home, "connect"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ(ROOST_AUTOSTART="1"),
        )
        client = StdioClient(process)
        try:
            await client.send_bytes(INITIALIZE)
            raw = await client.receive_raw()
            assert raw, said.read_text()
            root: int = json.loads(raw)["result"]["daemonIdentity"]["pid"]
            agent = await client.call(
                "agent.create", {"objective": "say something", "initialContent": []}
            )
            assert agent["agentId"]
            os.kill(root, signal.SIGKILL)
            while await client.receive_raw():
                pass
            assert await process.wait() == 3
            assert "started a daemon" in said.read_text()
            assert "closed the connection" in said.read_text()
        finally:
            with trio.CancelScope(shield=True):
                await client.aclose()
                await roost(home, "down", limit=LIMIT)
