"""Drafts of one session on their way to the store: in order, each until it is answered.

A sent draft is frozen: it keeps its id and its bytes, and goes out again, in order, on every new link. While drafts are
unanswered further text gathers in one unsent piece. Nothing here waits; who writes much asks for `room` now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from roost.schemas.base import EventId, SessionId
from roost.schemas.event import MAX_DELTA_BYTES, MAX_EVENT_BYTES, AgentMessageDelta, AnyEvent
from roost.schemas.turn import Change, Draft
from roost.schemas.unions import event_encoder

MAX_UNANSWERED_BYTES = 1024 * 1024
MAX_UNANSWERED_DRAFTS = 256
SEQUENCE_BYTES = 40

APPEND_FAILED = "EVENT_APPEND_FAILED"

OnAnswer = Callable[[str], None]
"""Called once with an empty text when the draft is on disk, or with the code of its refusal."""


class Road(Protocol):
    """The way to the store."""

    def send_draft(self, draft: Draft) -> bool:
        """Queue a draft; return False if there is no link, or no room on it: `Outbox.resume` is called later."""
        ...

    def retry_later(self) -> None:
        """The store could not write; call `Outbox.resend` after a while."""
        ...


class EventTooLarge(Exception):
    """An event does not fit the log; nothing was queued."""


class _Entry:
    __slots__ = ("code", "draft", "on_answer", "sent", "size")

    def __init__(self, draft: Draft, on_answer: OnAnswer | None) -> None:
        self.draft = draft
        self.on_answer = on_answer
        self.code = ""
        self.size = len(draft.body)
        self.sent = False


class Outbox:
    """The unanswered drafts of one session, and the text that is not a draft yet."""

    def __init__(self, session_id: SessionId, road: Road) -> None:
        self.generation = 0
        self._session_id = session_id
        self._road = road
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._unsent = 0
        self._holding = False
        self._tie = ""
        self._pieces: list[str] = []
        self._text_bytes = 0
        self._make_delta: Callable[[str], AgentMessageDelta] | None = None
        self._waiters = trio.lowlevel.ParkingLot()

    @property
    def is_empty(self) -> bool:
        """Return whether everything is on disk."""
        return not self._entries and not self._pieces

    @property
    def is_holding(self) -> bool:
        """Return whether the store has said that it cannot write, and has not been asked again."""
        return self._holding

    @property
    def is_full(self) -> bool:
        """Return whether a runner is to be held back."""
        return (
            len(self._entries) >= MAX_UNANSWERED_DRAFTS
            or self._bytes + self._text_bytes >= MAX_UNANSWERED_BYTES
        )

    def stream_as(self, make_delta: Callable[[str], AgentMessageDelta]) -> None:
        """Make text into events this way from now on."""
        self._make_delta = make_delta

    def text(self, piece: str) -> None:
        """Write streamed text."""
        self._pieces.append(piece)
        self._text_bytes += len(piece) if piece.isascii() else len(piece.encode())
        if not self._entries or self._text_bytes >= MAX_DELTA_BYTES:
            self._freeze(rest=not self._entries)

    def push(
        self,
        event: AnyEvent | None,
        changes: tuple[Change, ...] = (),
        *,
        event_id: str = "",
        turn_id: str = "",
        on_answer: OnAnswer | None = None,
        opens: bool = False,
    ) -> None:
        """Write an event, or changes without one (then under `event_id`), after all text that came before.

        Until the draft that `opens` a turn is answered, all further ones are tied to it.

        Raises:
            EventTooLarge: the event does not fit the log.
        """
        self._freeze(rest=True)
        if event is None:
            self._append(event_id, "", turn_id, b"", True, changes, on_answer)
            return
        body = event_encoder.encode(event)
        if len(body) > MAX_EVENT_BYTES - SEQUENCE_BYTES:
            raise EventTooLarge(f"an event of {len(body)} bytes")
        kind = str(event.__struct_config__.tag)
        self._append(event.id, kind, turn_id, body, event.durable, changes, on_answer)
        if opens:
            self._tie = event.id

    def push_draft(self, draft: Draft) -> None:
        """Write a draft that was made elsewhere."""
        self._add(_Entry(draft, None))

    def acked(self, event_id: str) -> None:
        """The store has settled this draft and all before it: written, or refused as said before."""
        if not any(entry.draft.event_id == event_id for entry in self._entries):
            return
        kept: list[_Entry] = []
        while self._entries:
            entry = self._pop_first()
            if entry.code == APPEND_FAILED:
                kept.append(entry)
            else:
                self._answer(entry)
            if entry.draft.event_id == event_id:
                break
        for entry in reversed(kept):
            self._push_first(entry)
        self._continue()

    def refused(self, event_id: str, code: str) -> None:
        """The store has written nothing for this draft; its answer comes with the `acked` that covers it."""
        for entry in self._entries:
            if entry.draft.event_id == event_id:
                entry.code = code
        if code == APPEND_FAILED:
            self._hold()

    def resend(self) -> None:
        """Send everything unanswered again, in order: there is a new link, or the store's disk may be well again."""
        self._holding = False
        for entry in self._entries:
            entry.sent = False
            entry.code = ""
        self._unsent = len(self._entries)
        self.resume()

    def resume(self) -> None:
        """Send what could not be sent before."""
        if not self._unsent or self._holding:
            return
        for entry in self._entries:
            if not entry.sent and not self._send(entry):
                return

    def drop_text(self) -> None:
        """Forget text that is not a draft yet: its turn was never to begin."""
        self._pieces.clear()
        self._text_bytes = 0

    def drop(self) -> None:
        """Forget everything without an answer: this session belongs to somebody else now."""
        self.drop_text()
        self._entries.clear()
        self._bytes = self._unsent = 0
        self._waiters.unpark_all()

    async def room(self) -> None:
        """Wait while too much is unanswered."""
        while self.is_full:
            await self._waiters.park()

    async def settled(self) -> None:
        """Wait until everything written so far is on disk or refused."""
        while not self.is_empty:
            await self._waiters.park()

    def _append(
        self,
        event_id: str,
        kind: str,
        turn_id: str,
        body: bytes,
        durable: bool,
        changes: tuple[Change, ...],
        on_answer: OnAnswer | None,
    ) -> None:
        draft = Draft(
            session_id=self._session_id,
            generation=self.generation,
            event_id=EventId(event_id),
            type=kind,
            turn_id=turn_id,
            body=body,
            durable=durable,
            changes=changes,
            tied_to=self._tie,
        )
        self._add(_Entry(draft, on_answer))

    def _add(self, entry: _Entry) -> None:
        earlier_unsent = self._unsent > 0
        self._entries.append(entry)
        self._bytes += entry.size
        self._unsent += 1
        if not earlier_unsent and not self._holding:
            self._send(entry)

    def _send(self, entry: _Entry) -> bool:
        if not self._road.send_draft(entry.draft):
            return False
        entry.sent = True
        self._unsent -= 1
        return True

    def _freeze(self, *, rest: bool) -> None:
        """Make gathered text into drafts; `rest` says whether the last, shorter piece becomes one as well."""
        if not self._pieces or self._make_delta is None:
            return
        pieces = cut_text("".join(self._pieces), MAX_DELTA_BYTES)
        self._pieces.clear()
        self._text_bytes = 0
        last = pieces.pop() if not rest else ""
        for piece in pieces:
            event = self._make_delta(piece)
            turn_id = event.turn_id or ""
            body = event_encoder.encode(event)
            kind = str(event.__struct_config__.tag)
            self._append(event.id, kind, turn_id, body, event.durable, (), None)
        if last:
            self._pieces.append(last)
            self._text_bytes = len(last.encode())

    def _pop_first(self) -> _Entry:
        entry = self._entries.popleft()
        self._bytes -= entry.size
        self._unsent -= not entry.sent
        return entry

    def _push_first(self, entry: _Entry) -> None:
        self._entries.appendleft(entry)
        self._bytes += entry.size
        self._unsent += not entry.sent

    def _answer(self, entry: _Entry) -> None:
        if self._tie == entry.draft.event_id:
            self._tie = ""
        if entry.on_answer is not None:
            entry.on_answer(entry.code)

    def _continue(self) -> None:
        if not self._entries:
            self._freeze(rest=True)
        if self._waiters and not self.is_full:
            self._waiters.unpark_all()

    def _hold(self) -> None:
        if not self._holding:
            self._holding = True
            self._road.retry_later()


def cut_text(text: str, limit: int) -> list[str]:
    """Return the text in pieces of at most `limit` bytes of UTF-8, cut between characters; at least one piece."""
    if text.isascii():
        return [text[at : at + limit] for at in range(0, len(text), limit)] or [text]
    data = text.encode()
    pieces: list[str] = []
    at = 0
    while at < len(data):
        end = min(at + limit, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(data[at:end].decode())
        at = end
    return pieces
