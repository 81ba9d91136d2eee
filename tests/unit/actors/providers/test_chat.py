from __future__ import annotations

import json

import pytest

from roost.actors.providers.errors import ProviderError
from roost.actors.providers.wire import chat
from roost.actors.providers.wire.chat import ChatReader, read_reason
from roost.actors.providers.wire.chat_request import encode_request
from roost.actors.providers.wire.sse import SseReader
from roost.schemas.model import AskModel, ChatMessage, ToolCall, ToolSpec
from tests.support.scripted_model import Json, call_piece, delta, event, finish, usage

SCHEMA = b'{"type":"object","properties":{"path":{"type":"string"}}}'
TOOL = ToolSpec(name="read_file", description="Read a file.", schema=SCHEMA)
CALL = ToolCall(id="c1", name="read_file", arguments='{"path":"a"}')
TALK = (
    ChatMessage(role="system", content="Be kind."),
    ChatMessage(role="user", content="Read a."),
    ChatMessage(role="assistant", content="", tool_calls=(CALL,)),
    ChatMessage(role="tool", content="A", tool_call_id="c1"),
)


def ask(*tools: ToolSpec, model: str = "m") -> AskModel:
    return AskModel(stream=1, provider="p", model=model, messages=TALK, tools=tools)


def reader_of(*items: Json | str, json_tools: bool = False) -> tuple[ChatReader, str]:
    reader = ChatReader(json_tools=json_tools)
    text = ""
    for item in items:
        text += reader.feed(item if isinstance(item, str) else json.dumps(item))
    return reader, text


def code_of(*items: Json | str) -> str:
    with pytest.raises(ProviderError) as refused:
        reader_of(*items)[0].answer()
    return refused.value.code


def test_a_request_carries_the_conversation_and_the_tools() -> None:
    request = json.loads(encode_request(ask(TOOL), max_tokens=9))
    assert request["model"] == "m"
    assert request["stream"] is True
    assert request["stream_options"] == {"include_usage": True}
    assert request["max_tokens"] == 9
    assert request["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "read_file",
                "description": "Read a file.",
                "parameters": json.loads(SCHEMA),
            },
        }
    ]
    function = {"name": "read_file", "arguments": '{"path":"a"}'}
    assert request["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Read a."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "A", "tool_call_id": "c1"},
    ]


def test_a_request_without_a_model_takes_the_provider_s() -> None:
    assert json.loads(encode_request(ask(model=""), default_model="d"))["model"] == "d"
    assert "model" not in json.loads(encode_request(ask(model="")))
    assert "max_tokens" not in json.loads(encode_request(ask()))
    assert "tools" not in json.loads(encode_request(ask()))


def test_a_call_without_json_does_not_spoil_the_rest_of_the_conversation() -> None:
    bad = ToolCall(id="c1", name="read_file", arguments="{oops")
    message = ChatMessage(role="assistant", content="", tool_calls=(bad,))
    asked = AskModel(stream=1, provider="p", model="m", messages=(message,))
    request = json.loads(encode_request(asked))
    assert request["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_in_json_mode_the_tools_are_in_the_schema_of_the_answer() -> None:
    request = json.loads(encode_request(ask(TOOL), json_tools=True))
    assert "tools" not in request
    assert request["response_format"]["type"] == "json_schema"
    variants = request["response_format"]["json_schema"]["schema"]["anyOf"]
    assert variants[0]["properties"]["tool"] == {"const": "read_file"}
    assert {message["role"] for message in request["messages"]} == {"system", "user", "assistant"}
    assert request["messages"][0]["content"].startswith("Be kind.\n\nAnswer with one JSON object")


def test_in_json_mode_without_tools_the_answer_is_free() -> None:
    request = json.loads(encode_request(ask(), json_tools=True))
    assert "response_format" not in request
    assert request["messages"][0]["content"] == "Be kind."


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_is_the_same_however_its_bytes_are_cut(size: int) -> None:
    chunks: list[Json | str] = [
        delta(role="assistant", content=None),
        delta(content="Gr"),
        delta(content="üße"),
        call_piece(0, "", call_id="c1", name="read_file"),
        call_piece(0, '{"pa'),
        call_piece(0, 'th":"ä"}'),
        finish("tool_calls"),
        usage(7, 3),
        "[DONE]",
    ]
    wire = b"".join(event(chunk) for chunk in chunks)
    events, reader, text = SseReader(), ChatReader(), ""
    for at in range(0, len(wire), size):
        for data in events.feed(wire[at : at + size]):
            text += reader.feed(data)
    answer = reader.answer()
    assert reader.done
    assert text == answer.text == "Grüße"
    assert answer.tool_calls == (ToolCall(id="c1", name="read_file", arguments='{"path":"ä"}'),)
    assert answer.finish == "tool_calls"
    assert (answer.input_tokens, answer.output_tokens) == (7, 3)


@pytest.mark.parametrize("last", [finish(), "[DONE]"])
def test_an_answer_is_whole_after_its_finish_reason_or_done(last: Json | str) -> None:
    answer = reader_of(delta(content="a"), last)[0].answer()
    assert answer.text == "a"
    assert answer.finish == "stop"
    assert answer.output_tokens == -1


def test_an_answer_is_not_whole_when_only_its_stream_ended() -> None:
    assert code_of(delta(content="a")) == "PROVIDER_NETWORK_ERROR"


def test_what_is_unknown_is_ignored() -> None:
    reader, text = reader_of(
        {"type": "ping"},
        {"choices": [{"delta": {"reasoning_content": "hm", "content": "a", "x": [1]}, "y": {}}]},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        {"choices": "what"},
        {"choices": None, "usage": None},
        "[]",
        "",
        {"choices": [{"index": None, "delta": {"content": [{"type": "text", "text": "b"}]}}]},
        finish(),
    )
    assert text == reader.answer().text == "ab"


def test_an_answer_that_is_not_streamed_is_read_as_well() -> None:
    message = {"role": "assistant", "content": "a", "tool_calls": None}
    whole: Json = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert reader_of(whole)[0].answer().text == "a"


def test_text_that_strict_json_refuses_is_read() -> None:
    bare = '{"choices":[{"delta":{"content":"%s"},"finish_reason":"stop"}]}'
    for written, read in (("\\ud83d!", "?!"), ("a\nb", "a\nb")):
        reader, text = reader_of(bare % written)
        assert text == reader.answer().text == read


def pieces(*items: Json) -> tuple[ToolCall, ...]:
    chunks = [delta(tool_calls=[item]) for item in items]
    return reader_of(*chunks, finish())[0].answer().tool_calls


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    assert pieces(
        {"id": "x", "function": {"name": "a", "arguments": '{"n":'}},
        {"function": {"arguments": "1}"}},
        {"id": "y", "function": {"name": "b", "arguments": "{}"}},
    ) == (
        ToolCall(id="x", name="a", arguments='{"n":1}'),
        ToolCall(id="y", name="b", arguments="{}"),
    )


def test_calls_that_all_have_the_index_0_are_told_apart_by_their_ids() -> None:
    assert [
        call.name
        for call in pieces(
            {"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"}},
            {"index": 0, "id": "y", "function": {"name": "b", "arguments": "{}"}},
        )
    ] == ["a", "b"]


def test_pieces_of_two_calls_may_alternate() -> None:
    calls = pieces(
        {"index": 0, "id": "x", "function": {"name": "a", "arguments": "[1"}},
        {"index": 1, "id": "y", "function": {"name": "b", "arguments": "[2"}},
        {"index": 0, "id": "", "function": {"arguments": ",1]"}},
        {"index": 1, "function": {"arguments": ",2]"}},
    )
    assert [call.arguments for call in calls] == ["[1,1]", "[2,2]"]


def test_arguments_may_be_an_object_and_an_id_may_be_missing() -> None:
    calls = pieces({"function": {"name": "a", "arguments": {"n": 1}}})
    assert calls == (ToolCall(id="call_0", name="a", arguments='{"n": 1}'),)


def test_a_call_without_arguments_has_none() -> None:
    assert pieces({"index": 0, "id": "x", "function": {"name": "a"}})[0].arguments == "{}"


def test_a_finish_reason_of_stop_with_a_call_means_the_call() -> None:
    reader, _ = reader_of(call_piece(0, "{}", call_id="x", name="a"), finish("stop"))
    assert reader.answer().finish == "tool_calls"


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": 500, "message": "secret"}, "PROVIDER_API_ERROR", True),
        ({"code": "503"}, "PROVIDER_API_ERROR", True),
        ({"code": 429}, "PROVIDER_RATE_LIMITED", True),
        ({"code": 401}, "PROVIDER_AUTH_ERROR", False),
        ({"code": 400, "type": "exceed_context_size_error"}, "PROVIDER_API_ERROR", False),
        ("secret", "PROVIDER_API_ERROR", True),
        ({"code": None}, "PROVIDER_API_ERROR", True),
    ],
)
def test_an_error_in_the_stream_is_told_without_its_text(
    error: object, code: str, retryable: bool
) -> None:
    with pytest.raises(ProviderError) as refused:
        reader_of({"error": error})
    assert refused.value.code == code
    assert refused.value.retryable is retryable
    assert b"secret" not in refused.value.refused().data
    assert "secret" not in refused.value.message


def test_garbage_is_an_error() -> None:
    assert code_of("<html>") == "PROVIDER_API_ERROR"
    assert code_of('{"a":' * 100_000) == "PROVIDER_API_ERROR"


def test_each_bound_of_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_TEXT_BYTES", 20)
    monkeypatch.setattr(chat, "MAX_ARGUMENT_BYTES", 20)
    monkeypatch.setattr(chat, "MAX_RESPONSE_BYTES", 30)
    monkeypatch.setattr(chat, "MAX_TOOL_CALLS", 2)
    call = call_piece(0, "x" * 15, call_id="x", name="a")
    many = [call_piece(at, "", call_id=str(at), name="a") for at in range(3)]
    cases: list[tuple[str, list[Json]]] = [
        ("text", [delta(content="ä" * 6)] * 2),
        ("tool_arguments", [call, call]),
        ("total_response", [delta(content="x" * 20), call]),
        ("tool_calls", many),
    ]
    for dimension, items in cases:
        with pytest.raises(ProviderError) as refused:
            reader_of(*items)
        assert refused.value.code == "PROVIDER_OUTPUT_LIMIT"
        assert refused.value.data["dimension"] == dimension


def test_in_json_mode_the_text_is_what_the_object_says() -> None:
    reader, text = reader_of(
        delta(content='{"fin'),
        delta(content='al":"He'),
        delta(content='y"}'),
        finish(),
        json_tools=True,
    )
    assert text == reader.answer().text == "Hey"
    assert reader.rest() == ""


def test_in_json_mode_a_call_is_a_call() -> None:
    reader, text = reader_of(
        delta(content='{"tool":"read_file",'),
        delta(content='"arguments":{}}'),
        finish(),
        json_tools=True,
    )
    assert text == ""
    assert reader.rest() == ""
    answer = reader.answer()
    assert answer.finish == "tool_calls"
    assert answer.tool_calls == (ToolCall(id="call_0", name="read_file", arguments="{}"),)


def test_in_json_mode_json_of_another_form_is_passed_on_in_the_end() -> None:
    reader, text = reader_of(delta(content='{"a":1}'), finish(), json_tools=True)
    assert text == ""
    assert reader.rest() == reader.answer().text == '{"a":1}'


def test_the_reason_of_an_error_is_its_identifier() -> None:
    assert read_reason(b'{"error":{"code":"model_not_found","message":"x"}}') == "model_not_found"
    assert read_reason(b'{"error":{"code":400,"type":"t"}}') == "t"
    for body in (b"no", b'{"error":"text"}', b"{}", b"[]"):
        assert read_reason(body) == ""


@pytest.mark.parametrize(
    ("counted", "kept"), [(7, 7), (-3, 0), (2**53, 2**53 - 1), (10**30, 2**53 - 1)]
)
def test_tokens_are_what_an_event_can_hold(counted: int, kept: int) -> None:
    reader, _ = reader_of(delta(content="a"), finish("stop"), usage(counted, counted))
    answer = reader.answer()
    assert (answer.input_tokens, answer.output_tokens) == (kept, kept)


@pytest.mark.parametrize(
    ("details", "cache"),
    [
        ({"cached_tokens": 80}, (80, 20)),
        ({"cached_tokens": 0}, (0, 100)),
        ({"cached_tokens": 10**30}, (100, 0)),
        ({"cached_tokens": -1}, (0, 100)),
        ({"cached_tokens": None}, (0, 0)),
        ({}, (0, 0)),
        ([1], (0, 0)),
        (None, (0, 0)),
    ],
)
def test_what_the_server_had_in_its_cache_is_read_where_it_says_so(
    details: object, cache: tuple[int, int]
) -> None:
    counts = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    used: Json = {"choices": [], "usage": {**counts, "total_tokens": 111}}
    reader, _ = reader_of(delta(content="a"), finish("stop"), used)
    answer = reader.answer()
    assert (answer.cache_read, answer.cache_creation, answer.total_tokens) == (*cache, 111)
