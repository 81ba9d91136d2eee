"""What items are made of, for the thread door: all events but text deltas, and of each run of those the first.

Between two neighbours among the other events lie text deltas alone, so a run is found by its place and costs one look,
however long it is. What cannot be read is left out. A page goes through a bounded part of the log.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from roost.actors.errors import NotFound
from roost.actors.store.conversation import HIDDEN
from roost.actors.store.paging import MAX_TRIES, Damaged, is_of_the_row
from roost.actors.store.sealing import is_sealed
from roost.schemas.thread_log import (
    FindPending,
    FindTurn,
    FoundPending,
    FoundTurn,
    ItemEvents,
    ReadItems,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle

# How many events of the log one page goes through, and how much of what it finds it takes.
WINDOW: Final = 8_192
PAGE_EVENTS: Final = 2_048
PAGE_BYTES: Final = 524_288

# What changes no item that has ended is stepped over, but for the turn that is open.
_FOUND: Final = """select sequence, type, case when type in ('agent.reasoning.started', 'tool.call.started',
        'user.audio.chunk', 'transcript.partial') and turn_id <> ? then null else body end, crc from events where session = ? and sequence > ?
    and sequence <= ? and type <> 'agent.message.delta' order by sequence"""
_SOME: Final = "select sequence, body, crc from events where session = ? and sequence in ({})"
_NEXT: Final = """select sequence, body, crc from events where session = ? and sequence > ?
    and sequence <= ? order by sequence limit ?"""
# Each makes an item, as does a run of deltas.
OPENING: Final = frozenset(
    {
        "user.message",
        "transcript.final",
        "tool.call.requested",
        "tool.approval.requested",
        "tool.approval.approved",
        "tool.approval.rejected",
        "memory.retrieval.started",
        "workflow.started",
    }
)
AT_ONCE: Final = 128

Events = list[tuple[int, bytes]]


class Found(NamedTuple):
    """A page, and the last sequence that it has gone through."""

    events: Events
    reached: int


class ItemReads:
    """Reads of committed state; call them between transactions."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self.met_damage: Callable[[BaseException], None] = _nobody

    def events(self, request: ReadItems) -> ItemEvents:
        """Return a page of what items are made of."""
        session = self._need(request.session_id)
        row = self._lifecycle.session_row(session)
        floor = max(row.cleared_after, session.first_sequence - 1)
        last = session.last_sequence
        upto = min(request.upto or last, last)
        after, found = self._begin(session, request, floor)
        counted = structs.replace(request, count_after=max(found, request.count_after))
        page = self._read(session, max(after, floor), upto, counted)
        return ItemEvents(
            row=row,
            events=tuple(page.events),
            upto=upto,
            next=page.reached if page.reached < upto else 0,
            found=found,
            turn_id=session.turn_id,
        )

    def pending(self, request: FindPending) -> FoundPending:
        """Return a pending request by the call's id, or by that of the event that asked, settled or not."""
        session = self._need(request.session_id)
        turns = self._lifecycle.turns
        if request.request_id:
            return FoundPending(row=turns.pending(session.key, request.request_id))
        return FoundPending(row=turns.asked_by(session.key, request.event_id))

    def turn(self, request: FindTurn) -> FoundTurn:
        """Return where a turn begins in the log, or what it is to begin with."""
        session = self._need(request.session_id)
        turns = self._lifecycle.turns
        for ref in turns.refs(session.key, (request.turn_id,)):
            floor = max(
                self._lifecycle.session_row(session).cleared_after, session.first_sequence - 1
            )
            return FoundTurn(first_sequence=ref.first_sequence if ref.first_sequence > floor else 0)
        promised = turns.promised(session.key, request.turn_id)
        if promised is None or promised.state != "queued":
            return FoundTurn()
        message = promised.queued()
        return FoundTurn(input=message.input or (message.text,), model=message.model)

    def _begin(self, session: Session, request: ReadItems, floor: int) -> tuple[int, int]:
        """Return the sequence behind which the page begins, and where the event is that was named."""
        if request.open_turn:
            turn = self._lifecycle.turns.open_turn(session.key)
            return (session.last_sequence if turn is None else turn.first_sequence - 1), 0
        if request.after_event:
            found = self._lifecycle.catalogue.event_at(session.key, request.after_event)
            if found is not None and found[0] > floor:
                return found[2] - 1, found[0]
        return request.after, 0

    def _read(self, session: Session, after: int, upto: int, request: ReadItems) -> Found:
        upto = min(upto, after + WINDOW)
        if after >= upto:
            return Found([], upto)
        events: Events = []
        runs: dict[int, int] = {}
        at, size, items = after, 0, 0
        key, counted, most = session.key, request.count_after, request.max_items or WINDOW
        try:
            open_turn = request.running or session.turn_id or "-"
            rows = self._journal.db.execute(_FOUND, (open_turn, key, after, upto))
            for sequence, kind, body, crc in rows:
                if sequence > at + 1:
                    runs[at + 1] = sequence - 1
                    items += at >= counted
                at = sequence
                if body is None:
                    continue
                if not is_sealed(key, sequence, body, crc):
                    self.met_damage(Damaged(session.session_id, sequence))
                    continue
                events.append((sequence, body))
                size += len(body)
                if kind in OPENING and sequence > counted:
                    items += 1
                if size > PAGE_BYTES or len(events) >= PAGE_EVENTS or items > most:
                    rows.close()
                    upto = at
                    break
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not is_of_the_row(error):
                raise
            self.met_damage(Damaged(session.session_id, at + 1, by_sqlite=True))
            # What is behind it is looked for one by one, so that a page always gets somewhere.
            upto = at = at + 1
        if at < upto:
            runs[at + 1] = upto
        self._add_runs(session, runs, events)
        return Found(events, upto)

    def _add_runs(self, session: Session, runs: dict[int, int], events: Events) -> None:
        """Add the deltas that begin runs, in their places, as far as they can be read."""
        if not runs:
            return
        firsts, left = list(runs), dict(runs)
        sql = _SOME.format(",".join("?" * AT_ONCE))
        for start in range(0, len(firsts), AT_ONCE):
            part = firsts[start : start + AT_ONCE]
            # Filled up, so that the statement stays prepared.
            part += part[-1:] * (AT_ONCE - len(part))
            for sequence, body, crc in self._journal.db.execute(sql, (session.key, *part)):
                if is_sealed(session.key, sequence, body, crc):
                    events.append((sequence, body))
                    del left[sequence]
        for first, last in left.items():
            self._add_next(session, first, last, events)
        events.sort()

    def _add_next(self, session: Session, first: int, last: int, events: Events) -> None:
        """Add the first delta of a run that can be read, if its very first cannot."""
        self.met_damage(Damaged(session.session_id, first))
        rows = self._journal.db.execute(_NEXT, (session.key, first, last, MAX_TRIES))
        for sequence, body, crc in rows:
            if is_sealed(session.key, sequence, body, crc):
                events.append((sequence, body))
                rows.close()
                return

    def _need(self, session_id: str) -> Session:
        session = self._journal.session(session_id)
        if session is None or session.state in HIDDEN:
            raise NotFound("SESSION_NOT_FOUND", f"AgenC daemon session not found: {session_id}")
        return session


def _nobody(error: BaseException) -> None:
    """Tell nobody of damage."""
