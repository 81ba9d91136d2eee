"""What the front asks of the store about the log of a session as a thread: only what items are made of.

Items are known by the event that opened them, so a page of items begins with a look at the index of event ids, and goes
on in the log from the first event of that turn. Of each run of text deltas only the first is read: the text of a message
that has ended is in the event that ended it.
"""

from __future__ import annotations

from roost.schemas.approval import PendingRow
from roost.schemas.base import Message, SessionId
from roost.schemas.session import SessionRow


class ReadItems(Message, frozen=True, kw_only=True, tag="thread.read_items"):
    """Call front → store: what items are made of, oldest first. Answered with `ItemEvents`.

    Begins behind the sequence `after`. With `after_event` it begins with the turn of that event instead, or behind
    `after` if the session has no such event; with `open_turn` with the open turn, or at the end if none is open. Nothing
    that was cleared is read. `upto` 0 is the last event that there is. The page ends where so many items (0: any
    number) have been opened behind `after_event` and `count_after`. `running` is the turn that was open at `upto`, if another is now. What
    changes no item of a turn that has ended (that a call was started, for one) is left out. Refused `SESSION_NOT_FOUND`.
    """

    session_id: SessionId
    after: int = 0
    after_event: str = ""
    open_turn: bool = False
    upto: int = 0
    max_items: int = 0
    count_after: int = 0
    running: str = ""


class ItemEvents(Message, frozen=True, kw_only=True, tag="thread.item_events"):
    """The answer to `ReadItems`: events with their sequences; `next` is where to go on, 0 if `upto` is reached.

    `found` is the sequence of `after_event`, or 0. `upto` is the last event that counts. `turn_id` is the open turn.
    """

    row: SessionRow
    events: tuple[tuple[int, bytes], ...]
    upto: int
    next: int = 0
    found: int = 0
    turn_id: str = ""


class FindPending(Message, frozen=True, kw_only=True, tag="thread.find_pending"):
    """Call front → store: what waits or waited for a person, by the id of its call or of the event that asked.

    Answered with `FoundPending`; refused `SESSION_NOT_FOUND`.
    """

    session_id: SessionId
    request_id: str = ""
    event_id: str = ""


class FoundPending(Message, frozen=True, kw_only=True, tag="thread.found_pending"):
    """The answer to `FindPending`."""

    row: PendingRow | None = None


class FindTurn(Message, frozen=True, kw_only=True, tag="thread.find_turn"):
    """Call front → store: where a turn is, by its id. Answered with `FoundTurn`; refused `SESSION_NOT_FOUND`."""

    session_id: SessionId
    turn_id: str


class FoundTurn(Message, frozen=True, kw_only=True, tag="thread.found_turn"):
    """The answer to `FindTurn`.

    `first_sequence` is the turn's first event, 0 if it has none, or none that is kept and counts. Of a turn that is yet to
    begin there are `input`, the texts that it begins with, and its `model` if it has one of its own.
    """

    first_sequence: int = 0
    input: tuple[str, ...] = ()
    model: str = ""
