"""Against llama.cpp's own server, with a model that is real and random."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest
import trio

from roost.config.model import Provider
from roost.schemas.base import Refused
from roost.schemas.model import ListModels, Models, StopModel, ToolSpec
from tests.integration.providers.service import TIMEOUT, ask, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.slow

SHELL = ToolSpec(
    name="shell",
    description="Run a command.",
    schema=json.dumps(
        {
            "type": "object",
            "properties": {"command": {"enum": ["date", "uptime", "id"]}},
            "required": ["command"],
            "additionalProperties": False,
        }
    ).encode(),
)


def provider(model_server: str, **settings: object) -> Provider:
    values: dict[str, object] = {"base_url": f"{model_server}/v1", **settings}
    return msgspec.convert(values, Provider)


async def busy_slots(model_server: str) -> int:
    async with httpx2.AsyncClient() as client:
        slots = (await client.get(f"{model_server}/slots")).json()
    return sum(slot["is_processing"] for slot in slots)


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(TIMEOUT):
        while not await claim():  # noqa: ASYNC110 (the server tells nobody)
            await trio.sleep(0.01)


async def test_text_is_streamed(model_server: str) -> None:
    async with serving(p=provider(model_server, max_tokens=200)) as service:
        agent = service.connect("agent:1")
        answer = await agent.answer(ask(text="Say something."))
    assert answer.finish == "length"
    assert answer.output_tokens == 200
    assert answer.input_tokens > 10
    assert len(answer.text) >= 190
    assert len(agent.pieces[1]) > 1


async def test_in_json_mode_each_answer_is_a_valid_call_or_a_text(model_server: str) -> None:
    calls, texts = 0, 0
    async with serving(p=provider(model_server, tool_mode="json", max_tokens=2_000)) as service:
        agent = service.connect("agent:1")
        for stream in range(1, 60):
            answer = await agent.answer(ask(stream, text=f"Run {stream}", tools=(SHELL,)))
            if not answer.tool_calls:
                assert answer.finish == "stop"
                texts += 1
                continue
            assert answer.finish == "tool_calls"
            (call,) = answer.tool_calls
            assert call.name == "shell"
            assert json.loads(call.arguments)["command"] in ("date", "uptime", "id")
            calls += 1
            if calls >= 3 and texts >= 3:
                return
    pytest.fail(f"{calls} calls, {texts} texts")


async def test_a_stopped_request_frees_its_slot(model_server: str) -> None:
    async def busy() -> bool:
        return await busy_slots(model_server) == 1

    async def free() -> bool:
        return await busy_slots(model_server) == 0

    # Without a bound the random model speaks until its context is full.
    endless, short = provider(model_server), provider(model_server, max_tokens=20)
    async with serving(p=endless, q=short) as service:
        agent = service.connect("agent:1")
        await until(free)
        agent.link.call_nowait(ask(1, text="Go on."), lambda _: None)
        await agent.heard.wait()
        assert await busy()
        agent.link.cast(StopModel(stream=1))
        await until(free)
        assert (await agent.answer(ask(2, provider="q"))).output_tokens == 20


async def test_eight_requests_at_once_are_all_answered(model_server: str) -> None:
    tokens: list[int] = []
    async with serving(p=provider(model_server, max_tokens=100)) as service:
        agents = [service.connect(f"agent:{number}") for number in range(4)]

        async def use(number: int) -> None:
            answer = await agents[number % 4].answer(ask(number + 1, text=f"I am {number}"))
            tokens.append(answer.output_tokens)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(use, number)
    assert len(tokens) == 8
    assert all(count > 0 for count in tokens)


async def test_the_models_are_listed(model_server: str) -> None:
    async with serving(p=provider(model_server)) as service:
        models = await service.connect("front").call(ListModels())
    assert isinstance(models, Models)
    (model,) = models.models
    assert (model.id, model.tools) == ("micro", True)
    assert model.context_length > 0


async def test_a_prompt_that_is_too_long_is_refused_with_the_reason(model_server: str) -> None:
    async with serving(p=provider(model_server)) as service:
        refused = await service.connect("agent:1").call(ask(text="x" * 20_000))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retryable) == ("PROVIDER_API_ERROR", False)
    assert refused.message == "the conversation is longer than the model's context"
