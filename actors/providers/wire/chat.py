"""Chat Completions: a request as JSON, and the streamed answer read leniently (sans-io).

Unknown fields are ignored, missing indexes are tolerated, and a finish reason, `[DONE]` and the end of the stream are
three different things: an answer is whole after either of the first two.
"""

from __future__ import annotations

import json

import msgspec

from roost.actors.providers.errors import ProviderError, garbage, network, of_status, over_limit
from roost.actors.providers.wire.json_tools import JsonAnswer
from roost.schemas.canonical import MAX_SAFE
from roost.schemas.model import ModelAnswer, ToolCall

MAX_TEXT_BYTES = 262_144
MAX_ARGUMENT_BYTES = 65_536
MAX_RESPONSE_BYTES = 524_288
MAX_TOOL_CALLS = 64


class _Part(msgspec.Struct):
    text: str = ""


class _FunctionPiece(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _Delta(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: object = None


class _Fault(msgspec.Struct):
    code: int | str | None = None
    type: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: _Fault | str | None = None


class _Refusal(msgspec.Struct):
    error: _Fault | str | None = None


_chunk_decoder = msgspec.json.Decoder(_Chunk)
_refusal_decoder = msgspec.json.Decoder(_Refusal)


class _Call:
    """A tool call that comes in pieces."""

    def __init__(self, index: int | None, call_id: str) -> None:
        self.index = index
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []
        self.size = 0

    def is_meant_by(self, piece: _CallPiece) -> bool:
        """Some servers give every call the index 0, others give no index: another id is another call."""
        if piece.id and self.id and piece.id != self.id:
            return False
        if piece.index is not None and self.index is not None:
            return piece.index == self.index
        return bool(piece.id) and piece.id == self.id


class ChatReader:
    """One streamed answer: the data of events in, text to pass on out, and in the end the whole answer."""

    def __init__(self, *, json_tools: bool = False) -> None:
        self.begun = False
        self.finish = ""
        self.done = False
        self._json = JsonAnswer() if json_tools else None
        self._text: list[str] = []
        self._passed_on = 0
        self._text_bytes = 0
        self._argument_bytes = 0
        self._calls: list[_Call] = []
        self._usage = _Usage()

    @property
    def complete(self) -> bool:
        """Whether the answer is whole, even if its stream has not ended."""
        return self.done or bool(self.finish)

    def feed(self, data: str) -> str:
        """Return the text that an event adds, to be passed on.

        Raises:
            ProviderError: the event is no JSON, reports an error, or takes the answer over a bound.
        """
        if self.done or not data.strip():
            return ""
        if data.strip() == "[DONE]":
            self.done = True
            return ""
        chunk = _decode_chunk(data)
        if chunk is None:
            return ""
        self.begun = self.begun or chunk.choices is not None
        if chunk.error is not None:
            raise _fault(chunk.error)
        if chunk.usage is not None:
            self._usage = chunk.usage
        return "".join([self._take(choice) for choice in chunk.choices or () if not choice.index])

    def rest(self) -> str:
        """Return what of the whole text has not been passed on; call this once, when no more comes."""
        if self._json is None:
            return ""
        return self._json.result()[0][self._passed_on :]

    def answer(self) -> ModelAnswer:
        """Return the whole answer.

        Raises:
            ProviderError: the stream ended before the answer was whole, or there is none.
        """
        if not self.complete:
            raise network("the provider's stream ended in the middle of an answer")
        text = "".join(self._text)
        calls = tuple(_whole(call, number) for number, call in enumerate(self._calls))
        if self._json is not None:
            text, json_calls = self._json.result()
            _check_json_calls(json_calls)
            calls += json_calls
        usage = self._usage
        cache_read, cache_creation = _cache(usage)
        return ModelAnswer(
            text=text,
            tool_calls=calls,
            finish="tool_calls" if calls and self.finish in ("", "stop") else self.finish or "stop",
            input_tokens=_tokens(usage.prompt_tokens),
            output_tokens=_tokens(usage.completion_tokens),
            total_tokens=_tokens(usage.total_tokens),
            cache_read=cache_read,
            cache_creation=cache_creation,
        )

    def _take(self, choice: _Choice) -> str:
        if choice.finish_reason:
            self.finish = choice.finish_reason
        delta = choice.delta or choice.message
        if delta is None:
            return ""
        for piece in delta.tool_calls or ():
            self._take_call(piece)
        return self._take_text(delta.content)

    def _take_text(self, content: str | list[_Part] | None) -> str:
        if not content:
            return ""
        text = content if isinstance(content, str) else "".join([part.text for part in content])
        self._text_bytes += len(text.encode("utf-8", "replace"))
        # In JSON mode the text is mostly arguments, and has the bound of the whole response only.
        if self._json is None and self._text_bytes > MAX_TEXT_BYTES:
            raise over_limit("text", MAX_TEXT_BYTES)
        self._check_whole()
        if self._json is None:
            self._text.append(text)
            return text
        text = self._json.feed(text)
        self._passed_on += len(text)
        return text

    def _take_call(self, piece: _CallPiece) -> None:
        call = self._call_of(piece)
        function = piece.function
        if function is None:
            return
        call.name = call.name or function.name or ""
        arguments = _argument_text(function.arguments)
        size = len(arguments.encode("utf-8", "replace"))
        call.arguments.append(arguments)
        call.size += size
        self._argument_bytes += size
        if call.size > MAX_ARGUMENT_BYTES:
            raise over_limit("tool_arguments", MAX_ARGUMENT_BYTES)
        self._check_whole()

    def _call_of(self, piece: _CallPiece) -> _Call:
        for call in reversed(self._calls):
            if call.is_meant_by(piece):
                return call
        if piece.index is None and not piece.id and self._calls:
            return self._calls[-1]
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise over_limit("tool_calls", MAX_TOOL_CALLS)
        call = _Call(piece.index, piece.id or "")
        self._calls.append(call)
        return call

    def _check_whole(self) -> None:
        if self._text_bytes + self._argument_bytes > MAX_RESPONSE_BYTES:
            raise over_limit("total_response", MAX_RESPONSE_BYTES)


def read_reason(body: bytes) -> str:
    """Return the server's identifier of an error (`model_not_found`), or nothing."""
    try:
        error = _refusal_decoder.decode(body).error
    except msgspec.DecodeError:
        return ""
    if error is None or isinstance(error, str):
        return ""
    return error.code if isinstance(error.code, str) and error.code else error.type or ""


def _decode_chunk(data: str) -> _Chunk | None:
    try:
        return _chunk_decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        pass
    # msgspec is strict where servers are not: half of a surrogate pair, a raw control character.
    try:
        repaired = json.dumps(json.loads(data, strict=False), ensure_ascii=False)
        return _chunk_decoder.decode(repaired.encode("utf-8", "replace"))
    except msgspec.ValidationError:
        return None
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise garbage("an event is no JSON") from None


def _fault(error: _Fault | str) -> ProviderError:
    if isinstance(error, str):
        return of_status(500)
    reason = error.code if isinstance(error.code, str) else error.type or ""
    status = error.code if isinstance(error.code, int) else 0
    if isinstance(error.code, str) and error.code.isdecimal() and len(error.code) == 3:
        status = int(error.code)
    return of_status(status if 400 <= status < 600 else 500, reason)


def _tokens(number: int | None) -> int:
    """Return a number of tokens that an event can hold; -1 where there is none."""
    return -1 if number is None else min(max(number, 0), MAX_SAFE)


def _cache(usage: _Usage) -> tuple[int, int]:
    """Return how many tokens of the input the server knew already, and how many it did not; zeros if it says nothing."""
    match usage.prompt_tokens_details:
        case {"cached_tokens": int(cached)}:
            whole = max(_tokens(usage.prompt_tokens), 0)
            known = min(max(cached, 0), whole)
            return known, whole - known
        case _:
            return 0, 0


def _argument_text(raw: msgspec.Raw) -> str:
    """Return the text of `arguments`, which some servers send as an object."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str)
    return "" if text == b"null" else text.decode("utf-8", "replace")


def _whole(call: _Call, number: int) -> ToolCall:
    return ToolCall(
        id=call.id or f"call_{number}",
        name=call.name,
        arguments="".join(call.arguments) or "{}",
    )


def _check_json_calls(calls: tuple[ToolCall, ...]) -> None:
    for call in calls:
        if len(call.arguments.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
            raise over_limit("tool_arguments", MAX_ARGUMENT_BYTES)
