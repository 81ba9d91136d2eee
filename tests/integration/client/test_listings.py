from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.commands import roost
from tests.support.fake_daemon import AGENT, APPROVAL, SESSION, FakeClient, FakeDaemon, Params

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path


async def pending(client: FakeClient, params: Params) -> object:
    await client.tell("permission_request", **APPROVAL)
    return {"sessionId": SESSION, "attachmentId": "a"}


async def test_ps_says_who_waits(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "ps")
    assert ended.returncode == 0
    assert b"look around" in ended.stdout
    assert b"waits for a decision" in ended.stdout


async def test_ps_says_why_an_agent_died(daemon: FakeDaemon) -> None:
    daemon.answer("session.list", {"sessions": []})
    ended = await roost(daemon.home.path, "ps", "--json")
    (line,) = json.loads(ended.stdout)
    assert line["agentId"] == AGENT
    assert line["error"] == "killed by signal 9"


async def test_ps_reads_every_page(daemon: FakeDaemon) -> None:
    async def page(client: FakeClient, params: Params) -> object:
        await trio.lowlevel.checkpoint()
        number = int(str(params.get("cursor", "0")))
        agent = {
            "agentId": f"agent_{number}",
            "status": "idle",
            "createdAt": f"2026-01-0{number + 1}",
        }
        return {"agents": [agent], **({"nextCursor": str(number + 1)} if number < 2 else {})}

    daemon.handlers["agent.list"] = page
    ended = await roost(daemon.home.path, "ps", "--json")
    assert [line["agentId"] for line in json.loads(ended.stdout)] == [
        "agent_0",
        "agent_1",
        "agent_2",
    ]


async def test_approve_without_an_id_lists_what_waits(daemon: FakeDaemon) -> None:
    daemon.handlers["session.attach"] = pending
    ended = await roost(daemon.home.path, "approve")
    assert ended.returncode == 0
    assert b"call_1" in ended.stdout
    assert b"shell: uname -s" in ended.stdout
    listed = json.loads((await roost(daemon.home.path, "deny", "--json")).stdout)
    assert listed[0]["requestId"] == "call_1"
    cursors = [p["capabilities"] for p in daemon.params_of("initialize") if p["capabilities"]]
    assert cursors
    assert all(cursor == {"roost.cursors": {SESSION: 17}} for cursor in cursors)


async def test_doctor_names_a_daemon_that_does_not_answer(daemon: FakeDaemon) -> None:
    async def silent(client: FakeClient, params: Params) -> object:
        await trio.sleep_forever()

    assert (await roost(daemon.home.path, "doctor")).returncode == 0
    daemon.handlers["health.ready"] = silent
    ended = await roost(daemon.home.path, "doctor")
    assert ended.returncode == 1
    assert b"and does not answer" in ended.stdout


async def test_settings_for_a_daemon_that_runs_already_are_looked_at(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "up", "--set", "limits.connections=9")
    assert ended.returncode == 0
    assert b"it keeps its settings" in ended.stderr
    ended = await roost(daemon.home.path, "up", "--set", "bad.key=1")
    assert ended.returncode == 2
    assert b"bad" in ended.stderr


@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_a_decision_is_passed_on(daemon: FakeDaemon, verb: str) -> None:
    daemon.handlers["session.attach"] = pending
    ended = await roost(daemon.home.path, verb, "call_1")
    assert ended.returncode == 0
    (params,) = daemon.params_of(f"tool.{verb}")
    assert (params["sessionId"], params["requestId"]) == (SESSION, "call_1")


async def test_a_decision_about_nothing_is_an_error(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "approve", "call_9")
    assert ended.returncode == 1
    assert b"nothing waits" in ended.stderr


async def test_status_shows_the_tree(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "status")
    assert ended.returncode == 0
    text = ended.stdout.decode()
    assert "uptime: 1h 2m 3s" in text
    assert "sessions: active=1, closed=0, total=1" in text
    assert "└─ agent:agent_one" in text
    told = json.loads((await roost(daemon.home.path, "status", "--json")).stdout)
    assert told["running"]
    assert told["tree"][0]["childId"] == "root"


async def test_logs_prints_the_transcript(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "logs", AGENT)
    assert ended.stdout == b"[user] hello\n"


async def test_logs_of_a_process_are_its_file(daemon: FakeDaemon) -> None:
    daemon.home.agent_log(AGENT).write_text("one\ntwo\nthree\n")
    ended = await roost(daemon.home.path, "logs", "--process", AGENT, "-n", "2")
    assert ended.stdout == b"two\nthree\n"
    assert (await roost(daemon.home.path, "logs", "--daemon")).returncode == 1


async def test_stop_ends_the_agent_that_is_meant(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "stop", "_one")
    assert ended.stdout == b"agent_one stopped\n"
    assert daemon.params_of("agent.stop")[0]["agentId"] == AGENT


async def test_an_agent_that_is_not_there_is_an_error(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "stop", "agent_two")
    assert ended.returncode == 1
    assert b"there is no agent 'agent_two'" in ended.stderr


async def test_token_prints_the_cookie(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "token")
    assert ended.stdout.decode().strip() == daemon.home.cookie.read_text().strip()


async def test_without_a_daemon_and_without_autostart_commands_say_so(tmp_path: Path) -> None:
    nobody = tmp_path / "nobody"
    for arguments in (["ps"], ["run", "x"], ["approve"]):
        ended = await roost(nobody, *arguments)
        assert ended.returncode == 3
        assert b"roost up" in ended.stderr
    assert (await roost(nobody, "status")).returncode == 1
    assert b"no daemon runs" in (await roost(nobody, "down")).stdout


async def test_doctor_is_content_with_a_daemon_that_answers(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "doctor", "--json")
    findings = json.loads(ended.stdout)
    assert [f for f in findings if f["level"] == "problem"] == []
    assert any(f["what"] == "daemon" and "answers" in f["text"] for f in findings)


async def test_help_fits_a_screen(daemon: FakeDaemon) -> None:
    ended = await roost(daemon.home.path, "--help")
    assert len(ended.stdout.splitlines()) <= 40
    assert max(map(len, ended.stdout.decode().splitlines())) <= 80
