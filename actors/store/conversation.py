"""What clients ask about a conversation: that it begins anew, what was said in it, and what it has used.

A conversation begins behind the event `sessions.cleared_after`; the log itself loses nothing by it. Its figures are kept
in the session's row, so that no read of them grows with the log and retention changes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roost.actors.errors import NotFound, WrongState
from roost.actors.store.texts import OUTPUTS, SAID, read_window
from roost.schemas.session import SessionCleared, SessionSnapshot, Texts
from roost.schemas.turn import Bell, Cleared

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.paging import Damaged
    from roost.schemas.session import ClearSession, GetSnapshot, ReadTexts

MAX_COUNT: Final = 2**53 - 1
HIDDEN: Final = frozenset({"importing", "purging"})

_SNAPSHOT: Final = """select completed, input_tokens, output_tokens, total_tokens, cost_usd, requests,
    cache_read, cache_creation from sessions where key = ?"""


class Conversations:
    """Requests about conversations; `clear` in the transaction that is open, the reads between two of them."""

    def __init__(self, lifecycle: Lifecycle, epoch: str) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._epoch = epoch
        self.met_damage: Callable[[BaseException], None] = _nobody

    def clear(self, request: ClearSession) -> SessionCleared:
        """Let the conversation of a session that is at rest begin behind its last event."""
        session = self._lifecycle.need_session(request.session_id)
        row = self._lifecycle.session_row(session)
        if row.cleared_at == request.at:
            return _cleared(session, row.cleared_after, row.cleared_at)
        if session.turn_id or row.queued:
            text = f"AgenC daemon session has a turn in flight: {request.session_id}"
            raise WrongState("TURN_IN_PROGRESS", text)
        after = session.last_sequence
        catalogue = self._lifecycle.catalogue
        catalogue.set_session(session.session_id, cleared_after=after, cleared_at=request.at)
        catalogue.revoke(session.agent_id, session.key)
        cleared = _cleared(session, after, request.at)
        self._journal.effects.announce(cleared)
        bell = Bell(session_id=session.session_id, items=(Cleared(after=after),))
        # An agent that is not there learns of it when it opens the session.
        self._journal.effects.ring(session.agent_id, bell)
        return cleared

    def snapshot(self, request: GetSnapshot) -> SessionSnapshot:
        """Return the figures of a session, also of one that is closed."""
        session = self._need(request.session_id)
        row = self._journal.db.execute(_SNAPSHOT, (session.key,)).fetchone()
        completed, tokens_in, tokens_out, total, _, requests, read, creation = map(_whole, row)
        return SessionSnapshot(
            session_id=session.session_id,
            completed=completed,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            total_tokens=total,
            cost_usd=float(row[4]),
            requests=requests,
            cache_read=read,
            cache_creation=creation,
        )

    def texts(self, request: ReadTexts) -> Texts:
        """Return one page of what was said, newest first; it costs the same however long the log is."""
        session = self._need(request.session_id)
        floor = request.floor
        if floor < 0:
            floor = self._lifecycle.session_row(session).cleared_after
        lowest = max(floor, session.first_sequence - 1)
        upto = min(request.upto or session.last_sequence, session.last_sequence)
        kinds = OUTPUTS if request.outputs else SAID
        window = read_window(self._journal.db, session, lowest, upto, kinds, self._met)
        return Texts(
            session_id=session.session_id,
            epoch=self._epoch,
            floor=floor,
            last_sequence=session.last_sequence,
            events=tuple(window.events),
            upto=window.next if window.next > lowest else 0,
            damaged=tuple(window.damaged),
            removed=session.first_sequence - 1 > floor,
        )

    def _met(self, error: Damaged) -> None:
        self.met_damage(error)

    def _need(self, session_id: str) -> Session:
        session = self._journal.session(session_id)
        if session is None or session.state in HIDDEN:
            raise NotFound("SESSION_NOT_FOUND", f"AgenC daemon session not found: {session_id}")
        return session


def _cleared(session: Session, after: int, at: int) -> SessionCleared:
    return SessionCleared(
        session_id=session.session_id, agent_id=session.agent_id, cleared_after=after, cleared_at=at
    )


def _whole(number: float) -> int:
    """Return a counter as JSON can hold it: SQLite goes on with a fraction where a sum becomes too large."""
    return int(min(number, MAX_COUNT))


def _nobody(error: BaseException) -> None:
    """Tell nobody of damage."""
