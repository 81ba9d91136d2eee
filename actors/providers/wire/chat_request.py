"""The request of Chat Completions as JSON (sans-io)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.providers.wire.json_tools import (
    EMPTY_SCHEMA,
    answer_schema,
    as_plain,
    instructions,
    json_object,
)
from roost.schemas.model import AskModel, ChatMessage, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class _Called(msgspec.Struct):
    id: str
    function: _CalledFunction
    type: str = "function"


class _ChatMessage(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[_Called] = []
    tool_call_id: str = ""


class _Function(msgspec.Struct):
    name: str
    description: str
    parameters: msgspec.Raw


class _Tool(msgspec.Struct):
    function: _Function
    type: str = "function"


class _JsonSchema(msgspec.Struct):
    name: str
    strict: bool
    schema: msgspec.Raw


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _JsonSchema


class _StreamOptions(msgspec.Struct):
    include_usage: bool


class _Request(msgspec.Struct, omit_defaults=True):
    messages: list[_ChatMessage]
    stream: bool
    stream_options: _StreamOptions
    model: str = ""
    max_tokens: int = 0
    tools: list[_Tool] = []
    response_format: _ResponseFormat | None = None


_encode = msgspec.json.Encoder().encode


def encode_request(
    ask: AskModel, *, default_model: str = "", json_tools: bool = False, max_tokens: int = 0
) -> bytes:
    """Return the body of the request; with `json_tools`, tools are asked for through the schema of the answer."""
    messages: Sequence[ChatMessage] = ask.messages
    by_schema = json_tools and bool(ask.tools)
    if json_tools:
        messages = _instructed(as_plain(messages), ask.tools)
    request = _Request(
        messages=[_message(message) for message in messages],
        stream=True,
        stream_options=_StreamOptions(include_usage=True),
        model=ask.model or default_model,
        max_tokens=max_tokens,
        tools=[] if json_tools else [_tool(tool) for tool in ask.tools],
        response_format=_response_format(ask.tools) if by_schema else None,
    )
    return _encode(request)


def _message(message: ChatMessage) -> _ChatMessage:
    # A call whose arguments were no JSON must not make the server refuse the conversation from now on.
    calls = [
        _Called(call.id, _CalledFunction(call.name, json_object(call.arguments).decode()))
        for call in message.tool_calls
    ]
    content = None if calls and not message.content else message.content
    return _ChatMessage(message.role, content, calls, message.tool_call_id)


def _tool(tool: ToolSpec) -> _Tool:
    schema = msgspec.Raw(tool.schema or EMPTY_SCHEMA)
    return _Tool(_Function(tool.name, tool.description, schema))


def _response_format(tools: Sequence[ToolSpec]) -> _ResponseFormat:
    return _ResponseFormat("json_schema", _JsonSchema("answer", True, answer_schema(tools)))


def _instructed(messages: list[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
    if not tools:
        return messages
    text = instructions(tools)
    if messages and messages[0].role == "system":
        text = f"{messages[0].content}\n\n{text}"
        messages = messages[1:]
    return [ChatMessage(role="system", content=text), *messages]
