"""What agents may use, and what clients see when they use more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import (
    attach,
    check_log,
    create_agent,
    daemon_in,
    eventually,
    is_method,
    next_note,
    send_script,
    status_is,
    terminals,
    within,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("step", "settings", "says"),
    [
        ({"hang": "hard"}, ("agents.hang_timeout=1",), "hung: "),
        ({"allocate_mib": 300}, ("agents.memory_limit=200000000",), "memory: "),
    ],
)
def test_an_agent_over_a_limit_is_restarted_and_its_clients_see_why(
    home: Path, step: Json, settings: tuple[str, ...], says: str
) -> None:
    with daemon_in(home, *settings) as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        attach(client, session)
        number = send_script(client, session, step, {"hang": True})
        assert client.answer(number)["outcome"] == "failed"
        status = within(next_note(client, status_is(session, "error")), "params")
        assert says in str(status["message"])
        answer = client.answer(send_script(client, session, {"say": "back"}))
        assert answer["outcome"] == "completed"
        assert terminals(check_log(home)[session]) == ["agent.turn.failed"]
        if "hung" in says:
            assert "Current thread" in (home / "logs" / "agents" / f"{agent}.log").read_text()


def test_agents_over_the_number_of_processes_wait_for_their_turn(home: Path) -> None:
    with daemon_in(home, "limits.agent_processes=2", "agents.idle_timeout=0.2") as daemon:
        client = daemon.client()
        sessions = [create_agent(client)[1] for _ in range(5)]
        numbers = [send_script(client, session, {"say": "done"}) for session in sessions]
        for number in numbers:
            assert client.answer(number)["outcome"] == "completed"


def test_an_idle_agent_ends_its_process_and_its_next_message_starts_it_again(home: Path) -> None:
    with daemon_in(home, "agents.idle_timeout=0.1") as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        for _ in range(5):
            answer = client.answer(send_script(client, session, {"say": "here"}))
            assert answer["outcome"] == "completed"
            eventually(lambda: not daemon.pid(agent))
        listed: list[Json] = client.call("agent.list")["agents"]  # type: ignore[assignment]
        assert [entry["status"] for entry in listed] == ["idle"]


def test_200_agents_answer_a_message_each(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        sessions = [create_agent(client)[1] for _ in range(200)]
        for first in range(0, 200, 32):
            numbers = [
                client.send("message.send", sessionId=session, content="hello")
                for session in sessions[first : first + 32]
            ]
            for number in numbers:
                assert client.answer(number)["outcome"] == "completed"
        assert len(check_log(home)) == 200


def test_a_cancelled_turn_that_blocks_its_process_is_ended_soon(home: Path) -> None:
    with daemon_in(home, "timeouts.turn_unwind=0.5") as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        attach(client, session)
        number = send_script(client, session, {"say": "on"}, {"hang": "hard"})
        next_note(client, is_method("event.message_chunk", session))
        old = daemon.pid(agent)
        began = time.monotonic()
        assert client.call("session.cancelTurn", sessionId=session)["cancelled"] is True
        assert client.answer(number)["outcome"] == "interrupted"
        assert time.monotonic() - began < 5
        assert client.answer(send_script(client, session, {"say": "x"}))["outcome"] == "completed"
        assert daemon.pid(agent) != old
        assert terminals(check_log(home)[session]) == ["cancellation.completed"]
