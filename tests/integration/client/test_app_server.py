"""`roost app-server` as a program: what it takes, what it says, and what it starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.commands import command, environ, roost
from tests.support.front import open_front

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 60
DAEMON_DOOR = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0.0"}}\n'
)
GREETING = b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"test"}}}\n'
INITIALIZED = b'{"method":"initialized"}\n'


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0", "unix://", "stdio", ""])
async def test_it_listens_nowhere_but_on_standard_input(tmp_path: Path, url: str) -> None:
    ended = await roost(tmp_path / "h", "app-server", "--listen", url, stdin=DAEMON_DOOR)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"stdio://" in ended.stderr


async def test_without_a_daemon_that_may_be_started_it_ends_with_3(tmp_path: Path) -> None:
    ended = await roost(tmp_path / "h", "app-server", stdin=DAEMON_DOOR)
    assert (ended.returncode, ended.stdout) == (3, b"")


async def test_what_is_ignored_is_named_and_standard_output_has_the_protocol_alone(
    tmp_path: Path,
) -> None:
    options = ("--listen", "stdio://", "--enable", "a", "--disable", "b", "-c", "k=v", "-c", "l=w")
    with trio.fail_after(LIMIT):
        async with open_front(tmp_path) as house:
            ended = await trio.run_process(
                command(house.home, "app-server", *options),
                stdin=DAEMON_DOOR,
                capture_stdout=True,
                capture_stderr=True,
                env=environ(),
            )
    (answer,) = ended.stdout.splitlines()
    assert json.loads(answer)["result"]["protocol"]["version"]
    ignored = ["--enable a", "--disable b", "-c k=v", "-c l=w"]
    assert ended.stderr.decode().splitlines() == [f"roost: ignored: {one}" for one in ignored]


@pytest.mark.slow
async def test_it_starts_a_daemon_and_joins_one_that_runs(tmp_path: Path) -> None:
    home = tmp_path / "h"
    lines = GREETING + INITIALIZED + b'{"id":2,"method":"thread/list"}\n'
    threads: list[list[object]] = []
    try:
        with trio.fail_after(LIMIT):
            for begun in (True, False):
                ended = await trio.run_process(
                    command(home, "app-server"),
                    stdin=lines + b'{"id":3,"method":"thread/start"}\n',
                    capture_stdout=True,
                    capture_stderr=True,
                    env=environ(ROOST_AUTOSTART="1"),
                )
                assert (b"started a daemon" in ended.stderr) == begun
                said = [json.loads(line) for line in ended.stdout.splitlines()]
                answers = {each["id"]: each["result"] for each in said if "id" in each}
                assert answers[1]["serverInfo"]["name"]
                assert answers[1]["userAgent"]
                assert not any("jsonrpc" in each for each in said)
                threads.append(answers[2]["threads"])
    finally:
        with trio.CancelScope(shield=True):
            await roost(home, "down", limit=LIMIT)
    # A list may be read just behind the thread that is made meanwhile.
    first, second = map(len, threads)
    assert (first in (0, 1), second in (1, 2)) == (True, True)
