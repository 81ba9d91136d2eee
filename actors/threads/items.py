"""One item and one turn of a thread while they grow; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType, structs

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
    from roost.schemas.thread_events import SeenTokens, SeenUserMessage

Span = tuple[int, int]
"""The first and the last sequence of text deltas that have not been read."""
OPEN = ("queued", "inProgress")


def item_id(event_id: str) -> str:
    """Return the id of the item that an event opens."""
    return f"item_{event_id}"


def event_of(item: str) -> str:
    """Return the id of the event that opened an item, or nothing for what is no item's id."""
    return item.removeprefix("item_") if item.startswith("item_") else ""


def request_id(event_id: str) -> str:
    """Return the id of the request that an event makes of a person."""
    return f"apr_{event_id}"


class Item(msgspec.Struct, eq=False, gc=False):
    """An item. What of its text is not read yet is a span in `pieces`, in its place."""

    type: ItemType
    status: ItemStatus
    event_id: str
    run_event_id: str
    first: int
    turn_id: str
    created_at: int
    content: dict[str, object]
    pieces: list[str | Span]
    completed_at: int = 0

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

    def fork(self) -> Item:
        """Return another one that goes on from the same state."""
        return structs.replace(self, content=dict(self.content), pieces=list(self.pieces))

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


class Turn(msgspec.Struct):
    """A turn that has begun; `at_rest`: its last event was the end of a message, which without a mark ends the turn (T 6.5)."""

    id: str
    input: tuple[str, ...]
    started_at: int
    model: str
    completed_at: int = 0
    status: TurnStatus = "running"
    tokens: tuple[int, int] | None = None
    error: TurnError | UnsetType = UNSET
    cancelling: bool = False
    at_rest: bool = False

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
        return structs.replace(self)

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
    said = event.metadata.display
    if said is UNSET:
        return event.content
    return said if isinstance(said, str) else None


def input_of(event: SeenUserMessage, text: str | None) -> tuple[str, ...]:
    """Return the texts that a message was put together from, as its client gave them; `text` is what is seen of it."""
    given = event.metadata.input
    if text is None:
        return ()
    if event.metadata.display is not UNSET or not isinstance(given, list):
        return (text,)
    try:
        return tuple(one.text for one in msgspec.convert(given, list[InputText]))
    except msgspec.ValidationError:
        pass
    try:
        return tuple(msgspec.convert(given, list[str]))
    except msgspec.ValidationError:
        return (text,)
