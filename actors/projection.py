"""Stored events folded into what a model is told, and into what people read; pure.

The fold of a conversation is incremental: the state after N events, given event N + 1, is the state after N + 1; that of
a transcript goes the other way, from the newest event back. Text deltas change nothing here, so whoever reads pages may
leave them out. Events are taken in the order of their sequences; `timestamp` is never looked at.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roost.schemas import event
from roost.schemas.model import ChatMessage, ToolCall

if TYPE_CHECKING:
    from roost.schemas.event import AnyEvent

MAX_TURNS = 32
MAX_CHARACTERS = 100_000
TRANSCRIPT_BYTES = 4 * 1024 * 1024
OUTPUT_BYTES = 32 * 1024

_canonical = msgspec.json.Encoder(order="sorted").encode
_json = msgspec.json.Encoder().encode


class ContextError(Exception):
    """The log of a session does not give a conversation that a model could be asked to go on with."""


class Conversation:
    """The messages of a session for its model, in whole turns (L 8), and what they have cost."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost_usd = 0.0
        self.fault = ""
        self._turns: list[list[ChatMessage]] = []
        self._turn_id = ""
        self._current: int | None = None
        self._open: set[str] = set()
        self._gaps = False

    def fold(self, found: AnyEvent) -> None:
        """Take the next event of the session."""
        match found:
            case event.UserMessage(content=text) | event.TranscriptFinal(text=text):
                self._hear(text, found.turn_id or "")
            case event.AgentReasoningStarted():
                self._current = None
            case event.AgentMessageCompleted():
                self._say(found)
            case event.ToolCallRequested():
                self._ask(found)
            case event.ToolCallCompleted(result=result):
                self._answer(found.tool_call_id, _canonical(result).decode())
            case event.ToolCallFailed(error=error):
                self._answer(found.tool_call_id, f"Error: {error}")
            case _:
                pass

    def gap(self) -> None:
        """Go on behind events that cannot be read: what is open ends here, and what they opened may end later."""
        self._gaps = True
        for call_id in sorted(self._open):
            self._answer(call_id, "Error: the result of this call is lost")

    def messages(
        self, max_turns: int = MAX_TURNS, max_characters: int = MAX_CHARACTERS
    ) -> list[ChatMessage]:
        """Return the newest whole turns within the bounds, oldest first.

        Raises:
            ContextError: a call has no end, the log is in disorder, or the newest turn alone is over the bound.
        """
        if self.fault:
            raise ContextError(self.fault)
        if self._open:
            raise ContextError("a tool call has no end")
        chosen: list[list[ChatMessage]] = []
        size = 0
        for turn in reversed(self._turns):
            size += sum(map(_characters, turn))
            if size > max_characters or len(chosen) == max_turns:
                break
            chosen.append(turn)
        if self._turns and not chosen:
            raise ContextError("the turn is too long for the model's context")
        return [message for turn in reversed(chosen) for message in turn]

    def _hear(self, text: str, turn_id: str) -> None:
        if self._open:
            self._break("a message came while a tool call was open")
        # A message that steers a turn belongs to it.
        if not self._turns or not turn_id or turn_id != self._turn_id:
            self._turns.append([])
            self._turn_id = turn_id
        self._append(ChatMessage(role="user", content=text))
        self._current = None

    def _say(self, found: event.AgentMessageCompleted) -> None:
        if found.tokens:
            self.input_tokens += found.tokens.input
            self.output_tokens += found.tokens.output
        if found.cost_usd:
            self.cost_usd += found.cost_usd
        if found.content:
            self._current = self._append(ChatMessage(role="assistant", content=found.content))

    def _ask(self, found: event.ToolCallRequested) -> None:
        if found.tool_call_id in self._open:
            self._break("two open tool calls have one id")
        self._open.add(found.tool_call_id)
        call = ToolCall(
            id=found.tool_call_id,
            name=found.tool_name,
            arguments=_canonical(found.tool_args).decode(),
        )
        if self._current is None:
            self._current = self._append(ChatMessage(role="assistant", content=""))
        turn = self._turns[-1]
        asking = turn[self._current]
        turn[self._current] = msgspec.structs.replace(asking, tool_calls=(*asking.tool_calls, call))

    def _answer(self, call_id: str, text: str) -> None:
        if call_id not in self._open:
            if self._gaps:
                return
            self._break("a tool call ended that was not requested")
            return
        self._open.discard(call_id)
        self._append(ChatMessage(role="tool", content=text, tool_call_id=call_id))

    def _append(self, message: ChatMessage) -> int:
        if not self._turns:
            self._turns.append([])
        self._turns[-1].append(message)
        return len(self._turns[-1]) - 1

    def _break(self, fault: str) -> None:
        self.fault = self.fault or fault


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One text of a transcript. `message_id` is the user's message, where the log has it."""

    role: str
    text: str
    sequence: int
    turn_id: str = ""
    message_id: str = ""
    event_id: str = ""
    timestamp: float = 0.0


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool call gave; `output` is cut to its first 32 KiB, `size` is that of the whole in bytes."""

    call_id: str
    tool_name: str
    status: str
    output: str
    size: int
    sequence: int


class Transcript:
    """The newest texts of a session and what its tools gave, for people: taken backwards from the newest event.

    What it takes as JSON is bounded, for the texts and for the outputs each; `truncated` if there was more.
    """

    def __init__(self, max_bytes: int = TRANSCRIPT_BYTES) -> None:
        self.truncated = False
        self._max_bytes = max_bytes
        self._entries: deque[Entry] = deque()
        self._outputs: deque[ToolOutput] = deque()
        self._entry_bytes = 0
        self._output_bytes = 0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What users and the agent said, oldest first."""
        return tuple(self._entries)

    @property
    def outputs(self) -> tuple[ToolOutput, ...]:
        """What the tool calls gave, oldest first."""
        return tuple(self._outputs)

    def fold_back(self, found: AnyEvent, sequence: int) -> bool:
        """Take an event that is before all taken so far; return whether there is room for texts before it."""
        return self._keep(_piece(found, sequence))

    def gap_back(self, first: int, last: int) -> bool:
        """Note that events before all taken so far cannot be read; return as `fold_back` does."""
        text = f"event {first}" if first == last else f"events {first} to {last}"
        return self.note_back(f"{text} damaged, left out", last)

    def note_back(self, text: str, sequence: int) -> bool:
        """Say something about what is before all taken so far; return as `fold_back` does."""
        return self._keep(Entry(role="notice", text=text, sequence=sequence))

    def _keep(self, piece: Entry | ToolOutput | None) -> bool:
        if isinstance(piece, Entry):
            size = self._entry_bytes + len(_json(piece.text))
            if size > self._max_bytes and self._entries:
                self.truncated = True
                return False
            self._entries.appendleft(piece)
            self._entry_bytes = size
        elif piece is not None:
            size = self._output_bytes + len(_json(piece.output))
            if size > self._max_bytes and self._outputs:
                self.truncated = True
                return True
            self._outputs.appendleft(piece)
            self._output_bytes = size
        return True


def _piece(found: AnyEvent, sequence: int) -> Entry | ToolOutput | None:
    """Return what an event adds to a transcript, or None."""
    match found:
        case event.UserMessage(content=text) | event.TranscriptFinal(text=text):
            return _entry("user", text, found, sequence)
        case event.AgentMessageCompleted(content=text):
            return _entry("assistant", text, found, sequence)
        case event.ToolCallCompleted(result=result):
            text = result if isinstance(result, str) else _canonical(result).decode()
            return _output(found, "completed", text, sequence)
        case event.ToolCallFailed(error=error):
            return _output(found, "failed", f"Error: {error}", sequence)
        case _:
            return None


def _entry(role: str, text: str, found: AnyEvent, sequence: int) -> Entry | None:
    if not text:
        return None
    message_id = found.metadata.get("message_id")
    return Entry(
        role=role,
        text=text,
        sequence=sequence,
        turn_id=found.turn_id or "",
        message_id=message_id if isinstance(message_id, str) else "",
        event_id=found.id,
        timestamp=found.timestamp,
    )


def _output(found: event.ToolEvent, status: str, text: str, sequence: int) -> ToolOutput:
    whole = text.encode()
    return ToolOutput(
        call_id=found.tool_call_id,
        tool_name=found.tool_name,
        status=status,
        output=whole[:OUTPUT_BYTES].decode(errors="ignore"),
        size=len(whole),
        sequence=sequence,
    )


def _characters(message: ChatMessage) -> int:
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
