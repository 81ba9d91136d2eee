from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.commands import command, environ, roost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow

LIMIT = 60
ROOT = Path(__file__).parents[3]
FULL = ("--sandbox", "dangerFullAccess")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Path]:
    """A home in which no daemon runs yet; one that does is stopped at the end."""
    yield tmp_path / "h"
    with trio.CancelScope(shield=True):
        ended = await roost(tmp_path / "h", "down", limit=LIMIT)
        assert ended.returncode == 0, ended.stderr


async def ok(home: Path, *arguments: str, stdin: bytes = b"") -> str:
    ended = await roost(home, *arguments, stdin=stdin, limit=LIMIT)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    return ended.stdout.decode()


async def root_pid(home: Path) -> int:
    return int(json.loads(await ok(home, "status", "--json"))["pid"])


async def test_one_agent_end_to_end(home: Path) -> None:
    assert "daemon started" in await ok(home, "up")
    assert "already runs" in await ok(home, "up")
    said = await ok(home, "run", *FULL, "$ echo made of $((40+2))", stdin=b"y\n")
    assert "made of 42" in said
    (agent,) = json.loads(await ok(home, "ps", "--json"))
    assert agent["status"] == "idle"
    (tmp := home.parent / "note.txt").write_text("what stands there")
    assert "what stands there" in await ok(home, "send", agent["agentId"], f"read {tmp}")
    assert "made of 42" in await ok(home, "logs")
    assert "begins anew" in await ok(home, "clear", agent["agentId"])
    transcript = await ok(home, "logs")
    assert "made of 42" in transcript, "the record stays"
    assert "[notice] the history was cleared at " in transcript
    status = await ok(home, "status")
    assert "front" in status
    assert agent["agentId"] in status
    assert "stopped" in await ok(home, "stop", agent["agentId"])
    assert "daemon stopped" in await ok(home, "down")
    assert (await roost(home, "status")).returncode == 1


async def test_a_decision_can_be_made_from_elsewhere(home: Path) -> None:
    await ok(home, "up")
    agent = (await ok(home, "run", *FULL, "--detach", "$ echo allowed")).strip()
    with trio.fail_after(LIMIT):
        while not (pending := json.loads(await ok(home, "approve", "--json"))):
            pass
    assert pending[0]["input"] == {"command": "echo allowed"}
    assert "dangerFullAccess" in pending[0]["reason"]
    assert "approved" in await ok(home, "approve", pending[0]["requestId"])
    with trio.fail_after(LIMIT):
        while json.loads(await ok(home, "ps", "--json"))[0]["status"] != "idle":
            pass
    assert "allowed" in await ok(home, "logs", agent)


async def test_of_two_starts_at_once_one_daemon_remains(home: Path) -> None:
    pids: list[int] = []

    async def up() -> None:
        found = re.search(r"pid (\d+)", await ok(home, "up"))
        assert found is not None
        pids.append(int(found[1]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(up)
        nursery.start_soon(up)
    assert pids[0] == pids[1] == await root_pid(home)


async def test_doctor_names_what_a_killed_daemon_has_left_and_the_next_one_starts(
    home: Path,
) -> None:
    await ok(home, "up")
    await ok(home, "run", *FULL, "--detach", "find nothing")
    os.kill(await root_pid(home), signal.SIGKILL)
    with trio.fail_after(LIMIT):
        while (await roost(home, "status")).returncode == 0:
            pass
    ended = await roost(home, "doctor", "--json")
    assert ended.returncode == 1
    problems = {f["what"] for f in json.loads(ended.stdout) if f["level"] == "problem"}
    assert problems == {"pid", "socket"}
    await ok(home, "up")
    assert len(json.loads(await ok(home, "ps", "--json"))) == 1
    assert (await roost(home, "doctor")).returncode == 0


async def test_in_the_foreground_it_says_one_line_and_tells_the_service_manager(
    home: Path,
) -> None:
    address = str(home.parent / "notify")
    with trio.fail_after(LIMIT), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.setblocking(False)
        process = await trio.lowlevel.open_process(
            command(home, "up", "--foreground"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environ(NOTIFY_SOCKET=address),
        )
        assert process.stdout is not None
        line = await process.stdout.receive_some(4096)
        assert line.startswith(b"roost ready")
        assert line.count(b"\n") == 1
        await trio.lowlevel.wait_readable(manager)
        assert manager.recv(100) == b"READY=1"
        process.terminate()
        assert await process.wait() == 0
        assert await process.stdout.receive_some(4096) == b""
        await process.stdout.aclose()


async def test_a_daemon_that_cannot_start_says_why(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[limits]\nconections = 1\n")
    ended = await roost(home, "up")
    assert ended.returncode == 1
    assert b"line 2" in ended.stderr
    assert b"limits.connections" in ended.stderr
    (home / "config.toml").write_text("")
    home.chmod(0o777)
    ended = await roost(home, "up")
    assert ended.returncode == 1
    assert b"writable for everyone" in ended.stderr
    home.chmod(0o700)


async def test_a_port_that_is_taken_is_named(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = await roost(home, "up", "--set", f"websocket.port={port}", limit=LIMIT)
    assert ended.returncode == 1
    assert str(port).encode() in ended.stderr


async def test_the_example_of_the_readme_works(home: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    await ok(home, "up")
    with trio.fail_after(LIMIT):
        ended = await trio.run_process(
            [sys.executable, "-P", "-c", found[1]],
            env={**os.environ, "ROOST_HOME": str(home)},
            capture_stdout=True,
            stdin=b"",
        )
    assert b"'outcome': 'completed'" in ended.stdout


async def test_the_demo_shows_a_turn_with_an_approval_and_the_tree() -> None:
    with trio.fail_after(LIMIT):
        ended = await trio.run_process(
            [sys.executable, "-P", "-m", "roost.actors.client.demo"],
            env=environ(),
            capture_stdout=True,
            capture_stderr=True,
            stdin=b"",
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert b"hello from a supervised agent\n" in ended.stdout
    assert b"agents" in ended.stdout
    assert b"policy: dangerFullAccess" in ended.stderr
