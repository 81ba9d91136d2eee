"""The ledger of tool calls: a call that has been started is never started again, whatever its process believes (L 9.4).

A call is claimed in the transaction of its start and settled in that of its end. Entries of completed calls make room
for new ones, and go after a day; one whose effect is unknown stays as long as its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Literal

    from roost.actors.store.journal import Journal

ALREADY_STARTED: Final = "CALL_ALREADY_STARTED"
CONFLICT: Final = "IDEMPOTENCY_CONFLICT"
FULL: Final = "IDEMPOTENCY_CAPACITY_EXCEEDED"

KEPT_MS: Final = 86_400_000
SWEEP_MS: Final = 60_000
# Room is made for so large a part at once, so that it is not made for each call.
PART: Final = 16

_CLAIM = "insert into tool_ledger(session, call_id, fingerprint, at) values(?, ?, ?, ?)"
_SETTLE = """update tool_ledger set state = ?, at = ?, sequence = ?
    where session = ? and call_id = ?"""
_RELEASE = "delete from tool_ledger where session = ? and call_id = ?"
_ABANDON = """update tool_ledger set state = 'unknown', at = ?
    where session = ? and state in ('running', 'ended')"""
_END = """update tool_ledger set state = 'ended', at = ?
    where session = ? and call_id = ? and state = 'running'"""
_STOP = """update tool_ledger set cancel_reason = ? where session = ? and call_id = ?
    and state = 'running' and cancel_reason is null"""
_TO_STOP = """select cancel_reason from tool_ledger where session = ? and call_id = ?
    and state = 'running' and cancel_reason is not null"""
_EXPIRE = "delete from tool_ledger where state = 'completed' and at < ?"
_EVICT = """delete from tool_ledger where (session, call_id) in (
    select session, call_id from tool_ledger where state = 'completed' order by at limit ?)"""
_COMPLETED = "select exists(select 1 from tool_ledger where state = 'completed')"


class Ledger:
    """The calls that have been started, in the transaction that is open. Sessions are known by their key."""

    def __init__(self, journal: Journal, max_entries: int) -> None:
        self._journal = journal
        self._db = journal.db
        self.max_entries = max_entries
        self._count = 0
        self._counted_after = -1
        self._swept = 0

    def refusal(self, session: int, call_id: str, fingerprint: bytes) -> str:
        """Return why a call cannot be claimed, or ""; nothing is written."""
        sql = "select fingerprint from tool_ledger where session = ? and call_id = ?"
        row = self._db.execute(sql, (session, call_id)).fetchone()
        if row is not None:
            return ALREADY_STARTED if row[0] == fingerprint else CONFLICT
        if self._is_full() and not self._db.execute(_COMPLETED).fetchone()[0]:
            return FULL
        return ""

    def claim(self, session: int, call_id: str, fingerprint: bytes) -> None:
        """Note that a call starts; `refusal` has been asked."""
        now = self._journal.now()
        if now - self._swept > SWEEP_MS:
            self._swept = now
            self._count -= self._db.execute(_EXPIRE, (now - KEPT_MS,)).rowcount
        if self._is_full():
            part = max(self.max_entries // PART, 1)
            self._count -= self._db.execute(_EVICT, (part,)).rowcount
        self._db.execute(_CLAIM, (session, call_id, fingerprint, now))
        self._count += 1

    def end(self, session: int, call_id: str) -> None:
        """Note that the handler of a call has ended; how it is settled comes with its event."""
        self._db.execute(_END, (self._journal.now(), session, call_id))

    def settle(
        self,
        session: int,
        call_id: str,
        state: Literal["completed", "unknown", "released"],
        sequence: int,
    ) -> None:
        """Note how a call has ended, with the event of this sequence; one that is not known is ignored."""
        if state == "released":
            self._count -= self._db.execute(_RELEASE, (session, call_id)).rowcount
        else:
            self._db.execute(_SETTLE, (state, self._journal.now(), sequence, session, call_id))

    def abandon(self, session: int) -> None:
        """Note that no process runs the calls of a session any more: their effects are unknown."""
        self._db.execute(_ABANDON, (self._journal.now(), session))

    def ask_to_stop(self, session: int, call_id: str, reason: str) -> bool:
        """Note that a call is to stop; return False if it does not run, or is to stop already."""
        cursor = self._db.execute(_STOP, (reason, session, call_id))
        return cursor.rowcount > 0

    def to_stop(self, session: int, call_id: str) -> str | None:
        """Return why a call that runs is to stop, or None."""
        row = self._db.execute(_TO_STOP, (session, call_id)).fetchone()
        return None if row is None else str(row[0])

    def ended_at(self, session: int, call_id: str) -> int:
        """Return the sequence of the event that ended a call, or 0."""
        sql = "select sequence from tool_ledger where session = ? and call_id = ?"
        row = self._db.execute(sql, (session, call_id)).fetchone()
        return 0 if row is None else int(row[0])

    def _is_full(self) -> bool:
        """Return whether there is no room; others may have removed entries, so then they are counted."""
        if self._counted_after == self._journal.undone and self._count < self.max_entries:
            return False
        self._counted_after = self._journal.undone
        self._count = int(self._db.execute("select count(*) from tool_ledger").fetchone()[0])
        return self._count >= self.max_entries
