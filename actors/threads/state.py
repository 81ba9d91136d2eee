"""The open turn and the open items of a thread: how they begin and how they end, whatever the event was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.threads.items import Item, Turn
from roost.actors.threads.teller import Teller, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas import thread_notifications as told
    from roost.schemas.thread_events import Seen
    from roost.schemas.thread_results import (
        ActiveFlag,
        ItemStatus,
        ItemType,
        TurnError,
        TurnStatus,
    )

CALL, ASKED, MESSAGE, WORKFLOW, RETRIEVAL = range(5)
QUESTION = "ask_user"
"""The tool whose calls wait for an answer, and run nothing."""
Key = tuple[str, int, str]
"""What an open item is found by: its turn, what it stands for, and the name of that."""


class State:
    """The open turn and the open items of a thread; `on_item` gets each item when it is opened."""

    def __init__(
        self, thread_id: str, *, on_item: Callable[[Item], None] | None = None, tells: bool = True
    ) -> None:
        self.thread_id = thread_id
        self.turn: Turn | None = None
        self.last = 0
        self._open: dict[Key, Item] = {}
        self._streaming: Item | None = None
        self._on_item = on_item or _nobody
        self._tell = Teller(thread_id) if tells else None
        self._latest: Seen | None = None

    def tell_from_now(self) -> None:
        """Tell what follows."""
        self._tell = Teller(self.thread_id)

    def reach(self, sequence: int) -> None:
        """There is nothing more up to this sequence but text deltas."""
        self._note_missing(sequence)
        self.last = max(self.last, sequence)

    def settle(self) -> None:
        """No turn is open in the store: what the log leaves open has ended all the same (T 6.5)."""
        end = self._latest
        self._streaming = None
        if end is not None:
            if self.turn is not None:
                self._abandon(end)
            self._close_all(end, "interrupted", None)
            if self._tell is not None:
                self._tell.take()

    @property
    def open_items(self) -> list[Item]:
        """The items that may still change, in the order in which they were opened."""
        return list(self._open.values())

    @property
    def flags(self) -> tuple[ActiveFlag, ...]:
        """What the running turn waits for, or does."""
        if self.turn is None:
            return ()
        waits: tuple[ActiveFlag, ...] = ("waitingOnApproval",) if self._waits else ()
        if any(map(_is_question, self._open.values())):
            waits = (*waits, "waitingOnUserInput")
        return (*waits, "cancelling") if self.turn.cancelling else waits

    def asked(self) -> list[told.ApprovalRequestParams]:
        """Return what waits for a decision, as it was told."""
        return [request_of(self.thread_id, item) for item in self._requests()]

    def call_of(self, request: str) -> str:
        """Return the id of the call that waits for the decision on a request; nothing if none does."""
        for item in self._requests():
            if item.content["requestId"] == request:
                return str(item.content["toolCallId"])
        return ""

    @property
    def _waits(self) -> bool:
        return bool(self._requests())

    def _requests(self) -> list[Item]:
        return [item for item in self._open.values() if _is_request(item)]

    def _fork_into(self, other: State) -> None:
        other.turn = self.turn.fork() if self.turn is not None else None
        other.last, other._latest = self.last, self._latest
        other._open = {key: item.fork() for key, item in self._open.items()}
        if self._streaming is not None:
            other._streaming = other._open.get((self._streaming.turn_id, MESSAGE, ""))

    def _note_missing(self, upto: int) -> None:
        if upto > self.last and self._streaming is not None:
            self._streaming.pieces.append((self.last + 1, upto))

    def _begin(self, event: Seen, said: tuple[str, ...], model: str) -> None:
        if self.turn is not None:
            self._abandon(event)
        self.turn = Turn(event.turn_id, said, event.at_ms, model)
        self._status()
        if self._tell is not None:
            self._tell.began(self.turn)

    def _know_turn(self, event: Seen) -> None:
        """A turn that failed before it could begin is told of all the same."""
        if event.turn_id and (self.turn is None or self.turn.id != event.turn_id):
            self._begin(event, (), "")

    def _status(self) -> None:
        if self._tell is not None:
            self._tell.status(self.turn, self.flags)

    def _abandon(self, event: Seen) -> None:
        """End a turn that the log leaves without an end."""
        turn = self.turn
        assert turn is not None
        busy = any(item.turn_id == turn.id for item in self._open.values())
        done = turn.at_rest and not busy
        self._close_all(event, "interrupted", turn.id)
        self._finish(turn, event, "completed" if done else "interrupted", None)

    def _end_turn(
        self, event: Seen, status: TurnStatus, left: ItemStatus, error: TurnError | None = None
    ) -> None:
        turn = self.turn
        if turn is None or event.turn_id != turn.id:
            return
        if self._open:
            self._close_all(event, left, turn.id)
        self._finish(turn, event, status, error)

    def _finish(self, turn: Turn, event: Seen, status: TurnStatus, error: TurnError | None) -> None:
        turn.status = status
        turn.completed_at = event.at_ms
        if error is not None:
            turn.error = error
        self.turn = None
        self._status()
        if self._tell is not None:
            self._tell.ended(turn)

    def _start(
        self, kind: ItemType, status: ItemStatus, event: Seen, content: dict[str, object], key: Key
    ) -> Item:
        """Open an item that something later ends."""
        if key in self._open:
            self._end_item(key, "interrupted", event)
        made, turn_id, at = event.id, event.turn_id, event.at_ms
        item = Item(kind, status, made, made, self.last, turn_id, at, content, [])
        self._open[key] = item
        self._on_item(item)
        if self._tell is not None:
            self._tell.started(item)
        return item

    def _one_shot(self, kind: ItemType, event: Seen, content: dict[str, object]) -> None:
        """Make an item that ends as it begins."""
        made, turn_id, at = event.id, event.turn_id, event.at_ms
        item = Item(kind, "completed", made, made, self.last, turn_id, at, content, [], at)
        self._on_item(item)
        if self._tell is not None:
            self._tell.started(item)
            self._tell.completed(item)

    def _end_item(self, key: Key, status: ItemStatus, event: Seen) -> None:
        item = self._open.pop(key)
        item.status = status
        item.run_event_id = event.id
        # A merged piece of text may be stamped later than the end of its message.
        item.completed_at = max(event.at_ms, item.created_at)
        if self._tell is not None:
            self._tell.completed(item)

    def _close_all(self, event: Seen, status: ItemStatus, turn_id: str | None) -> None:
        """End the open items of a turn, or (None) of all; nobody decides any more on what waited for that."""
        for key, item in list(self._open.items()):
            if turn_id is None or item.turn_id == turn_id:
                if _is_request(item):
                    item.content["decision"] = "deny"
                    if self._tell is not None:
                        self._tell.resolved(item, "deny", "interrupted")
                self._end_item(key, status, event)


def _is_request(item: Item) -> bool:
    return item.type == "approvalRequest" and item.status == "inProgress"


def _is_question(item: Item) -> bool:
    return item.type == "toolCall" and item.content["toolName"] == QUESTION


def _nobody(_item: Item) -> None:
    """Nobody gathers items."""
