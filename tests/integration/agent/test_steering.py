"""Messages that steer a running turn: when the runner gets them, in which order, and what a lost process leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio.testing

from roost.config.model import Provider
from roost.schemas import event
from roost.schemas.model import ToolCall
from tests.integration.agent.test_models import FakeProviders
from tests.support.agent_rig import changed_settings, running_agent

if TYPE_CHECKING:
    from pathlib import Path

    from roost.config.model import Settings
    from tests.support.fake_store import FakeStore

WAIT = [{"say": "a"}, {"tool": "shell", "args": {"command": "true"}}, {"say": "z"}]


def with_providers() -> Settings:
    settings = changed_settings(approvals={"ask": "never"})
    providers = {
        "local": Provider(base_url="http://127.0.0.1:1/v1", model="tiny"),
        "other": Provider(base_url="http://127.0.0.1:1/v1", model="large"),
    }
    return msgspec.structs.replace(settings, providers=providers)


def said(store: FakeStore) -> list[str]:
    """What users and the agent have said, in the order of the log."""
    words: list[str] = []
    for found in store.events:
        if isinstance(found, event.UserMessage):
            words.append(f"user: {found.content}")
        elif isinstance(found, event.AgentMessageCompleted):
            words.append(found.content)
    return words


async def begin_and_hold(store: FakeStore, script: list[object]) -> None:
    """Let a turn begin and come to its end, whose draft is held."""
    store.holding = True
    store.accept("go", script)
    await store.until(lambda: store.held == 4)
    store.release_first()


async def test_a_message_enters_the_turn_before_its_next_step(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("go", WAIT)
        row = await rig.store.until_asked()
        message_id = rig.store.steer("no", [{"say": "b"}])
        rig.store.steer("yes", [{"say": "c"}])
        await rig.store.until(lambda: rig.store.pulls > 0)
        rig.store.settle(row.request_id, "approved")
        assert (await rig.store.until_ended()).outcome == "completed"
        assert said(rig.store) == ["user: go", "a", "user: no", "user: yes", "bcz"]
        steers = rig.store.find(event.UserMessage)[1:]
        assert steers[0].metadata["message_id"] == message_id
        assert [found.metadata["source"] for found in steers] == ["steer", "steer"]
        assert len({found.turn_id for found in rig.store.find(event.UserMessage)}) == 1
        assert len(rig.store.ended) == 1


async def test_a_message_that_comes_with_the_last_word_gets_a_step_of_its_own(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as (rig, _):
        await begin_and_hold(rig.store, [{"say": "done"}])
        rig.store.steer("more", [{"say": "more"}], bell=False)
        rig.store.release()
        assert (await rig.store.until_ended()).outcome == "completed"
        assert said(rig.store) == ["user: go", "done", "user: more", "more"]
        finals = [e for e in rig.store.events if event.is_final(e)]
        assert finals == rig.store.events[-1:]


async def test_what_an_interrupted_turn_has_not_read_is_left_to_the_store(
    tmp_path: Path,
) -> None:
    async with running_agent(tmp_path) as (rig, _):
        await begin_and_hold(rig.store, [{"say": "first"}])
        rig.store.steer("one", [{"hang": True}], bell=False)
        rig.store.release()
        await rig.store.until(lambda: len(rig.store.find(event.UserMessage)) == 2)
        rig.store.steer("two", [{"say": "second"}])
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        assert said(rig.store) == ["user: go", "first", "user: one"]


async def test_a_turn_refused_its_end_can_be_interrupted(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        await begin_and_hold(rig.store, [{"say": "done"}])
        rig.store.steer("more", [{"say": "more"}], bell=False)
        rig.store.cancel()
        rig.store.release()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        assert said(rig.store) == ["user: go", "done"]


async def test_steps_of_a_message_may_ask_for_tools_and_fail(tmp_path: Path) -> None:
    settings = changed_settings(approvals={"ask": "never"})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("go", [{"sleep_ms": 20}, *WAIT])
        await rig.store.until(lambda: rig.store.turn is not None)
        rig.store.steer("write x\ny")
        await rig.store.until_ended()
        assert (tmp_path / "work" / "x").read_text() == "y\n"
        assert rig.store.text.endswith("z")
        rig.store.accept("go", [{"sleep_ms": 20}, {"say": "a"}])
        await rig.store.until(lambda: rig.store.turn is not None)
        rig.store.steer("no", [{"no such": "step"}])
        assert (await rig.store.until_ended(2)).outcome == "failed"


async def test_a_lost_link_loses_no_message_and_repeats_none(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, _):
        rig.store.accept("go", [*WAIT])
        row = await rig.store.until_asked()
        for number in range(3):
            rig.store.disconnect()
            rig.store.steer(f"{number}", [{"say": f"{number}"}])
            rig.link_store()
        await rig.store.until(lambda: rig.store.pulls > 0)
        rig.store.holding = True
        rig.store.settle(row.request_id, "approved")
        await rig.store.until(lambda: rig.store.held > 0)
        rig.store.disconnect()
        rig.store.holding = False
        rig.link_store()
        await rig.store.until_ended()
        users = [f"user: {number}" for number in range(3)]
        assert said(rig.store) == ["user: go", "a", *users, "012z"]


async def test_a_parked_turn_goes_on_with_what_it_has_read_and_what_not(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as (rig, nursery):
        script = [{"tool": "shell", "args": {"command": "true"}}, {"say": "b"}, WAIT[1]]
        rig.store.accept("go", [*WAIT[:2], {"say": "y"}, {"say": "z"}])
        row = await rig.store.until_asked()
        rig.store.steer("one", [{"say": "c"}, *script])
        await rig.store.until(lambda: rig.store.pulls == 1)
        rig.store.settle(row.request_id, "approved")
        await rig.store.until(lambda: len(rig.store.find(event.ToolApprovalRequested)) == 2)
        rig.store.steer("two", [{"say": "d"}])
        await rig.crash()
        await rig.start(nursery)
        await rig.store.until(lambda: rig.store.generation == 2)
        for _ in range(2):
            row = await rig.store.until_asked()
            rig.store.settle(row.request_id, "approved")
        assert (await rig.store.until_ended()).outcome == "completed"
        assert said(rig.store) == ["user: go", "a", "user: one", "c", "user: two", "db", "yz"]


async def test_a_turn_that_has_used_its_steps_still_answers_who_steers_it(tmp_path: Path) -> None:
    settings = changed_settings(agents={"max_iterations": 1})
    async with running_agent(tmp_path, settings=settings) as (rig, _):
        rig.store.accept("go", [{"sleep_ms": 20}, {"say": "a"}])
        await rig.store.until(lambda: rig.store.turn is not None)
        rig.store.steer("more", [{"say": "b"}])
        assert (await rig.store.until_ended()).outcome == "completed"
        assert said(rig.store) == ["user: go", "a", "user: more", "b"]


async def test_a_model_sees_the_message_behind_the_results(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=with_providers(), provider="local") as (rig, _):
        models = FakeProviders(rig)
        rig.store.accept("go")
        await models.until_asked()
        rig.store.steer("stop that", bell=False)
        rig.store.ring()
        models.answer("", ToolCall(id="x", name="list_files", arguments="{}"))
        asked = await models.until_asked(2)
        assert [m.role for m in asked.messages] == ["system", "user", "assistant", "tool", "user"]
        assert asked.messages[-1].content == "stop that"
        rig.store.steer("and this", bell=False)
        models.answer("done")
        asked = await models.until_asked(3)
        assert [m.content for m in asked.messages[-2:]] == ["done", "and this"]
        rig.store.steer("last", bell=False)
        models.answer("")
        asked = await models.until_asked(4)
        assert [m.content for m in asked.messages[-2:]] == ["and this", "last"]
        models.answer("so")
        await rig.store.until_ended()
        used = [
            change
            for draft in rig.store.drafts
            for change in draft.changes
            if type(change).__name__ == "AddUsage"
        ]
        # The refused ends are sent again as steps.
        assert len(used) - rig.store.refusals.count("TURN_STEERED") == 4


@pytest.mark.parametrize(
    ("session", "wanted", "provider", "model"),
    [
        ("", "", "local", "tiny"),
        ("mine", "", "local", "mine"),
        ("mine", "his", "local", "his"),
        ("", "other", "other", "large"),
        ("mine", "other/huge", "other", "huge"),
        ("mine", "vendor/huge", "local", "vendor/huge"),
    ],
)
async def test_a_turn_has_its_own_model_or_that_of_its_session(
    tmp_path: Path, session: str, wanted: str, provider: str, model: str
) -> None:
    async with running_agent(tmp_path, settings=with_providers(), provider="local") as (rig, _):
        models = FakeProviders(rig)
        rig.store.model = session
        rig.store.accept("go\nthere", model=wanted, texts=("go", "there"), turn_id="turn-mine")
        asked = await models.until_asked()
        assert (asked.provider, asked.model) == (provider, model)
        (user,) = rig.store.find(event.UserMessage)
        assert user.turn_id == "turn-mine"
        assert user.metadata["model"] == model
        assert user.metadata["input"] == ["go", "there"]
        await trio.testing.wait_all_tasks_blocked()
