"""One item and one turn of a thread while they grow; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from roost.schemas.thread_results import (
    AppItem,
    AppTurn,
    InputText,
    ItemStatus,
    ItemType,
    TokenUsage,
    TurnError,
    TurnStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.schemas.thread_events import Seen, SeenTokens, SeenUserMessage

Span = tuple[int, int]
"""The first and the last sequence of text deltas that have not been read."""
OPEN = ("queued", "inProgress")


_NO_PIECES: list[str | Span] = []


def item_id(event_id: str) -> str:
    """Return the id of the item that an event opens."""
    return f"item_{event_id}"


def event_of(item: str) -> str:
    """Return the id of the event that opened an item, or nothing for what is no item's id."""
    return item.removeprefix("item_") if item.startswith("item_") else ""


def request_id(event_id: str) -> str:
    """Return the id of the request that an event makes of a person."""
    return f"apr_{event_id}"


class Item:
    """An item. What of its text is not read yet is a span in `pieces`, in its place."""

    __slots__ = (
        "completed_at",
        "content",
        "created_at",
        "event_id",
        "first",
        "pieces",
        "run_event_id",
        "status",
        "turn_id",
        "type",
    )

    def __init__(
        self,
        kind: ItemType,
        status: ItemStatus,
        event: Seen,
        sequence: int,
        content: dict[str, object],
    ) -> None:
        self.type: ItemType = kind
        self.status: ItemStatus = status
        self.event_id = self.run_event_id = event.id
        self.first = sequence
        self.turn_id = event.turn_id
        self.created_at = event.at_ms
        self.completed_at = 0
        self.content = content
        self.pieces: list[str | Span] = [] if kind == "agentMessage" else _NO_PIECES

    @property
    def id(self) -> str:
        """The item's id."""
        return item_id(self.event_id)

    @property
    def is_open(self) -> bool:
        """Whether the item may still change."""
        return self.status in OPEN

    @property
    def text(self) -> str:
        """The text so far of an agent's message, without what has not been read."""
        said = self.content.get("text")
        if isinstance(said, str):
            return said
        return "".join([piece for piece in self.pieces if isinstance(piece, str)])

    @property
    def unread(self) -> list[Span]:
        """The deltas that are still to be read, if the text is to be whole."""
        return [piece for piece in self.pieces if isinstance(piece, tuple)]

    def fill(self, span: Span, text: str) -> None:
        """Put the text of deltas in their place."""
        self.pieces[self.pieces.index(span)] = text

    def touch(self, event: Seen) -> None:
        """Note that an event has been folded into the item."""
        self.run_event_id = event.id

    def close(self, status: ItemStatus, event: Seen) -> None:
        """End the item."""
        self.status = status
        self.run_event_id = event.id
        # A merged piece of text may be stamped later than the end of its message.
        self.completed_at = max(event.at_ms, self.created_at)

    def fork(self) -> Item:
        """Return another one that goes on from the same state."""
        other = object.__new__(Item)
        for name in Item.__slots__:
            setattr(other, name, getattr(self, name))
        other.content = dict(self.content)
        other.pieces = list(self.pieces)
        return other

    def shown(self) -> AppItem:
        """Return the item as clients see it."""
        content: dict[str, object] = self.content
        text: str | UnsetType = UNSET
        if self.type == "agentMessage":
            said = self.text
            content, text = {"text": said}, said
        return AppItem(
            id=item_id(self.event_id),
            run_event_id=self.run_event_id,
            type=self.type,
            status=self.status,
            created_at_ms=self.created_at,
            completed_at_ms=self.completed_at or UNSET,
            content=content,
            turn_id=self.turn_id or UNSET,
            text=text,
        )


class Turn:
    """A turn that has begun."""

    __slots__ = (
        "at_rest",
        "cancelling",
        "completed_at",
        "error",
        "id",
        "input",
        "model",
        "started_at",
        "status",
        "tokens",
    )

    def __init__(self, turn_id: str, said: tuple[str, ...], started_at: int, model: str) -> None:
        self.id = turn_id
        self.input = said
        self.started_at = started_at
        self.completed_at = 0
        self.model = model
        self.status: TurnStatus = "running"
        self.tokens: tuple[int, int] | None = None
        self.error: TurnError | UnsetType = UNSET
        self.cancelling = False
        self.at_rest = False
        """Whether its last event was the end of a message: without a mark that counts as the end of the turn (T 6.5)."""

    def use(self, tokens: SeenTokens) -> None:
        """Add what a step has used."""
        before = self.tokens or (0, 0)
        self.tokens = before[0] + tokens.input, before[1] + tokens.output

    def usage(self) -> TokenUsage | None:
        """Return what the turn has used, if that is known."""
        if self.tokens is None:
            return None
        used, made = self.tokens
        return TokenUsage(input_tokens=used, output_tokens=made, total_tokens=used + made)

    def fork(self) -> Turn:
        """Return another one that goes on from the same state."""
        other = object.__new__(Turn)
        for name in Turn.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def shown(self, thread_id: str) -> AppTurn:
        """Return the turn as clients see it; what it has used is told at its end."""
        return AppTurn(
            id=self.id,
            thread_id=thread_id,
            run_id=self.id,
            status=self.status,
            input=tuple([InputText(text=text) for text in self.input]),
            started_at_ms=self.started_at or UNSET,
            completed_at_ms=self.completed_at or UNSET,
            token_usage=(self.usage() if self.status != "running" else None) or UNSET,
            model=self.model or UNSET,
            error=self.error,
        )


def shown_text(event: SeenUserMessage) -> str | None:
    """Return what clients see of a user's message, or None if it is kept from them."""
    metadata = event.metadata
    if "displayUserMessage" not in metadata:
        return event.content
    said = metadata["displayUserMessage"]
    return said if isinstance(said, str) else None


def input_of(metadata: Mapping[str, object], text: str | None) -> tuple[str, ...]:
    """Return the texts that a message was put together from, as its client gave them."""
    given = metadata.get("input")
    if text is None:
        return ()
    if "displayUserMessage" in metadata or not isinstance(given, list):
        return (text,)
    try:
        return tuple(one.text for one in msgspec.convert(given, list[InputText]))
    except msgspec.ValidationError:
        pass
    try:
        return tuple(msgspec.convert(given, list[str]))
    except msgspec.ValidationError:
        return (text,)


def word(metadata: Mapping[str, object], name: str) -> str:
    """Return a text of the metadata, or nothing."""
    found = metadata.get(name)
    return found if isinstance(found, str) else ""
