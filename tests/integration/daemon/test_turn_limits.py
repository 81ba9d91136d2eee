"""Time limits and the order of turns in a whole daemon."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.support.daemon import (
    attach,
    check_log,
    create_agent,
    daemon_in,
    is_method,
    next_note,
    send_script,
    terminals,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow


def last_events(home: Path, session: str, kind: str) -> list[Json]:
    """Return a session's events of a type."""
    database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "select e.body from events e join sessions s on s.key = e.session"
            " where s.session_id = ? and e.type = ? order by e.sequence",
            (session, kind),
        ).fetchall()
    finally:
        database.close()
    return [msgspec.json.decode(row[0], type=dict[str, object]) for row in rows]


def test_a_turn_past_its_limit_fails_and_so_does_what_waited_behind_it(home: Path) -> None:
    with daemon_in(home, "timeouts.turn=0.5") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        numbers = [send_script(client, session, {"say": "on"}, {"hang": True}) for _ in range(2)]
        for number in numbers:
            assert client.answer(number)["outcome"] == "failed"
        answer = client.answer(send_script(client, session, {"say": "back"}))
        assert answer["outcome"] == "completed"
        assert terminals(check_log(home)[session]) == ["agent.turn.failed"] * 2
        streamed, queued = last_events(home, session, "agent.turn.failed")
        assert (streamed["error_code"], streamed["phase"]) == ("TURN_TIMEOUT", "provider_stream")
        assert (queued["error_code"], queued["phase"]) == ("TURN_TIMEOUT", "queue")
        assert len(last_events(home, session, "user.message")) == 2


def test_a_turn_past_its_limit_ends_its_command(home: Path) -> None:
    with daemon_in(home, "timeouts.turn=1", "approvals.ask=never") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        step: Json = {"tool": "shell", "args": {"command": "exec sleep 73"}}
        assert client.answer(send_script(client, session, step))["outcome"] == "failed"
        (call,) = last_events(home, session, "tool.call.failed")
        (turn,) = last_events(home, session, "agent.turn.failed")
        assert (call["error_code"], call["outcome"]) == ("TURN_TIMEOUT", "unknown")
        assert (turn["phase"], turn["outcome"], turn["retryable"]) == ("tool", "unknown", False)
        assert not any("73" in process.cmdline() for process in daemon.processes())


def test_a_command_past_its_limit_is_ended_and_its_effect_is_unknown(home: Path) -> None:
    with daemon_in(home, "approvals.ask=never") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        step: Json = {"tool": "shell", "args": {"command": "exec sleep 74", "timeout_s": 0.1}}
        assert client.answer(send_script(client, session, step))["outcome"] == "completed"
        (call,) = last_events(home, session, "tool.call.failed")
        assert (call["error_code"], call["outcome"]) == ("TOOL_TIMEOUT", "unknown")


def test_an_approval_past_its_limit_is_denied_and_the_turn_goes_on(home: Path) -> None:
    with daemon_in(home, "approvals.timeout=0.1") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        step: Json = {"tool": "shell", "args": {"command": "true"}}
        number = send_script(client, session, step, {"say": "on"})
        assert client.answer(number)["outcome"] == "completed"
        (rejected,) = last_events(home, session, "tool.approval.rejected")
        (call,) = last_events(home, session, "tool.call.failed")
        assert rejected["error_code"] == call["error_code"] == "APPROVAL_TIMEOUT"
        assert (call["outcome"], call["retryable"]) == ("not_started", True)


def test_turns_of_a_session_follow_each_other_and_those_of_two_sessions_overlap(
    home: Path,
) -> None:
    with daemon_in(home, "approvals.ask=never") as daemon:
        client = daemon.client()
        agent, first = create_agent(client)
        second = str(client.call("session.create", agentId=agent)["sessionId"])
        for session in (first, second):
            attach(client, session)
        # Each waits for a file that the other one writes: neither could end if they did not run side by side.
        for mine, other in ((first, second), (second, first)):
            command = f"touch {home}/{mine}; until test -e {home}/{other}; do sleep 0.01; done"
            step: Json = {"tool": "shell", "args": {"command": command}}
            send_script(client, mine, step, {"say": "met"})
        answers = [send_script(client, session, {"say": "next"}) for session in (first, second)]
        for session in (first, second):
            next_note(client, is_method("event.message_chunk", session))
        for number in answers:
            assert client.answer(number)["outcome"] == "completed"
        for session in (first, second):
            turns = [turn for turn in turn_ids(home, session) if turn]
            assert len(dict.fromkeys(turns)) == 2
            assert turns == sorted(turns, key=list(dict.fromkeys(turns)).index)


def turn_ids(home: Path, session: str) -> list[str]:
    """Return the turn of each event of a session, in order."""
    database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "select e.turn_id from events e join sessions s on s.key = e.session"
            " where s.session_id = ? order by e.sequence",
            (session,),
        ).fetchall()
    finally:
        database.close()
    return [row[0] for row in rows]


def test_without_a_time_limit_between_processes_turns_end_as_ever(home: Path) -> None:
    with daemon_in(home, "timeouts.link_call=0", "approvals.ask=never") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        step: Json = {"tool": "shell", "args": {"command": "true"}}
        assert client.answer(send_script(client, session, step))["outcome"] == "completed"
