"""The llm runner over a real link to a fake providers service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from roost.config.model import Provider, Settings
from roost.schemas import event
from roost.schemas.model import AskModel, ModelAnswer, ModelDelta, StopModel, ToolCall
from roost.schemas.unions import providers_from_peer
from roost.supervisor.link import Link
from tests.support.agent_rig import Rig, changed_settings, running_agent

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import Message

SETTINGS = changed_settings(approvals={"ask": "never"})
PROVIDERS = {"local": Provider(base_url="http://127.0.0.1:1/v1", model="tiny")}


class FakeProviders:
    """Keeps requests; a test answers them."""

    def __init__(self, rig: Rig) -> None:
        self.asked: list[tuple[int, AskModel]] = []
        self.stopped: list[int] = []
        self._changed = trio.Event()
        self.link = Link(
            rig.link_peer("providers"),
            rig.process.poller,
            name="agent",
            decoder=providers_from_peer,
            handler=self,
        )
        rig.peers.append(self.link)

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        match message:
            case AskModel():
                self.asked.append((ref, message))
            case StopModel(stream=stream):
                self.stopped.append(stream)
            case _:
                raise AssertionError(message)
        self._changed.set()
        self._changed = trio.Event()

    def on_closed(self, link: Link) -> None:
        pass

    async def until_asked(self, count: int = 1) -> AskModel:
        while len(self.asked) < count:
            await self._changed.wait()
        return self.asked[-1][1]

    async def until_stopped(self) -> None:
        while not self.stopped:
            await self._changed.wait()

    def say(self, text: str) -> None:
        self.link.cast(ModelDelta(stream=self.asked[-1][1].stream, text=text))

    def answer(self, text: str, *calls: ToolCall) -> None:
        self.link.reply(
            self.asked[-1][0],
            ModelAnswer(text=text, tool_calls=calls, input_tokens=1, output_tokens=2),
        )


def _with_provider() -> Settings:
    return msgspec.structs.replace(SETTINGS, providers=PROVIDERS)


async def test_a_model_streams_calls_a_tool_and_sees_its_result(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=_with_provider(), provider="local") as (rig, _):
        providers = FakeProviders(rig)
        rig.store.accept("look around")
        asked = await providers.until_asked()
        assert [m.role for m in asked.messages] == ["system", "user"]
        providers.say("let me ")
        providers.say("see")
        providers.answer(
            "let me see", ToolCall(id="x", name="shell", arguments='{"command":"echo hi"}')
        )
        asked = await providers.until_asked(2)
        assert [m.role for m in asked.messages] == ["system", "user", "assistant", "tool"]
        assert "hi" in asked.messages[-1].content
        assert asked.messages[2].tool_calls[0].id == asked.messages[3].tool_call_id
        providers.answer("done")
        assert (await rig.store.until_ended()).outcome == "completed"
        assert rig.store.text == "let me see"
        assert [e.content for e in rig.store.find(event.AgentMessageCompleted)] == [
            "let me see",
            "done",
        ]


async def test_the_next_turn_knows_the_one_before(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=_with_provider(), provider="local") as (rig, _):
        providers = FakeProviders(rig)
        for number, text in enumerate(("one", "two"), 1):
            rig.store.accept(text)
            await providers.until_asked(number)
            providers.answer(f"answer {text}")
            await rig.store.until_ended(number)
        assert [m.content for m in providers.asked[-1][1].messages[1:]] == [
            "one",
            "answer one",
            "two",
        ]


async def test_an_interrupt_tells_the_model_to_stop(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=_with_provider(), provider="local") as (rig, _):
        providers = FakeProviders(rig)
        rig.store.accept("go")
        await providers.until_asked()
        providers.say("so far")
        await rig.store.until(lambda: rig.store.text == "so far")
        rig.store.cancel()
        assert (await rig.store.until_ended()).outcome == "interrupted"
        await providers.until_stopped()
        providers.say("too late")
        rig.store.accept("again")
        await providers.until_asked(2)
        providers.answer("fine")
        await rig.store.until_ended(2)
        assert rig.store.text == "so far"


async def test_a_lost_providers_service_is_asked_once_more(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=_with_provider(), provider="local") as (rig, _):
        first = FakeProviders(rig)
        rig.store.accept("go")
        await first.until_asked()
        first.link.close()
        second = FakeProviders(rig)
        await second.until_asked()
        second.say("so")
        await rig.store.until(lambda: rig.store.text == "so")
        second.link.close()
        assert (await rig.store.until_ended()).outcome == "failed"
        (failed,) = rig.store.find(event.AgentTurnFailed)
        assert (failed.error_code, failed.retryable, failed.phase) == (
            "PROVIDER_NETWORK_ERROR",
            True,
            "provider_stream",
        )


async def test_a_tool_that_does_not_exist_fails_its_call_alone(tmp_path: Path) -> None:
    async with running_agent(tmp_path, settings=_with_provider(), provider="local") as (rig, _):
        providers = FakeProviders(rig)
        rig.store.accept("go")
        await providers.until_asked()
        providers.answer(
            "",
            ToolCall(id="1", name="dance", arguments="{}"),
            ToolCall(id="2", name="shell", arguments="{"),
        )
        asked = await providers.until_asked(2)
        assert [m.content for m in asked.messages[-2:]] == [
            "Error: There is no such tool",
            "Error: Invalid arguments: invalid JSON",
        ]
        providers.answer("sorry")
        assert (await rig.store.until_ended()).outcome == "completed"
