from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.providers.wire.json_tools import (
    JsonAnswer,
    StringReader,
    answer_schema,
    as_plain,
    instructions,
)
from roost.schemas.model import ChatMessage, ToolCall, ToolSpec

SHELL = ToolSpec(
    name="shell",
    description="Run a command.",
    schema=b'{"type":"object","properties":{"command":{"type":"string"}}}',
)
NOW = ToolSpec(name="now", description="Tell the time.", schema=b"")


def fed(text: str, size: int = 1) -> tuple[JsonAnswer, list[str]]:
    answer = JsonAnswer()
    pieces = [answer.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return answer, pieces


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_the_final_text_is_passed_on_while_it_comes(size: int) -> None:
    said = 'Grüße "x" \\ / \n\t \U0001f600 \u20ac\x00end'
    answer, pieces = fed(' {\n "final" : ' + json.dumps(said) + "}", size)
    assert "".join(pieces) == said
    assert answer.result() == (said, ())


def test_text_comes_before_its_string_ends() -> None:
    _, pieces = fed('{"final":"ab')
    assert pieces[-2:] == ["a", "b"]


@settings(max_examples=100, deadline=None)
@given(st.text(), st.booleans(), st.integers(1, 9))
def test_a_string_is_unescaped_like_json_does(text: str, ascii_only: bool, size: int) -> None:
    reader = StringReader()
    written = json.dumps(text, ensure_ascii=ascii_only)[1:]
    pieces = [reader.feed(written[at : at + size]) for at in range(0, len(written), size)]
    assert reader.ended
    assert "".join(pieces) == text


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"\ud83dx", "\ufffdx"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\ude00\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_half_a_surrogate_pair_is_replaced(written: str, read: str, size: int) -> None:
    reader = StringReader()
    text = "".join(reader.feed(written[at : at + size]) for at in range(0, len(written), size))
    assert text == read
    text.encode()


def test_a_call_is_read_whole() -> None:
    answer, pieces = fed('{"tool": "shell", "arguments": {"command": "ls -la"}}')
    assert "".join(pieces) == ""
    text, calls = answer.result()
    assert text == ""
    assert calls == (ToolCall(id="call_0", name="shell", arguments='{"command": "ls -la"}'),)


def test_a_call_may_name_its_arguments_first_or_not_at_all() -> None:
    assert fed('{"arguments":{"a":1},"tool":"t"}')[0].result()[1][0].arguments == '{"a":1}'
    assert fed('{"tool":"t"}')[0].result()[1][0].arguments == "{}"


def test_a_call_that_was_cut_off_has_arguments_that_are_no_json() -> None:
    _, calls = fed('{"tool":"shell","arguments":{"command":"l')[0].result()
    assert calls[0].name == "shell"
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(calls[0].arguments)


def test_a_text_that_was_cut_off_is_kept() -> None:
    answer, pieces = fed('{"final":"half \\u00')
    assert answer.result() == ("half ", ())
    assert "".join(pieces) == "half "


def test_plain_text_is_passed_on_as_it_is() -> None:
    answer, pieces = fed("  Sure: {} it is.")
    assert answer.result() == ("  Sure: {} it is.", ())
    assert "".join(pieces) == "  Sure: {} it is."


def test_json_of_another_form_is_the_text() -> None:
    assert fed('{"answer": 42}')[0].result() == ('{"answer": 42}', ())


def test_the_schema_names_each_tool_and_the_text() -> None:
    schema = json.loads(bytes(answer_schema([SHELL, NOW])))
    shell, now, final = schema["anyOf"]
    assert shell["properties"]["tool"] == {"const": "shell"}
    assert shell["properties"]["arguments"]["properties"] == {"command": {"type": "string"}}
    assert shell["required"] == ["tool", "arguments"]
    assert shell["additionalProperties"] is False
    assert now["properties"]["arguments"] == {"type": "object", "properties": {}}
    assert final["properties"] == {"final": {"type": "string"}}


def test_the_instructions_name_each_tool() -> None:
    text = instructions([SHELL, NOW])
    assert "- shell: Run a command." in text
    assert "- now: Tell the time." in text


def test_a_conversation_is_told_without_tool_roles() -> None:
    call = ToolCall(id="c1", name="shell", arguments='{"command":"ls"}')
    bad = ToolCall(id="c2", name="shell", arguments="{oops")
    plain = as_plain(
        [
            ChatMessage(role="system", content="Be kind."),
            ChatMessage(role="user", content="List."),
            ChatMessage(role="assistant", content="", tool_calls=(call, bad)),
            ChatMessage(role="tool", content="a.txt", tool_call_id="c1"),
            ChatMessage(role="assistant", content="There is a.txt."),
        ]
    )
    assert [message.role for message in plain] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    calls = plain[2].content.splitlines()
    assert json.loads(calls[0]) == {"tool": "shell", "arguments": {"command": "ls"}}
    assert json.loads(calls[1]) == {"tool": "shell", "arguments": {}}
    assert plain[3].content == "Result of shell:\na.txt"
    assert json.loads(plain[4].content) == {"final": "There is a.txt."}
