"""Tools for servers that cannot call them: the answer is held to a JSON schema that names tools and text (sans-io).

The model answers `{"tool": NAME, "arguments": {…}}` or `{"final": TEXT}`; the text is passed on while it comes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from roost.schemas.model import ChatMessage, ToolCall, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

EMPTY_SCHEMA = b'{"type":"object","properties":{}}'

_FINAL = re.compile(r'\s*\{\s*"final"\s*:\s*"')
_TOOL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,?\s*(?:"arguments"\s*:\s*)?')
_FINAL_WITHIN = 256

# One step inside a JSON string: plain text, a surrogate pair, another \u escape, a short escape, the end.
_STEP = re.compile(
    r'([^"\\]+)|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})'
    r'|\\u([0-9a-fA-F]{4})|\\(.)|(")',
    re.DOTALL,
)
_UNFINISHED = re.compile(
    r"\\(u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(\\(u([dD]([c-fC-F][0-9a-fA-F]?)?)?)?)?"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Const(msgspec.Struct):
    const: str


class _Text(msgspec.Struct):
    type: str = "string"


class _CallProperties(msgspec.Struct):
    tool: _Const
    arguments: msgspec.Raw


class _FinalProperties(msgspec.Struct):
    final: _Text


class _Variant(msgspec.Struct):
    properties: _CallProperties | _FinalProperties
    required: list[str]
    type: str = "object"
    additionalProperties: bool = False


class _AnyOf(msgspec.Struct):
    anyOf: list[_Variant]


class _Call(msgspec.Struct):
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


_encode = msgspec.json.Encoder().encode
_call_decoder = msgspec.json.Decoder(_Call)


def answer_schema(tools: Iterable[ToolSpec]) -> msgspec.Raw:
    """Return the JSON Schema of an answer: a call of one of the tools, or a final text."""
    variants = [
        _Variant(
            _CallProperties(_Const(tool.name), msgspec.Raw(tool.schema or EMPTY_SCHEMA)),
            ["tool", "arguments"],
        )
        for tool in tools
    ]
    variants.append(_Variant(_FinalProperties(_Text()), ["final"]))
    return msgspec.Raw(_encode(_AnyOf(variants)))


def instructions(tools: Iterable[ToolSpec]) -> str:
    """Return what the system message says about the tools; a schema alone is not shown to the model."""
    lines = [
        'Answer with one JSON object: {"tool": NAME, "arguments": {...}} to use a tool, or'
        + ' {"final": "TEXT"} to say something.',
        "Tools:",
    ]
    for tool in tools:
        schema = (tool.schema or EMPTY_SCHEMA).decode("utf-8", "replace")
        lines.append(f"- {tool.name}: {tool.description} Arguments: {schema}")
    return "\n".join(lines)


def as_plain(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return the conversation without tool roles: calls and answers as the model would have written them."""
    plain: list[ChatMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            name = names.get(message.tool_call_id, "the tool")
            text = f"Result of {name}:\n{message.content}"
            plain.append(ChatMessage(role="user", content=text))
        elif message.role == "assistant":
            names.update((call.id, call.name) for call in message.tool_calls)
            plain.append(ChatMessage(role="assistant", content=_written(message)))
        else:
            plain.append(message)
    return plain


def json_object(text: str) -> bytes:
    """Return `text` if it is a JSON object, else an empty object: servers refuse a conversation with anything else."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return b"{}"
    return text.encode()


def _written(message: ChatMessage) -> str:
    lines: list[str] = []
    if message.content or not message.tool_calls:
        lines.append(_encode({"final": message.content}).decode())
    for call in message.tool_calls:
        written = _Call(call.name, msgspec.Raw(json_object(call.arguments)))
        lines.append(_encode(written).decode())
    return "\n".join(lines)


class StringReader:
    """The inside of a JSON string in pieces, unescaped; a lone surrogate becomes U+FFFD."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = ""

    def feed(self, piece: str) -> str:
        """Return the text that is complete now; an escape cut in two waits for its end."""
        text = self._rest + piece
        out: list[str] = []
        at = 0
        while at < len(text) and not self.ended:
            if text[at] == "\\" and _UNFINISHED.fullmatch(text, at):
                break
            step = _STEP.match(text, at)
            # Every other text matches: what is no escape in JSON is taken as the character itself.
            assert step is not None
            out.append(self._unescaped(step))
            at = step.end()
        self._rest = "" if self.ended else text[at:]
        return "".join(out)

    def _unescaped(self, step: re.Match[str]) -> str:
        plain, high, low, code, short, quote = step.groups()
        if plain:
            return plain
        if high:
            return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
        if code:
            value = int(code, 16)
            return "\ufffd" if 0xD800 <= value < 0xE000 else chr(value)
        if quote:
            self.ended = True
            return ""
        return _SHORT.get(short, short)


class JsonAnswer:
    """One answer held to `answer_schema`, in pieces. An answer without that form is taken as plain text."""

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._head = ""
        self._state = "open"
        self._string = StringReader()
        self._text: list[str] = []

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on now."""
        self._raw.append(piece)
        if self._state == "open":
            self._head += piece
            piece = self._decide()
        if self._state == "final":
            piece = self._string.feed(piece)
        elif self._state != "plain":
            return ""
        self._text.append(piece)
        return piece

    def result(self) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the whole text, or the call; the arguments of a call that was cut off are no JSON."""
        raw = "".join(self._raw)
        if self._state in ("final", "plain"):
            return "".join(self._text), ()
        try:
            call = _call_decoder.decode(raw)
        except msgspec.DecodeError:
            cut = _TOOL.match(raw)
            if cut is None:
                return raw, ()
            return "", (_tool_call(cut[1], raw[cut.end() :]),)
        return "", (_tool_call(call.tool, bytes(call.arguments).decode()),)

    def _decide(self) -> str:
        head = self._head
        found = _FINAL.match(head)
        if found:
            self._state = "final"
            return head[found.end() :]
        start = head.lstrip()
        if start and not start.startswith("{"):
            self._state = "plain"
            return head
        if len(head) > _FINAL_WITHIN:
            self._state = "whole"
        return ""


def _tool_call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=arguments)
