"""The table of P 19, with the verbs of this command line; what `up --foreground` does is tested with the client."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner

from bench.daemon import Client
from roost.actors.client.cli import cli
from tests.support.daemon import attach, create_agent, send_script, within
from tests.support.processes import stand_still
from tests.support.scenarios import asked, listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


class Shell:
    """Runs `roost` on one home; in this process, which spares the start of an interpreter for each command."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Return what is said on standard output; together with standard error if another status than 0 is expected."""
        line = ["--home", str(self.home), *arguments]
        ended = CliRunner().invoke(cli, line, prog_name="roost", env={"ROOST_AUTOSTART": "0"})
        assert ended.exit_code == status, (arguments, ended.output, ended.exception)
        return ended.stdout if status == 0 else ended.output

    def pid(self) -> int:
        found = json.loads((self.home / "daemon.json").read_text())["pid"]
        assert isinstance(found, int)
        return found


@pytest.fixture
def roost(home: Path) -> Iterator[Shell]:
    shell = Shell(home)
    yield shell
    shell("down")


def test_scenario_54_the_daemon_is_started_shown_restarted_and_stopped(roost: Shell) -> None:
    assert "no daemon runs" in roost("status", status=1)
    assert json.loads(roost("status", "--json", status=1))["running"] is False
    assert "no daemon runs" in roost("down")
    assert f"daemon started in {roost.home}" in roost("up", "--set", "limits.queued_messages=7")
    pid = roost.pid()
    assert f"a daemon already runs in {roost.home} (pid {pid})" in roost("up")
    said = roost("status")
    assert f"running (pid {pid})" in said
    assert re.search(r"^  uptime: \d+s$", said, re.MULTILINE)
    assert re.search(r"^  memory: [\d.]+ MiB", said, re.MULTILINE)
    assert "  sessions: active=0, closed=0, total=0\n" in said
    shown = json.loads(roost("status", "--json"))
    assert (shown["running"], shown["ready"], shown["pid"]) == (True, True, pid)
    assert shown["sessions"] == {"active": 0, "closed": 0, "total": 0}
    assert "daemon restarted" in roost("restart")
    again = roost.pid()
    assert again != pid
    assert f"daemon stopped (pid {again})" in roost("down")
    # A restart starts one that does not run.
    assert "daemon restarted" in roost("restart", "--wait")
    # A daemon that was killed leaves a pid that is nobody's.
    killed = psutil.Process(roost.pid())
    killed.kill()
    killed.wait()
    assert "no daemon runs" in roost("down")
    assert "no daemon runs" in roost("status", status=1)


def test_scenario_54_a_daemon_that_does_not_answer_is_shown_as_running(roost: Shell) -> None:
    roost("up")
    pid = roost.pid()
    tree = json.loads(roost("status", "--json"))["tree"]
    (front,) = [node["pid"] for node in tree if node["childId"] == "front"]
    stand_still(front)
    try:
        said = roost("status")
    finally:
        os.kill(front, signal.SIGCONT)
    assert f"daemon running (pid {pid}), but it does not answer yet" in said


def test_scenario_54_a_start_that_fails_says_why(roost: Shell) -> None:
    (roost.home / "daemon.cookie").mkdir()
    said = roost("up", status=1)
    assert "ended before it was ready (status 1)" in said
    assert "daemon.cookie" in said
    (roost.home / "daemon.cookie").rmdir()
    said = roost("up", "--set", "daemon.ready_timeout=0.001", status=1)
    assert "was not ready within 0.001 s" in said
    # It goes on starting, and is there.
    roost("up")


def test_scenario_54_wrong_use_is_told_and_help_is_given(roost: Shell) -> None:
    assert "Usage: roost" in roost("--help") == roost("-h")
    assert "No such command 'fly'" in roost("fly", status=2)
    assert "--fast" in roost("up", "--fast", status=2)
    assert "limits.no_such" in roost("up", "--set", "limits.no_such=1", status=2)
    assert "no daemon runs" in roost("ps", status=3)


def test_scenario_54_agents_from_start_to_logs(roost: Shell) -> None:
    roost("up")
    agent = roost(
        *("run", "--detach", "--sandbox", "dangerFullAccess"),
        *("--unattended-allow", "Write, bash", "--unattended-deny", "system.bash", "say hello"),
    ).strip()
    client = Client(str(roost.home / "daemon.sock"))
    (found,) = listed(client.call("agent.list"), "agents")
    assert found["agentId"] == agent
    metadata = within(found, "metadata")
    assert metadata["unattendedAllow"] == ["Write", "bash"]
    assert metadata["unattendedDeny"] == ["system.bash"]
    _, session = create_agent(client)
    attach(client, session)
    number = send_script(client, session, {"tool": "shell", "args": {"command": "true"}})
    asked(client, session)
    shown = json.loads(roost("ps", "--json"))
    assert [(each["agentId"] == agent, each["waiting"]) for each in shown] == [
        (True, False),
        (False, True),
    ]
    assert agent in roost("ps")
    (waiting,) = json.loads(roost("approve", "--json"))
    assert waiting["sessionId"] == session
    assert json.loads(roost("deny", "--json")) == [waiting]
    assert json.loads(roost("du", "--json"))
    client.call("tool.deny", sessionId=session, requestId=waiting["requestId"])
    assert client.answer(number)["outcome"] == "completed"
    client.close()
    assert "say hello" in roost("logs", agent)
    told = json.loads(roost("logs", "--json", agent))
    assert told["agentId"] == agent
    assert told["sessions"][0]["itemCount"] >= 1
    assert f"{agent} stopped" in roost("stop", agent)
    assert agent not in roost("ps")
    assert "say hello" in roost("logs", agent)
