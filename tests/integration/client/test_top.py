"""`roost top` and `roost reload`: what they show of a daemon that answers, refuses, is stuck or gone."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.commands import command, environ, roost
from tests.support.fake_daemon import FakeClient, FakeDaemon, Params, Refusal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

ROOT: Params = {"childId": "root", "parent": "", "kind": "root", "state": "running", "pid": 10}
HUNG: Params = {
    "childId": "agent_1",
    "parent": "agents",
    "kind": "agent",
    "state": "running",
    "pid": 11,
    "uptimeMs": 10_000,
    "rss": 1_048_576,
    "cpuSeconds": 2.0,
    "mailbox": 3,
    "turns": 1,
    "silentMs": 12_000,
}
DEAD: Params = {
    "childId": "agent_2",
    "parent": "agents",
    "kind": "agent",
    "state": "gave_up",
    "lastError": "killed by signal 9",
}
STATS: Params = {
    "uptimeMs": 1_000,
    "sessions": {"active": 2, "closed": 0, "total": 2},
    "memory": {"rss": 1_048_576},
    "state": {"openTurns": 1, "pendingRequests": 0},
    "connections": {"unix": 1},
    "tree": [ROOT, HUNG, DEAD],
}


async def never(client: FakeClient, params: Params) -> object:
    await trio.sleep_forever()


async def test_top_off_a_terminal_is_one_look_at_every_process(daemon: FakeDaemon) -> None:
    daemon.answer("health.stats", STATS)
    ended = await roost(daemon.home.path, "top")
    assert ended.returncode == 0
    lines = ended.stdout.decode().splitlines()
    (hung,) = (line.split(maxsplit=6) for line in lines if "agent_1" in line)
    assert hung[:6] == ["agent_1", "running", "11", "20.0", "2s", "1.0"]
    assert hung[6].split()[:2] == ["MiB", "3"]
    assert "no answer for 12s" in hung[6]
    assert any("agent_2" in line and "killed by signal 9" in line for line in lines)


async def test_top_for_programs_is_one_object_or_one_a_line(daemon: FakeDaemon) -> None:
    daemon.answer("health.stats", STATS)
    ended = await roost(daemon.home.path, "top", "--json")
    look = json.loads(ended.stdout)
    assert (look["running"], look["answering"]) == (True, True)
    assert [each["childId"] for each in look["tree"]] == ["root", "agent_1", "agent_2"]
    assert look["tree"][1]["cpuPercent"] == 20.0
    ended = await roost(daemon.home.path, "top", "--json", "--interval", "0.1", "--count", "3")
    looks = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(looks) == 3
    assert looks[2]["tree"][1]["cpuPercent"] == 0.0


async def test_top_tells_a_daemon_that_is_stuck_from_one_that_is_gone(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.handlers["health.stats"] = never
    ended = await roost(daemon.home.path, "top", "--json")
    assert ended.returncode == 3
    look = json.loads(ended.stdout)
    assert (look["running"], look["answering"]) == (True, False)
    assert "does not answer" in look["error"]
    ended = await roost(tmp_path / "nobody", "top")
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert b"no daemon runs in" in ended.stderr


async def test_top_on_a_terminal_draws_a_table(daemon: FakeDaemon) -> None:
    daemon.answer("health.stats", STATS)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: ASYNC220 # a terminal wants one
        command(daemon.home.path, "top", "--interval", "0.1", "--count", "2"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ(TERM="xterm", COLUMNS="140", LINES="20"),
    )
    os.close(theirs)
    try:
        with trio.fail_after(20):
            seen = await trio.to_thread.run_sync(partial(_read_all, ours))
            assert await trio.to_thread.run_sync(process.wait) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "roost top" in seen
    assert "no answer for 12s" in seen
    assert "killed by signal 9" in seen


async def test_reload_says_what_has_changed_and_what_waits(daemon: FakeDaemon) -> None:
    answer: Params = {
        "reloaded": True,
        "configReloadedAt": "2026-03-01T11:00:00.000Z",
        "mcpServer": {"status": "disabled"},
        "changed": ["log.level"],
        "needRestart": ["websocket.port"],
        "late": ["agent:agent_1"],
    }
    daemon.answer("daemon.reload", answer)
    ended = await roost(daemon.home.path, "reload")
    assert ended.returncode == 0
    said = ended.stdout.decode()
    assert f"configuration reloaded (pid {os.getpid()})" in said
    assert "changed: log.level" in said
    assert "after `roost restart`: websocket.port" in said
    assert "not confirmed yet by: agent:agent_1" in said
    ended = await roost(daemon.home.path, "reload", "--json")
    assert json.loads(ended.stdout)["needRestart"] == ["websocket.port"]


async def test_reload_that_is_refused_fails_with_the_reason(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    async def refuse(client: FakeClient, params: Params) -> object:
        await trio.lowlevel.checkpoint()
        raise Refusal(-32603, "config.toml line 2: unknown key", "CONFIG_INVALID")

    daemon.handlers["daemon.reload"] = refuse
    ended = await roost(daemon.home.path, "reload")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"roost: config.toml line 2: unknown key (CONFIG_INVALID)" in ended.stderr
    ended = await roost(tmp_path / "nobody", "reload")
    assert ended.returncode == 3
    assert b"no daemon runs in" in ended.stderr


def _read_all(fd: int) -> str:
    """Return what comes on a terminal until its other side is closed."""
    seen = b""
    try:
        while data := os.read(fd, 65_536):
            seen += data
    except OSError:
        pass
    return seen.decode()
