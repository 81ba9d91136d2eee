"""Whole turns of the real agent on a store in memory: tools, approvals, interrupts, lost links, recovery."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from roost.schemas import event
from roost.schemas.base import MessageId
from roost.schemas.turn import Withdrawn
from tests.support.agent_rig import changed_settings, running_agent

ONE_TOOL = [
    "user.message",
    "agent.reasoning.started",
    "tool.call.requested",
    "tool.approval.requested",
    "tool.approval.approved",
    "tool.call.started",
    "tool.call.completed",
    "agent.reasoning.started",
    "agent.message.delta",
    "agent.message.completed",
]


async def until_exists(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.005)


async def test_a_message_is_answered_and_the_process_is_idle_again(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        message_id = rig.store.accept("hello")
        end = await rig.store.until_ended()
        assert end.outcome == "completed"
        assert "no language model" in rig.store.text
        assert rig.store.kinds == [
            "user.message",
            "agent.reasoning.started",
            "agent.message.delta",
            "agent.message.completed",
        ]
        (user,) = rig.store.find(event.UserMessage)
        assert user.content == "hello"
        assert user.metadata["message_id"] == message_id
        while rig.root.working:
            await rig.root.changed.wait()


async def test_a_shell_call_waits_for_its_approval_and_runs(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("$ pwd; echo done >&2; exit 3")
        row = await rig.store.until_asked()
        assert row.risk == "external_effect"
        assert b"dangerFullAccess" in row.body
        assert rig.root.working
        assert not rig.store.find(event.ToolCallStarted)
        rig.store.settle(row.request_id, "approved")
        await rig.store.until_ended()
        assert rig.store.kinds == ONE_TOOL
        (completed,) = rig.store.find(event.ToolCallCompleted)
        assert completed.result == {
            "output": f"{tmp_path}/work\ndone\n",
            "truncated": False,
            "exit_code": 3,
        }
        assert "exit code 3" in rig.store.text


async def test_a_denied_call_fails_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("$ touch x")
        row = await rig.store.until_asked()
        rig.store.settle(row.request_id, "denied")
        assert (await rig.store.until_ended()).outcome == "completed"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.outcome, failed.retryable) == (
            "APPROVAL_REJECTED",
            "not_started",
            False,
        )
        assert failed.error == "The call was denied: no thanks"
        assert not (tmp_path / "work" / "x").exists()


async def test_a_scope_wider_than_once_is_not_asked_for_again(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("$ true")
        row = await rig.store.until_asked()
        rig.store.settle(row.request_id, "approved", scope="session")
        await rig.store.until_ended()
        rig.store.accept("$ bash -lc 'true'")
        await rig.store.until_ended(2)
        assert len(rig.store.find(event.ToolApprovalRequested)) == 1


async def test_reading_runs_without_being_asked(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        (tmp_path / "work" / "note.txt").write_text("what it says\n")
        rig.store.accept("read note.txt\nfind note")
        await rig.store.until_ended()
        assert "what it says" in rig.store.text
        assert "note.txt" in rig.store.text


async def test_an_unattended_agent_is_denied_before_anything_else(tmp_path: Path) -> None:
    async with running_agent(tmp_path, unattended=True, allow=("*",), deny=("shell",)) as (rig, _):
        rig.store.accept("write x\ntext")
        await rig.store.until_ended()
        assert (tmp_path / "work" / "x").read_text() == "text\n"
        rig.store.accept("$ true")
        await rig.store.until_ended(2)
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert failed.error_code == "TOOL_NOT_ALLOWED"
        assert not rig.store.pending


async def test_a_command_without_a_sandbox_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    async with running_agent(tmp_path, sandbox="workspaceWrite") as (rig, _):
        rig.store.accept("$ true")
        await rig.store.until_ended()
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert failed.error_code == "SANDBOX_UNAVAILABLE"
        assert "workspaceWrite" in failed.error
        assert not rig.store.find(event.ToolApprovalRequested)


async def test_a_question_is_answered(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"ask": [{"id": "db", "question": "Which?"}]}])
        row = await rig.store.until_asked()
        assert row.kind == "question"
        answer = {"answers": {"db": {"answers": ["PostgreSQL"]}}}
        rig.store.settle(row.request_id, "answered", answer=answer)
        await rig.store.until_ended()
        (completed,) = rig.store.find(event.ToolCallCompleted)
        assert completed.result == answer


async def test_messages_get_their_turns_one_after_the_other(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        for number in range(5):
            rig.store.accept(str(number), [{"say": str(number)}])
        await rig.store.until_ended(5)
        assert rig.store.text == "01234"
        assert [e.content for e in rig.store.find(event.UserMessage)] == list("01234")


async def test_a_lost_bell_is_made_up_for_by_the_next_one(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("1", [{"say": "1"}])
        await rig.store.until_ended()
        rig.store.accept("2", [{"say": "2"}], bell=False)
        rig.store.ring()
        await rig.store.until_ended(2)
        assert rig.store.text == "12"


async def test_more_bells_than_a_session_can_hold_lose_nothing(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"hang": True}])
        await rig.store.until(lambda: rig.store.turn is not None)
        for _ in range(3000):
            rig.store.ring(Withdrawn(message_id=MessageId("unknown")))
        rig.store.accept("", [{"say": "next"}])
        rig.store.cancel()
        await rig.store.until_ended(2)
        assert rig.store.text == "next"
        assert rig.store.pulls >= 1


async def test_an_agent_that_the_store_does_not_know_ends(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.forgotten = True
        rig.store.disconnect()
        rig.link_store()
        await rig.stopped.wait()
        assert rig.process.stop_reason == "AGENT_NOT_FOUND"


async def test_a_withdrawn_message_is_not_begun(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"hang": True}])
        await rig.store.until(lambda: rig.store.turn is not None)
        second = rig.store.accept("second", [{"say": "second"}])
        third = rig.store.accept("third", [{"say": "third"}])
        rig.store.withdraw(second)
        rig.store.withdraw(third, bell=False)
        rig.store.accept("fourth", [{"say": "fourth"}])
        rig.store.cancel()
        await rig.store.until_ended(2)
        assert rig.store.text == "fourth"
        assert not rig.store.queued


async def test_an_interrupt_while_thinking_keeps_the_text_so_far(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"say": "so far"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "so far")
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        assert rig.store.kinds[-2:] == ["cancellation.requested", "cancellation.completed"]


async def test_an_interrupt_of_a_running_command_leaves_no_process(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ setsid sleep 71 & echo up > up; sleep 71")
        await rig.store.until(lambda: bool(rig.store.find(event.ToolCallStarted)))
        await until_exists(tmp_path / "work" / "up")
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.outcome, failed.retryable) == (
            "TOOL_CANCELLED",
            "unknown",
            False,
        )


async def test_an_interrupt_while_waiting_rejects_the_approval(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("$ true")
        await rig.store.until_asked()
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        assert rig.store.kinds[-4:] == [
            "cancellation.requested",
            "tool.approval.rejected",
            "tool.call.failed",
            "cancellation.completed",
        ]


async def test_an_approval_that_was_first_wins_over_the_time_limit(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"timeout": 0.05})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ echo ran")
        row = await rig.store.until_asked()
        rig.store.holding = True
        await rig.store.until(lambda: rig.store.held > 0)
        rig.store.settle(row.request_id, "approved", bell=False)
        rig.store.release()
        await rig.store.until_ended()
        assert rig.store.kinds == ONE_TOOL


async def test_nobody_decides_in_time(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"timeout": 0.02})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ true")
        assert (await rig.store.until_ended()).outcome == "completed"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.retryable) == ("APPROVAL_TIMEOUT", True)


async def test_a_tool_over_its_limit_fails_and_its_process_is_gone(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept(
            "", [{"tool": "shell", "args": {"command": "sleep 72", "timeout_s": 0.05}}]
        )
        await rig.store.until_ended()
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.error_code, failed.outcome) == ("TOOL_TIMEOUT", "unknown")


async def test_no_tool_starts_before_its_start_is_on_disk(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.holding = True
        rig.store.accept("write x\ny")
        await rig.store.until(lambda: rig.store.held == 4)
        await trio.testing.wait_all_tasks_blocked()
        assert not (tmp_path / "work" / "x").exists()
        rig.store.release()
        await rig.store.until_ended()
        assert (tmp_path / "work" / "x").exists()


async def test_a_lost_store_link_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"say": "abcdefghij" * 100, "chunks": 100, "interval_ms": 1}])
        for length in (100, 400, 700):
            await rig.store.until(lambda length=length: len(rig.store.text) > length)  # type: ignore[misc]
            rig.store.holding = True
            await rig.store.until(lambda: rig.store.held > 0)
            rig.store.disconnect()
            rig.store.holding = False
            rig.link_store()
        await rig.store.until_ended()
        assert rig.store.text == "abcdefghij" * 100
        assert rig.store.hellos == 4
        assert rig.store.generation == 1


async def test_a_parked_turn_goes_on_in_a_new_process(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, nursery):
        rig.store.accept("$ echo one\n$ echo two")
        row = await rig.store.until_asked()
        rig.store.settle(row.request_id, "approved")
        await rig.store.until(lambda: len(rig.store.find(event.ToolApprovalRequested)) == 2)
        row = await rig.store.until_asked()
        await rig.crash()
        rig.store.settle(row.request_id, "approved")
        await rig.start(nursery)
        assert (await rig.store.until_ended()).outcome == "completed"
        assert rig.store.generation == 2
        assert rig.store.text == "one\nexit code 0\ntwo\nexit code 0\n"
        assert len(rig.store.find(event.UserMessage)) == 1


async def test_a_parked_turn_waits_again_in_a_new_process(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, nursery):
        rig.store.accept("", [{"ask": [{"question": "Really?"}]}, {"say": "so"}])
        row = await rig.store.until_asked()
        await rig.crash()
        await rig.start(nursery)
        await rig.store.until(lambda: rig.store.generation == 2)
        rig.store.settle(row.request_id, "answered", answer={"answers": {}})
        await rig.store.until_ended()
        assert rig.store.text == "so"


async def test_a_turn_that_lost_its_process_is_closed_and_the_next_message_works(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as (rig, nursery):
        rig.store.accept("", [{"say": "half"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "half")
        await rig.crash()
        rig.store.accept("", [{"say": "whole"}])
        await rig.start(nursery)
        await rig.store.until_ended(2)
        (failed,) = rig.store.find(event.AgentTurnFailed)
        assert failed.error_code == "TURN_INTERRUPTED"
        assert rig.store.text == "halfwhole"


async def test_a_session_actor_that_crashes_is_started_again_alone(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.refuse_next["agent.message.completed"] = "EVENT_SCHEMA_INCOMPATIBLE"
        rig.store.accept("", [{"say": "lost"}])
        await rig.store.until_ended()
        rig.store.accept("", [{"say": "found"}])
        await rig.store.until_ended(2)
        assert rig.store.generation == 2
        assert [end.outcome for end in rig.store.ended.values()] == ["failed", "completed"]


async def test_a_session_with_a_newer_actor_writes_nothing_more(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"say": "a"}, {"sleep_ms": 20}, {"say": "b"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.text == "a")
        rig.store.generation += 1
        await rig.store.until(lambda: rig.store.drafts[-1].generation == 1)
        while rig.root.working:
            await rig.root.changed.wait()
        assert rig.store.text == "a"


async def test_a_message_that_was_withdrawn_as_its_turn_began_leaves_no_event(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.holding = True
        message_id = rig.store.accept("", [{"say": "x"}, {"hang": True}])
        await rig.store.until(lambda: rig.store.held == 2)
        rig.store.withdraw(message_id)
        rig.store.release()
        rig.store.accept("", [{"say": "next"}])
        await rig.store.until_ended()
        assert rig.store.text == "next"


async def test_a_closed_session_ends_its_turn_first(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"hang": True}])
        await rig.store.until(lambda: rig.store.turn is not None)
        rig.store.close_session()
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        while rig.root.working:
            await rig.root.changed.wait()


async def test_an_idle_process_asks_and_ends(tmp_path: Path) -> None:
    settings = changed_settings(agents={"idle_timeout": 0.03})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("", [{"sleep_ms": 60}])
        await rig.store.until_ended()
        await rig.stopped.wait()
        assert rig.process.stop_reason == "idle"


async def test_a_stop_lets_a_running_turn_end_and_leaves_a_parked_one(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"sleep_ms": 30}, {"say": "done"}])
        await rig.store.until(lambda: rig.store.turn is not None)
        rig.store.accept("$ true")
        rig.process.request_stop("daemon stop")
        await rig.stopped.wait()
        assert rig.store.text == "done"
        assert len(rig.store.ended) == 1
        assert len(rig.store.queued) == 1


async def test_a_stop_does_not_wait_for_a_person(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("$ true")
        await rig.store.until_asked()
        rig.process.request_stop("daemon stop")
        with trio.fail_after(1):
            await rig.stopped.wait()
        assert not rig.store.ended


@pytest.mark.slow
async def test_a_turn_that_does_not_unwind_gets_its_process_killed(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"}, timeouts={"turn_unwind": 0.05})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ trap '' TERM; echo > up; while :; do sleep 73; done")
        await until_exists(tmp_path / "work" / "up")
        rig.store.cancel()
        while not rig.root.kills:
            await rig.root.changed.wait()
        assert rig.root.kills[0].generation == 1


async def test_a_wrong_script_is_a_clear_failure(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("", [{"say": "x"}, {"dance": True}])
        end = await rig.store.until_ended()
        assert end.outcome == "failed"
        assert end.error == "metadata.script[1]: Object contains unknown field `dance`"
        (failed,) = rig.store.find(event.AgentTurnFailed)
        assert failed.error_code == "INVALID_SCRIPT"


async def test_a_provider_that_is_not_configured_is_a_clear_failure(tmp_path: Path) -> None:
    async with running_agent(tmp_path, provider="nowhere") as (rig, _):
        rig.store.accept("hello")
        end = await rig.store.until_ended()
        assert end.error == "There is no provider 'nowhere' in the configuration"


async def test_commands_get_the_agents_environment(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, nursery):
        await rig.crash()
        await rig.start(nursery, env={"COLOUR": "blue"})
        rig.store.accept("$ echo $COLOUR")
        await rig.store.until_ended()
        assert "blue" in rig.store.text


async def test_a_flood_is_capped_and_kept_in_a_file(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("$ echo first; head -c 3000000 /dev/zero; echo; echo last")
        await rig.store.until_ended()
        (completed,) = rig.store.find(event.ToolCallCompleted)
        result = msgspec.convert(completed.result, dict[str, object])
        assert result["truncated"] is True
        assert result["bytes"] == 3_000_012
        assert str(result["output"]).startswith("first")
        assert str(result["output"]).endswith("last\n")
        assert max(map(len, rig.store.bodies)) < 65_536 + 1024
        assert Path(str(result["output_file"])).stat().st_size == 3_000_012


@pytest.mark.slow
async def test_many_chunks_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        text = "".join(f"{number:05d}" for number in range(20_000))
        rig.store.accept("", [{"say": text, "chunks": 20_000}])
        await rig.store.until_ended()
        assert rig.store.text == text
        deltas = rig.store.find(event.AgentMessageDelta)
        assert len(deltas) < 2_000
        assert max(len(delta.delta) for delta in deltas) <= 4096
