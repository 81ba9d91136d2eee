from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.actors.providers import pool as pool_module
from roost.actors.providers.errors import ProviderError
from roost.actors.providers.http import retry_after
from roost.actors.providers.pool import Pool
from roost.config.model import Provider
from roost.schemas.model import AskModel, ChatMessage, ModelAnswer, ToolSpec
from roost.supervisor.backoff import Backoff
from tests.support import scripted_model as script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.scripted_model import ScriptedModel

KEY = "sk-very-secret"
PROMPT = "what nobody may read"
QUICK = Backoff(long_life=float("inf"), first=0.005, longest=0.01)
ASK = AskModel(
    stream=1, provider="p", model="m", messages=(ChatMessage(role="user", content=PROMPT),)
)


@asynccontextmanager
async def pool_for(server: ScriptedModel, **settings: object) -> AsyncGenerator[Pool]:
    values = {"base_url": server.base_url, "key": KEY, **settings}
    provider = msgspec.convert(values, Provider)
    with trio.fail_after(5):
        async with Pool("p", provider, {}, retry=QUICK) as pool:
            yield pool


async def answered(pool: Pool, ask: AskModel = ASK) -> tuple[ModelAnswer, list[str]]:
    passed: list[str] = []

    async def pass_on(text: str) -> None:
        passed.append(text)

    return await pool.ask(ask, pass_on), passed


async def refused(pool: Pool) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await answered(pool)
    error = caught.value
    told = f"{error!r} {error.message} {error.data} {error.refused()!r}"
    assert KEY not in told
    assert PROMPT not in told
    assert "no-body-text" not in told
    return error


async def test_text_is_passed_on_and_the_connection_is_used_again(server: ScriptedModel) -> None:
    server.play(script.says("Hel", "lo"))
    async with pool_for(server) as pool:
        for _ in range(3):
            answer, passed = await answered(pool)
            assert "".join(passed) == answer.text == "Hello"
            assert (answer.input_tokens, answer.output_tokens) == (7, 2)
    assert server.connections == 1
    assert server.asked[0].line == "POST /v1/chat/completions HTTP/1.1"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_text_is_passed_on_while_the_model_still_speaks(server: ScriptedModel) -> None:
    server.play(script.silent_after(script.delta(content="Hel")))
    heard = trio.Event()

    async def pass_on(text: str) -> None:
        assert text == "Hel"
        heard.set()

    async with pool_for(server) as pool, trio.open_nursery() as nursery:
        nursery.start_soon(pool.ask, ASK, pass_on)
        await heard.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(2):
        await server.hung_up.wait()


async def test_a_tool_call_in_pieces_is_put_together(server: ScriptedModel) -> None:
    server.play(script.calls("shell", '{"comm', 'and":"', 'ls"}'))
    async with pool_for(server) as pool:
        answer, passed = await answered(pool)
    assert passed == []
    assert answer.tool_calls[0].arguments == '{"command":"ls"}'
    assert answer.finish == "tool_calls"


async def test_in_json_mode_a_call_comes_out_of_the_text(server: ScriptedModel) -> None:
    server.play(script.says('{"tool":"now",', '"arguments":{}}'))
    tool = ToolSpec(name="now", description="", schema=b"")
    async with pool_for(server, tool_mode="json") as pool:
        answer, passed = await answered(pool, msgspec.structs.replace(ASK, tools=(tool,)))
    assert passed == []
    assert answer.tool_calls[0].name == "now"
    assert b"response_format" in server.asked[0].body


async def test_an_answer_that_is_not_streamed_is_taken(server: ScriptedModel) -> None:
    server.play(script.body(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'))
    async with pool_for(server) as pool:
        answer, passed = await answered(pool)
    assert passed == [answer.text] == ["Hi"]


@pytest.mark.parametrize("code", [401, 403])
async def test_a_refused_key_is_told_at_once(server: ScriptedModel, code: int) -> None:
    server.play(script.status(code, body={"error": {"message": f"no-body-text {KEY}"}}))
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert error.code == "PROVIDER_AUTH_ERROR"
    assert not error.retryable
    assert len(server.asked) == 1


async def test_a_rate_limit_is_waited_for_as_long_as_asked(server: ScriptedModel) -> None:
    server.play(script.status(429, {"retry-after-ms": "120"}), script.says("Hello"))
    async with pool_for(server) as pool:
        began = trio.current_time()
        answer, _ = await answered(pool)
        assert trio.current_time() - began >= 0.12
    assert answer.text == "Hello"
    assert len(server.asked) == 2


async def test_a_rate_limit_holds_the_other_requests_as_well(server: ScriptedModel) -> None:
    server.play(script.status(429, {"retry-after-ms": "150"}), script.says("Hello"))
    async with pool_for(server) as pool, trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(answered, pool)
        while not server.asked:
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(0.1):
            await server.hung_up.wait()
        nursery.start_soon(answered, pool)
        nursery.start_soon(answered, pool)
        with trio.move_on_after(0.02):
            await trio.sleep_forever()
        assert len(server.asked) == 1
    assert trio.current_time() - began >= 0.15
    assert len(server.asked) == 4


async def test_a_long_rate_limit_is_told_instead(server: ScriptedModel) -> None:
    server.play(script.status(429, {"Retry-After": "3600"}))
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert error.code == "PROVIDER_RATE_LIMITED"
    assert error.retryable
    assert error.data == {"status": 429, "retryAfterMs": 3_600_000}
    assert len(server.asked) == 1


async def test_a_server_error_is_tried_again(server: ScriptedModel) -> None:
    server.play(script.status(500), script.status(503), script.says("Hello"))
    async with pool_for(server) as pool:
        answer, _ = await answered(pool)
    assert answer.text == "Hello"
    assert len(server.asked) == 3


async def test_a_server_error_that_stays_is_told(server: ScriptedModel) -> None:
    server.play(script.status(500))
    async with pool_for(server, max_retries=2) as pool:
        error = await refused(pool)
    assert error.code == "PROVIDER_API_ERROR"
    assert error.retryable
    assert len(server.asked) == 3


async def test_a_client_error_is_told_at_once(server: ScriptedModel) -> None:
    server.play(script.status(400, body={"error": {"code": "context_length_exceeded"}}))
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert (error.code, error.retryable) == ("PROVIDER_API_ERROR", False)
    assert error.message == "the conversation is longer than the model's context"
    assert len(server.asked) == 1


async def test_a_redirect_does_not_get_the_key(server: ScriptedModel) -> None:
    server.play(script.status(307, {"Location": f"{server.address}/elsewhere"}))
    async with pool_for(server) as pool:
        assert (await refused(pool)).code == "PROVIDER_CONFIG_ERROR"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        script.raw(b"SSH-2.0-OpenSSH_9.2 no-body-text\r\n\r\n"),
        script.body(b"no-body-text", "text/plain"),
        script.body(b"<html>no-body-text</html>", "text/html"),
        script.body(b"no-body-text", "application/json"),
        script.events(["no-body-text"]),
        script.events(["[1]"]),
    ],
)
async def test_garbage_is_an_error_of_the_provider(
    server: ScriptedModel, answer: script.Answer
) -> None:
    server.play(answer)
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert (error.code, error.retryable) == ("PROVIDER_API_ERROR", False)
    assert len(server.asked) == 1


async def test_a_connection_cut_before_the_first_text_is_tried_again(server: ScriptedModel) -> None:
    server.play(script.raw(b""), script.cut_after(), script.says("Hello"))
    async with pool_for(server) as pool:
        answer, passed = await answered(pool)
    assert "".join(passed) == answer.text == "Hello"
    assert len(server.asked) == 3


async def test_a_connection_cut_after_some_text_is_told(server: ScriptedModel) -> None:
    server.play(script.cut_after("Hel"), script.says("Hello"))
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert (error.code, error.retryable) == ("PROVIDER_NETWORK_ERROR", True)
    assert len(server.asked) == 1


async def test_a_connection_cut_after_the_last_word_does_no_harm(server: ScriptedModel) -> None:
    async def play(stage: script.Stage) -> None:
        await stage.send(script.SSE_HEAD)
        await stage.event(script.delta(content="Hello"))
        await stage.event(script.finish())
        await script.raw(b"")(stage)

    server.play(play)
    async with pool_for(server) as pool:
        answer, _ = await answered(pool)
    assert answer.text == "Hello"


async def test_no_server_is_a_network_error(server: ScriptedModel) -> None:
    async with pool_for(server, base_url="http://127.0.0.1:9/v1") as pool:
        error = await refused(pool)
    assert (error.code, error.retryable) == ("PROVIDER_NETWORK_ERROR", True)


async def test_a_server_that_never_answers_is_given_up(server: ScriptedModel) -> None:
    server.play(script.silent_after())
    async with pool_for(server, event_timeout=0.05) as pool:
        error = await refused(pool)
        assert (error.code, error.retryable) == ("PROVIDER_TIMEOUT", True)
        await server.hung_up.wait()
    assert len(server.asked) == 1


async def test_a_stream_that_stops_is_given_up(server: ScriptedModel) -> None:
    server.play(script.silent_after(script.delta(content="Hel")))
    async with pool_for(server, event_timeout=0.05) as pool:
        assert (await refused(pool)).code == "PROVIDER_TIMEOUT"


async def test_bytes_without_an_event_do_not_keep_a_stream_alive(server: ScriptedModel) -> None:
    server.play(script.drips(0.005))
    async with pool_for(server, event_timeout=0.05) as pool:
        assert (await refused(pool)).code == "PROVIDER_TIMEOUT"


async def test_a_slow_stream_with_events_in_time_is_no_fault(server: ScriptedModel) -> None:
    server.play(script.says(*"Hello", interval=0.02))
    async with pool_for(server, event_timeout=0.09) as pool:
        answer, _ = await answered(pool)
    assert answer.text == "Hello"


async def test_a_whole_request_has_a_time_limit(server: ScriptedModel) -> None:
    server.play(script.says(*"x" * 100, interval=0.01))
    async with pool_for(server, request_timeout=0.1) as pool:
        error = await refused(pool)
    assert error.code == "PROVIDER_TIMEOUT"
    assert "0.1 s" in error.message


async def test_a_stream_without_an_end_after_its_finish_is_whole(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "USAGE_SECONDS", 0.05)
    monkeypatch.setattr(pool_module, "END_SECONDS", 0.02)
    items: list[script.Json | str] = [script.delta(content="Hello"), script.finish()]
    async with pool_for(server) as pool:
        for rest in ([], ["[DONE]"]):
            server.play(script.silent_after(*items, *rest))
            answer, _ = await answered(pool)
            assert answer.text == "Hello"


async def test_an_event_over_its_limit_ends_the_answer(server: ScriptedModel) -> None:
    server.play(script.events(["x" * 1_100_000]))
    async with pool_for(server) as pool:
        error = await refused(pool)
    assert (error.code, error.retryable) == ("PROVIDER_OUTPUT_LIMIT", False)


async def test_a_model_that_does_not_stop_is_stopped(server: ScriptedModel) -> None:
    server.play(script.pours("x" * 10_000))
    async with pool_for(server) as pool:
        error = await refused(pool)
        assert error.code == "PROVIDER_OUTPUT_LIMIT"
        assert error.data == {"dimension": "text", "limit": 262_144}
        await server.hung_up.wait()


async def test_a_reader_that_waits_stops_the_reading_but_not_the_clock_of_the_request(
    server: ScriptedModel,
) -> None:
    server.play(script.says(*"Hello"))
    slow = trio.Event()

    async def pass_on(_: str) -> None:
        await slow.wait()

    async with pool_for(server, event_timeout=0.03, request_timeout=0.15) as pool:
        began = trio.current_time()
        with pytest.raises(ProviderError) as caught:
            await pool.ask(ASK, pass_on)
        assert trio.current_time() - began >= 0.15
    assert "0.15 s" in caught.value.message


async def test_further_requests_wait_for_a_slot(server: ScriptedModel) -> None:
    server.play(script.silent_after(), script.says("Hello"))
    async with pool_for(server, max_parallel=1) as pool, trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def ask_first() -> None:
            with first:
                await answered(pool)

        nursery.start_soon(ask_first)
        while not server.asked:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(answered, pool)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(server.asked) == 1
        first.cancel()
    assert len(server.asked) == 2


async def test_the_key_may_come_from_the_environment(server: ScriptedModel) -> None:
    provider = Provider(base_url=server.base_url, key_env="THE_KEY")
    async with Pool("p", provider, {"THE_KEY": f" {KEY}\n"}) as pool:
        await answered(pool)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    async with Pool("p", provider, {}) as pool:
        error = await refused(pool)
    assert error.code == "PROVIDER_CONFIG_ERROR"
    assert "THE_KEY" in error.message


@pytest.mark.parametrize("key", ["sk-\nx", "schlüssel"])
async def test_a_key_that_no_header_carries_is_told(server: ScriptedModel, key: str) -> None:
    async with pool_for(server, key=key) as pool:
        assert (await refused(pool)).code == "PROVIDER_CONFIG_ERROR"
    assert server.asked == []


async def test_nothing_secret_is_logged(
    server: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    server.play(script.status(500), script.says("no-body-text"))
    with caplog.at_level(logging.INFO):
        async with pool_for(server) as pool:
            await answered(pool)
            assert KEY not in repr(pool) + repr(vars(pool))
    for secret in (KEY, PROMPT, "no-body-text", server.base_url):
        assert secret not in caplog.text


async def test_the_models_are_listed(server: ScriptedModel) -> None:
    server.play(script.body(b'{"object":"list","data":[{"id":"a"},{"id":"b"}]}'))
    async with pool_for(server) as pool:
        assert [model.id for model in await pool.list_models()] == ["a", "b"]
        server.play(script.status(401))
        with pytest.raises(ProviderError, match="refuses the key"):
            await pool.list_models()
    assert server.asked[0].line == "GET /v1/models HTTP/1.1"


def test_retry_after_is_read_in_each_of_its_forms() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({}) is None
    assert retry_after({"retry-after": "2"}) == 2.0
    assert retry_after({"retry-after": "2", "retry-after-ms": "150"}) == 0.15
    assert 25 < (retry_after({"retry-after": soon}) or 0) <= 30
    for odd in ("soon", "-1", "inf", "nan", ""):
        assert retry_after({"retry-after": odd}) is None
