from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.providers import pool, provider as provider_module
from roost.actors.providers.actor import ProvidersActor
from roost.actors.providers.wire.chat_request import encode_request
from roost.config.load import default_settings
from roost.config.model import Provider, encode_settings
from roost.schemas.base import Refused
from roost.schemas.model import ListModels, ModelAnswer, ModelInfo, Models, StopModel
from roost.supervisor.backoff import Backoff
from roost.supervisor.errors import ActorGone
from tests.integration.providers.service import TIMEOUT, Peer, ask, serving
from tests.support import scripted_model as script

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas.model import AskModel
    from tests.support.scripted_model import ScriptedModel


def to(server: ScriptedModel, **settings: object) -> Provider:
    return msgspec.convert({"base_url": server.base_url, "key": "sk-secret", **settings}, Provider)


async def until(claim: Callable[[], object]) -> None:
    with trio.fail_after(TIMEOUT):
        while not claim():  # noqa: ASYNC110 (what is claimed is seen from outside)
            await trio.sleep(0.001)


async def test_an_agent_gets_the_text_in_pieces_and_then_the_answer(server: ScriptedModel) -> None:
    server.play(script.says("Hel", "lo", interval=0.02))
    async with serving(p=to(server)) as service:
        agent = service.connect("agent:1")
        answer = await agent.answer(ask(7))
    assert answer.text == "Hello"
    assert answer.finish == "stop"
    assert agent.pieces == {7: ["Hel", "lo"]}


async def test_pieces_that_come_together_are_joined(server: ScriptedModel) -> None:
    words = [f"word{number} " for number in range(400)]
    server.play(script.says(*words))
    async with serving(p=to(server)) as service:
        agent = service.connect("agent:1")
        answer = await agent.answer(ask())
    assert answer.text == "".join(words)
    assert len(agent.pieces[1]) < 100


async def test_tool_calls_come_with_the_answer(server: ScriptedModel) -> None:
    server.play(script.calls("shell", '{"command":', '"ls"}'))
    async with serving(p=to(server)) as service:
        answer = await service.connect("agent:1").answer(ask())
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("shell", '{"command":"ls"}')
    ]


async def test_requests_of_one_agent_are_told_apart_by_their_streams(server: ScriptedModel) -> None:
    async def echo(stage: script.Stage) -> None:
        said = json.loads(stage.asked.body)["messages"][0]["content"]
        await script.says(*said)(stage)

    server.play(echo)
    async with serving(p=to(server)) as service, trio.open_nursery() as nursery:
        agent = service.connect("agent:1")

        async def ask_one(number: int) -> None:
            answer = await agent.answer(ask(number, text=f"number {number}"))
            assert answer.text == f"number {number}"

        for number in range(1, 17):
            nursery.start_soon(ask_one, number)


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        (script.status(401), "PROVIDER_AUTH_ERROR", False),
        (script.status(429), "PROVIDER_RATE_LIMITED", True),
        (script.status(500), "PROVIDER_API_ERROR", True),
        (script.status(400), "PROVIDER_API_ERROR", False),
        (script.body(b"?", "text/plain"), "PROVIDER_API_ERROR", False),
        (script.silent_after(), "PROVIDER_TIMEOUT", True),
        (script.cut_after("Hel"), "PROVIDER_NETWORK_ERROR", True),
        (script.pours("x" * 10_000), "PROVIDER_OUTPUT_LIMIT", False),
    ],
)
async def test_each_fault_of_a_server_is_refused_with_its_code(
    server: ScriptedModel, answer: script.Answer, code: str, retryable: bool
) -> None:
    server.play(answer)
    async with serving(p=to(server, max_retries=0, event_timeout=0.1)) as service:
        agent = service.connect("agent:1")
        refused = await agent.call(ask())
        server.play(script.says("again"))
        assert (await agent.call(ask(2))) == ModelAnswer(
            text="again", input_tokens=7, output_tokens=1
        )
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retryable) == (code, retryable)


async def test_an_unknown_provider_is_refused() -> None:
    async with serving() as service:
        refused = await service.connect("agent:1").call(ask(provider="q"))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retryable) == ("PROVIDER_NOT_FOUND", False)


async def test_a_request_that_is_stopped_hangs_up_and_is_not_answered(
    server: ScriptedModel,
) -> None:
    server.play(script.silent_after(script.delta(content="Hel")))
    answers: list[object] = []
    async with serving(p=to(server)) as service:
        agent = service.connect("agent:1")
        agent.link.call_nowait(ask(3), answers.append)
        await agent.heard.wait()
        agent.link.cast(StopModel(stream=3))
        with trio.fail_after(1):
            await server.hung_up.wait()
        server.play(script.says("next"))
        assert (await agent.answer(ask(4))).text == "next"
        assert answers == []


async def test_a_request_can_be_stopped_before_it_is_sent(server: ScriptedModel) -> None:
    server.play(script.silent_after(), script.says("next"))
    answers: list[object] = []
    async with serving(p=to(server, max_parallel=1)) as service:
        agent = service.connect("agent:1")
        agent.link.call_nowait(ask(1), answers.append)
        agent.link.call_nowait(ask(2), answers.append)
        await until(lambda: server.asked)
        agent.link.cast(StopModel(stream=2))
        agent.link.cast(StopModel(stream=99))
        agent.link.cast(StopModel(stream=1))
        assert (await agent.answer(ask(3))).text == "next"
        assert len(server.asked) == 2
        assert answers == []


async def test_the_requests_of_an_agent_that_is_gone_hang_up(server: ScriptedModel) -> None:
    server.play(script.silent_after(script.delta(content="Hel")))
    async with serving(p=to(server)) as service:
        agent, other = service.connect("agent:1"), service.connect("agent:2")
        agent.link.call_nowait(ask(), lambda _: None)
        await agent.heard.wait()
        agent.link.close()
        with trio.fail_after(1):
            await server.hung_up.wait()
        server.play(script.says("other"))
        assert (await other.answer(ask())).text == "other"


async def test_a_new_link_of_the_same_name_ends_the_requests_of_the_old_one(
    server: ScriptedModel,
) -> None:
    server.play(script.silent_after(), script.says("new"))
    answers: list[object] = []
    async with serving(p=to(server)) as service:
        old = service.connect("agent:1")
        old.link.call_nowait(ask(), answers.append)
        await until(lambda: server.asked)
        new = service.connect("agent:1")
        await server.hung_up.wait()
        assert (await new.answer(ask())).text == "new"
        await until(lambda: answers)
    assert isinstance(answers[0], ActorGone)


async def test_a_stream_number_is_used_once_at_a_time(server: ScriptedModel) -> None:
    server.play(script.silent_after())
    async with serving(p=to(server)) as service:
        agent = service.connect("agent:1")
        agent.link.call_nowait(ask(1), lambda _: None)
        refused = await agent.call(ask(1))
    assert isinstance(refused, Refused)
    assert refused.code == "INVALID_ARGUMENT"


@pytest.mark.slow
async def test_an_agent_that_does_not_read_stops_its_own_model_only(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    async def pour(stage: script.Stage) -> None:
        nonlocal sent
        await stage.send(script.SSE_HEAD)
        while True:
            # What is ignored counts against no bound of the answer, and fills the connection all the same.
            await stage.event(script.delta(content="x" * 100, reasoning_content="y" * 20_000))
            sent += 1

    server.play(pour)
    async with serving(p=to(server)) as service:
        monkeypatch.setattr(service.actor, "_queue_bytes", 4_000)
        deaf = service.connect("agent:1", read=False)
        _fill_socket(deaf)
        deaf.link.call_nowait(ask(), lambda _: None)
        deaf.link.flush()
        await until(lambda: sent > 30)
        before = -1
        while before != sent:
            before = sent
            await trio.sleep(0.05)
        assert sent < 2_000
        server.play(script.says("other"))
        other = service.connect("agent:2")
        assert (await other.answer(ask())).text == "other"


def _fill_socket(peer: Peer) -> None:
    """Leave next to no room in the socket through which the peer would be told something."""
    import socket

    receiving = socket.socket(fileno=peer.link.fileno())
    receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    receiving.detach()


async def test_a_fault_of_ours_ends_the_one_request(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(asked: AskModel, **_: object) -> bytes:
        if asked.messages[0].content == "break":
            raise RuntimeError("break with sk-secret")
        return encode_request(asked)

    monkeypatch.setattr(pool, "encode_request", encode)
    server.play(script.says(*"Hello", interval=0.02))
    async with serving(p=to(server)) as service, trio.open_nursery() as nursery:
        agent = service.connect("agent:1")
        nursery.start_soon(agent.answer, ask(1))
        await agent.heard.wait()
        refused = await agent.call(ask(2, text="break"))
    assert isinstance(refused, Refused)
    assert refused.code == "INTERNAL"
    assert "RuntimeError at" in caplog.text
    assert "sk-secret" not in caplog.text
    assert "break with" not in caplog.text


async def test_a_crash_of_one_provider_leaves_the_others_alone_and_it_starts_anew(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "RESTART", Backoff(first=0.01))
    server.play(script.says(*"Hello", interval=0.02), script.silent_after())
    crashes = [RuntimeError("a fault")]

    def set_working(_: bool) -> None:
        if crashes:
            raise crashes.pop()

    answers: list[object] = []
    async with serving(p=to(server), q=to(server)) as service, trio.open_nursery() as nursery:
        agent = service.connect("agent:1")
        nursery.start_soon(agent.answer, ask(1, provider="q"))
        await agent.heard.wait()
        agent.link.call_nowait(ask(2, provider="p"), answers.append)
        agent.link.call_nowait(ask(3, provider="p"), answers.append)
        await until(lambda: len(server.asked) == 3)
        monkeypatch.setattr(service.process, "set_working", set_working)
        agent.link.cast(StopModel(stream=2))
        await until(lambda: answers)
        server.play(script.says("anew"))
        assert (await agent.answer(ask(4, provider="p"))).text == "anew"
        assert len(answers) == 1
    assert isinstance(answers[0], Refused)
    assert (answers[0].code, answers[0].retryable) == ("PROVIDER_NETWORK_ERROR", True)


async def test_too_many_requests_are_refused(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "MAX_REQUEST_BYTES", 1_000)
    server.play(script.silent_after())
    async with serving(p=to(server)) as service:
        agent = service.connect("agent:1")
        agent.link.call_nowait(ask(1, text="x" * 900), lambda _: None)
        refused = await agent.call(ask(2, text="x" * 900))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.retryable) == ("PROVIDER_RATE_LIMITED", True)
        await until(lambda: server.asked)
        agent.link.cast(StopModel(stream=1))
        await until(server.hung_up.is_set)
        server.play(script.says("room"))
        assert (await agent.answer(ask(3, text="x" * 900))).text == "room"


async def test_the_front_gets_the_models_of_all_providers(server: ScriptedModel) -> None:
    server.play(script.body(b'{"data":[{"id":"a"},{"id":"b"}]}'))
    nobody = Provider(base_url="http://127.0.0.1:9/v1")
    async with serving(p=to(server), q=nobody) as service:
        front = service.connect("front")
        models = await front.call(ListModels())
        assert isinstance(models, Models)
        assert models.models == (ModelInfo(provider="p", id="a"), ModelInfo(provider="p", id="b"))
        assert models.failed == {"q": "no connection to the provider"}
        one = await front.call(ListModels(provider="q"))
        assert isinstance(one, Models)
        assert one.models == ()
        unknown = await front.call(ListModels(provider="r"))
    assert isinstance(unknown, Refused)
    assert unknown.code == "PROVIDER_NOT_FOUND"


async def test_the_default_provider_and_the_configured_models_come_first(
    server: ScriptedModel,
) -> None:
    server.play(script.body(b'{"data":[{"id":"a","name":"A","context_length":8},{"id":"b"}]}'))
    third = Provider(base_url="http://127.0.0.1:9/v1", model="m", tool_mode="json")
    providers = {"p": to(server), "q": to(server, model="b"), "r": third}
    async with serving(**providers) as service:
        settings = default_settings()
        agents = msgspec.structs.replace(settings.agents, provider="q")
        settings = msgspec.structs.replace(settings, agents=agents, providers=providers)
        service.actor.configure(encode_settings(settings))
        models = await service.connect("front").call(ListModels())
    assert isinstance(models, Models)
    named = [(model.provider, model.id) for model in models.models]
    assert named == [("q", "b"), ("q", "a"), ("p", "a"), ("p", "b"), ("r", "m")]
    assert models.models[1] == ModelInfo(provider="q", id="a", name="A", context_length=8)
    assert list(models.failed) == ["r"]


async def test_models_are_asked_for_again_when_the_settings_change(server: ScriptedModel) -> None:
    server.play(script.body(b'{"data":[{"id":"a"}]}'))
    async with serving(p=to(server)) as service:
        front = service.connect("front")
        assert await front.call(ListModels()) == await front.call(ListModels(provider="p"))
        assert len(server.asked) == 1
        changed = {"p": to(server, model="m")}
        settings = msgspec.structs.replace(default_settings(), providers=changed)
        service.actor.configure(encode_settings(settings))
        models = await front.call(ListModels())
        assert isinstance(models, Models)
        assert [model.id for model in models.models] == ["m", "a"]
        assert len(server.asked) == 2


async def test_a_list_of_models_that_does_not_come_is_given_up(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "LIST_SECONDS", 0.05)
    server.play(script.silent_after())
    async with serving(p=to(server)) as service:
        models = await service.connect("front").call(ListModels())
    assert isinstance(models, Models)
    assert models.failed == {"p": "no list of models within 0.05 s"}


async def test_root_is_told_when_there_is_work(server: ScriptedModel) -> None:
    async with serving(p=to(server)) as service:
        assert not service.working
        server.play(script.silent_after())
        agent = service.connect("agent:1")
        agent.link.call_nowait(ask(), lambda _: None)
        await until(lambda: service.working)
        agent.link.cast(StopModel(stream=1))
        await until(lambda: not service.working)


async def test_winding_down_hangs_up(server: ScriptedModel) -> None:
    server.play(script.silent_after())
    async with serving(p=to(server)) as service:
        service.connect("agent:1").link.call_nowait(ask(), lambda _: None)
        await until(lambda: server.asked)
    with trio.fail_after(1):
        await server.hung_up.wait()
    assert len(server.asked) == 1, "it is not tried again"


async def test_the_process_hides_its_memory_and_its_keys(
    server: ScriptedModel, hidden: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(p=to(server)) as service:
            agent = service.connect("agent:1")
            await agent.answer(ask(text="a private prompt"))
            shown = repr(service.actor) + repr(vars(service.actor))
    assert isinstance(service.actor, ProvidersActor)
    assert hidden == ["hidden"]
    for secret in ("sk-secret", "a private prompt"):
        assert secret not in shown
        assert secret not in caplog.text
