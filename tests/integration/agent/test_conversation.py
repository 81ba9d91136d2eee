"""A cleared conversation and a cancelled call, as the agent hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from roost.actors.agent.tools.read_file import ReadFile
from roost.schemas import event
from roost.schemas.base import CallId
from roost.schemas.turn import CallCancelled, Cleared
from tests.integration.agent.test_models import PROVIDERS, SETTINGS, FakeProviders
from tests.support.agent_rig import changed_settings, running_agent

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.agent_rig import Rig


async def started_call(rig: Rig) -> CallId:
    """Return the id of the call that runs."""
    await rig.store.until(lambda: bool(rig.store.find(event.ToolCallStarted)))
    return CallId(rig.store.find(event.ToolCallStarted)[-1].tool_call_id)


async def test_a_cleared_conversation_begins_anew_at_once_and_a_late_bell_changes_nothing(
    tmp_path: Path,
) -> None:
    settings = msgspec.structs.replace(SETTINGS, providers=PROVIDERS)
    async with running_agent(tmp_path, settings=settings, provider="local") as (rig, _):
        providers = FakeProviders(rig)

        async def said(number: int, text: str) -> list[str]:
            """Have a turn; return what the model was told."""
            rig.store.accept(text)
            await providers.until_asked(number)
            providers.answer(f"answer {text}")
            await rig.store.until_ended(number)
            return [message.content for message in providers.asked[-1][1].messages[1:]]

        assert await said(1, "one") == ["one"]
        cleared = Cleared(after=len(rig.store.bodies))
        rig.store.ring(cleared)
        assert await said(2, "two") == ["two"]
        rig.store.ring(cleared)
        rig.store.ring(Cleared(after=1))
        assert await said(3, "three") == ["two", "answer two", "three"]


async def test_what_was_approved_for_the_session_is_asked_again_after_a_clear(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as (rig, _):
        for count in (1, 2):
            rig.store.accept("$ true")
            row = await rig.store.until_asked()
            rig.store.settle(row.request_id, "approved", scope="session")
            await rig.store.until_ended(2 * count - 1)
            rig.store.accept("$ true")
            await rig.store.until_ended(2 * count)
            rig.store.ring(Cleared(after=len(rig.store.bodies)))
        assert len(rig.store.find(event.ToolApprovalRequested)) == 2


async def test_a_cancelled_call_ends_alone_and_its_command_is_gone(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    script = [
        {"tool": "shell", "args": {"command": "echo > up; exec sleep 73"}},
        {"tool": "shell", "args": {"command": "echo next"}},
        {"say": "went on"},
    ]
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("", script)
        call_id = await started_call(rig)
        # Told twice, as after a lost bell; and of a call that is not there.
        for name in (call_id, call_id, CallId("none")):
            rig.store.ring(CallCancelled(call_id=name, reason="too slow"))
        assert (await rig.store.until_ended()).outcome == "completed"
        (failed,) = rig.store.find(event.ToolCallFailed)
        assert (failed.tool_call_id, failed.error_code) == (call_id, "TOOL_CANCELLED")
        assert failed.outcome == "unknown"
        assert len(rig.store.find(event.ToolCallCompleted)) == 1
        assert rig.store.text == "went on"
        assert not rig.root.kills


async def test_a_cancelled_call_that_does_not_end_gets_its_process_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = trio.Event()

    async def stuck(*_: object) -> str:
        with trio.CancelScope(shield=True):
            await release.wait()
        return "read"

    monkeypatch.setattr(ReadFile, "run", stuck)
    settings = changed_settings(timeouts={"turn_unwind": 0.01})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("read a")
        rig.store.ring(CallCancelled(call_id=await started_call(rig), reason="r"))
        while not rig.root.kills:
            await rig.root.changed.wait()
        assert rig.root.kills[0].reason == "a cancelled call did not unwind"
        release.set()
