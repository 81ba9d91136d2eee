"""Time limits of turns and tools in the real agent, on a store in memory; and what the store's ledger makes it do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio
import trio.testing

from roost.actors.agent.tools.read_file import ReadFile
from roost.schemas import event
from tests.support.agent_rig import changed_settings, running_agent
from tests.support.fake_store import SESSION

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from roost.config.model import Settings
    from tests.support.agent_rig import Rig

HOUR = 3600.0


def limited(**tables: dict[str, object]) -> Settings:
    turn: dict[str, object] = {"turn": HOUR}
    tables["timeouts"] = turn | tables.get("timeouts", {})
    tables.setdefault("approvals", {"ask": "never"})
    return changed_settings(**tables)


def turn_failure(rig: Rig) -> tuple[object, object, object, object]:
    last = rig.store.find(event.AgentTurnFailed)[-1]
    return last.error_code, last.phase, last.retryable, last.outcome


async def test_a_turn_past_its_limit_in_the_stream_fails_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.accept("", [{"say": "so far"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "so far")
        rig.let_pass(HOUR)
        assert (await rig.store.until_ended()).outcome == "failed"
        assert rig.store.kinds == [
            "user.message",
            "agent.reasoning.started",
            "agent.message.delta",
            "agent.turn.failed",
        ]
        assert turn_failure(rig) == ("TURN_TIMEOUT", "provider_stream", True, "unknown")
        rig.store.accept("hello")
        assert (await rig.store.until_ended(2)).outcome == "completed"


async def test_a_turn_past_its_limit_in_a_tool_ends_the_tool(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.accept("$ exec sleep 71")
        await rig.store.until(lambda: bool(rig.store.find(event.ToolCallStarted)))
        rig.let_pass(HOUR)
        assert (await rig.store.until_ended()).outcome == "failed"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.retryable, failed.outcome) == (
            "TURN_TIMEOUT",
            False,
            "unknown",
        )
        assert turn_failure(rig) == ("TURN_TIMEOUT", "tool", False, "unknown")


async def test_a_message_past_the_limit_in_the_queue_fails_alone(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.accept("", [{"say": "first"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "first")
        rig.store.accept("second")
        await trio.testing.wait_all_tasks_blocked(0.01)
        rig.let_pass(HOUR)
        await rig.store.until_ended(2)
        third = rig.store.accept("third")
        assert (await rig.store.until_ended(3)).outcome == "completed"
        first, queued = rig.store.find(event.AgentTurnFailed)
        assert first.phase == "provider_stream"
        assert (queued.error_code, queued.phase, queued.retryable, queued.outcome) == (
            "TURN_TIMEOUT",
            "queue",
            True,
            "not_started",
        )
        assert [e for e in rig.store.events if e.turn_id == queued.turn_id] == [queued]
        assert rig.store.find(event.UserMessage)[-1].metadata["message_id"] == third


async def test_the_clock_of_a_turn_stands_still_while_it_waits_for_a_person(tmp_path: Path) -> None:
    settings = limited(approvals={"ask": "write"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ true")
        row = await rig.store.until_asked()
        clock = rig.session.clock
        before = clock.now()
        await trio.sleep(0.01)
        assert clock.now() == before
        rig.store.settle(row.request_id, "approved")
        await rig.store.until_ended()
        assert clock.now() > before


async def test_the_clocks_stand_still_while_the_store_is_away(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.accept("", [{"say": "on"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "on")
        session = rig.session
        rig.store.disconnect()
        while session._host.has_store:  # pyright: ignore[reportPrivateUsage]
            await trio.lowlevel.checkpoint()
        before = session.clock.now(), session.uptime.now()
        await trio.sleep(0.01)
        assert (session.clock.now(), session.uptime.now()) == before
        rig.link_store()
        await trio.sleep(0.01)
        assert session.clock.now() > before[0]


async def test_the_clocks_stand_still_while_the_store_cannot_write(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.refuse_next["agent.message.completed"] = "EVENT_APPEND_FAILED"
        rig.store.accept("", [{"say": "on"}])
        await rig.store.until(lambda: not rig.store.refuse_next)
        while not rig.session.outbox.is_holding:
            await trio.lowlevel.checkpoint()
        before = rig.session.clock.now()
        await trio.sleep(0.01)
        assert rig.session.clock.now() == before
        assert (await rig.store.until_ended()).outcome == "completed"


class StuckReads:
    """Makes reading a file ignore that it is stopped, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = trio.Event()
        self.started = trio.Event()
        monkeypatch.setattr(ReadFile, "run", self._run)

    async def _run(self, *args: object) -> str:
        self.started.set()
        with trio.CancelScope(shield=True):
            await self.release.wait()
        await trio.lowlevel.checkpoint()
        return "read"


async def test_a_handler_that_outlives_its_limit_keeps_its_permit_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = limited(tools={"timeout": 0.01})
    reads = StuckReads(monkeypatch)
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        permits = await rig.permits()
        rig.store.accept("read a")
        await reads.started.wait()
        await trio.sleep(0.03)
        assert permits.borrowed_tokens == 1
        reads.release.set()
        await rig.store.until_ended()
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.retryable, failed.outcome) == (
            "TOOL_TIMEOUT",
            False,
            "unknown",
        )
        assert permits.borrowed_tokens == 0


async def test_a_call_that_waits_too_long_for_a_permit_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = limited(tools={"parallel": 1, "timeout": 0.02})
    reads = StuckReads(monkeypatch)
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        permits = await rig.permits()
        permits.acquire_on_behalf_of_nowait("another session's call")
        rig.store.accept("read a")
        await rig.store.until_ended()
        permits.release_on_behalf_of("another session's call")
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.retryable, failed.outcome) == (
            "TOOL_TIMEOUT",
            True,
            "not_started",
        )
        assert not reads.started.is_set()
        assert not rig.store.find(event.ToolCallStarted)
        assert permits.borrowed_tokens == 0


async def test_a_call_that_gets_its_permit_late_still_runs(tmp_path: Path) -> None:
    settings = limited(tools={"parallel": 1})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        (tmp_path / "work" / "a").write_text("what it says")
        permits = await rig.permits()
        permits.acquire_on_behalf_of_nowait("another session's call")
        rig.store.accept("read a")
        while not permits.statistics().tasks_waiting:  # noqa: ASYNC110 # it tells nobody
            await trio.sleep(0.001)
        permits.release_on_behalf_of("another session's call")
        await rig.store.until_ended()
        assert "what it says" in rig.store.text
        assert permits.borrowed_tokens == 0


async def test_a_handler_that_never_ends_gets_its_process_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = limited(tools={"timeout": 0.01}, timeouts={"turn_unwind": 0.01})
    reads = StuckReads(monkeypatch)
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("read a")
        while not rig.root.kills:
            await rig.root.changed.wait()
        assert rig.root.kills[0].reason == "a tool did not unwind"
        reads.release.set()


async def test_a_call_that_the_ledger_knows_is_answered_without_a_run(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.refuse_next["tool.call.started"] = "CALL_ALREADY_STARTED"
        rig.store.recalled = event.ToolCallCompleted(
            id="e",
            timestamp=1.0,
            session_id=SESSION,
            turn_id="before",
            tool_name="shell",
            tool_call_id="c",
            result={"output": "from before", "exit_code": 0},
        )
        rig.store.accept("$ touch ran")
        assert (await rig.store.until_ended()).outcome == "completed"
        assert "from before" in rig.store.text
        assert not (tmp_path / "work" / "ran").exists()
        assert not rig.store.find(event.ToolCallStarted)


async def test_a_call_that_has_no_room_in_the_ledger_fails_and_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.refuse_next["tool.call.started"] = "IDEMPOTENCY_CAPACITY_EXCEEDED"
        rig.store.accept("$ touch ran")
        assert (await rig.store.until_ended()).outcome == "completed"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.retryable, failed.outcome) == (
            "IDEMPOTENCY_CAPACITY_EXCEEDED",
            True,
            "not_started",
        )
        assert not (tmp_path / "work" / "ran").exists()


async def test_commands_know_the_key_of_their_call(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=limited()) as (rig, _):
        rig.store.accept('$ printf "%s" "$ROOST_IDEMPOTENCY_KEY"')
        await rig.store.until_ended()
        (completed,) = rig.store.find(event.ToolCallCompleted)
        result = json.loads(json.dumps(completed.result))
        assert result["output"] == f"{SESSION}:{completed.tool_call_id}"
