"""Proves the whole log in small slices while it is used, after a crash and once a day."""

from __future__ import annotations

import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Final

import trio

from roost.actors.store.bounds import log_corrected, put_right
from roost.actors.store.database import is_corrupt, is_no_text, read_meta, write_meta
from roost.actors.store.sealing import is_sealed

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_SECONDS: Final = 0.004
SLICE_ROWS: Final = 64
PAUSE: Final = 0.05
BUSY_PAUSE: Final = 0.5
DELAY: Final = 2.0
DAY: Final = 86_400.0
MAX_TOLD: Final = 100
CHECKED: Final = "checked_at"
FOUND: Final = "check_found"

# Each row, and whether both indexes lead to it.
_ROWS: Final = """select e.key, e.session, e.sequence, e.body, e.crc,
    (select i.key from events i indexed by events_order
        where i.session = e.session and i.sequence = e.sequence),
    (select i.key from events i indexed by events_id where i.event_id = e.event_id)
    from events e not indexed where e.key > ? and e.key <= ? order by e.key limit ?"""
_ROWS_ALONE: Final = """select key, session, sequence, body, crc, key, key from events
    where key > ? and key <= ? order by key limit ?"""
_NEXT: Final = "select key from sessions where key > ? order by key limit 1"
_PART: Final = """select count(*), max(sequence) from (select sequence from events
    where session = ? and sequence > ? and sequence <= ? order by sequence limit 512)"""

MISPLACED: Final = ValueError("an index does not lead to its row")

_log = logging.getLogger(__name__)


class FullCheck:
    """One check at a time; `tell` is for damage that a reader meets. Nothing runs between two checks."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        met_damage: Callable[[BaseException, bool], None],
        *,
        after_crash: bool,
        clock: Callable[[], float],
    ) -> None:
        self._db = connection
        self._scope = trio.CancelScope()
        self._met_damage = met_damage
        self._clock = clock
        self._due = after_crash
        self._told: set[tuple[str, int]] = set()
        self._found = 0
        self._at = 0
        self._upto = 2**62
        self._phase: Callable[[], bool] = self._check_rows
        self._session: tuple[int, str, int, int] | None = None

    def tell(self, session_id: str, sequence: int) -> None:
        """Log a damaged event, once."""
        where = (session_id, sequence)
        if where in self._told:
            return
        self._found += 1
        if len(self._told) < MAX_TOLD:
            self._told.add(where)
            _log.error("event %d of session %s is damaged", sequence, session_id)

    def stop(self) -> None:
        """Do nothing more: the database is about to be closed."""
        self._scope.cancel()

    async def run(self) -> None:
        """Check when it is due, until stopped or cancelled."""
        with self._scope:
            await trio.sleep(DELAY)
            while True:
                wait = self._seconds_left()
                if wait > 0:
                    await trio.sleep(wait)
                    continue
                try:
                    await self._check()
                except sqlite3.Error as error:
                    _log.error("the log cannot be checked to its end: %s", error)
                    if is_corrupt(error):
                        self._met_damage(error, False)
                    self._finish(f"broken off: {error}")

    def slice(self, seconds: float = SLICE_SECONDS) -> bool:
        """Go on for a moment; return whether there is more to do."""
        end = time.perf_counter() + seconds
        more = True
        while more and time.perf_counter() < end:
            more = self._phase()
        return more

    async def _check(self) -> None:
        self._found = 0
        self._at = 0
        self._upto = self._last_row()
        self._phase = self._check_rows
        changes = self._db.total_changes
        while self.slice():  # a pause, not a wait
            # What is to be written goes first.
            busy = changes != self._db.total_changes
            changes = self._db.total_changes
            await trio.sleep(BUSY_PAUSE if busy else PAUSE)
        self._finish(f"{self._found} damaged" if self._found else "sound")

    def _finish(self, outcome: str) -> None:
        self._due = False
        _log.info("the whole log is checked: %s", outcome)
        try:
            write_meta(self._db, CHECKED, str(int(self._clock())))
            write_meta(self._db, FOUND, outcome)
        except sqlite3.Error as error:
            _log.warning("the outcome of the check cannot be kept: %s", error)

    def _seconds_left(self) -> float:
        if self._due:
            return 0.0
        try:
            last = float(read_meta(self._db, CHECKED) or 0)
        except (sqlite3.Error, ValueError):
            return DAY
        # A clock that was set back must not keep the check from being made.
        return min(DAY, max(0.0, last + DAY - self._clock()))

    def _last_row(self) -> int:
        """Return the last row there is; what is written later was just made."""
        return int(self._db.execute("select coalesce(max(key), 0) from events").fetchone()[0])

    def _check_rows(self) -> bool:
        rows = self._rows()
        for key, session, sequence, body, crc, by_order, by_id in rows:
            self._at = key
            if not is_sealed(session, sequence, body, crc):
                self.tell(self._name(session), sequence)
            elif by_order != key or by_id != key:
                self._found += 1
                self._met_damage(MISPLACED, False)
                _log.error(
                    "event %d of session %s is not found by its index",
                    sequence,
                    self._name(session),
                )
        if not rows:
            self._at = 0
            self._phase = self._check_session
        return True

    def _rows(self) -> list[tuple[int, int, int, bytes, int, int, int]]:
        try:
            return self._db.execute(_ROWS, (self._at, self._upto, SLICE_ROWS)).fetchall()
        except sqlite3.Error as error:
            if not is_no_text(error):
                raise
        # One text among them is none; it is not among what is looked at otherwise.
        return self._db.execute(_ROWS_ALONE, (self._at, self._upto, SLICE_ROWS)).fetchall()

    def _check_session(self) -> bool:
        """Look for missing events of one session, a part at a time."""
        if self._session is None:
            found = self._db.execute(_NEXT, (self._at,)).fetchone()
            if found is not None:
                self._begin_session(found[0])
            return found is not None
        key, session_id, after, last = self._session
        # Retention may have gone on meanwhile.
        (first,) = self._db.execute(
            "select first_sequence from sessions where key = ?", (key,)
        ).fetchone() or (last + 1,)
        after = max(after, first - 1)
        if after >= last:
            self._session = None
            return True
        count, highest = self._db.execute(_PART, (key, after, last)).fetchone()
        if not count:
            self.tell(session_id, after + 1)
            self._session = None
        elif highest - after != count:
            self.tell(session_id, self._first_missing(key, after))
            self._session = (key, session_id, highest, last)
        else:
            self._session = (key, session_id, highest, last)
        return True

    def _begin_session(self, key: int) -> None:
        self._at = key
        row, notes = put_right(self._db, key)
        self._found += len(notes)
        log_corrected(notes)
        if row is not None and row.state != "importing":
            self._session = (key, row.session_id, row.first_sequence - 1, row.last_sequence)

    def _first_missing(self, key: int, after: int) -> int:
        expected = after + 1
        sql = "select sequence from events where session = ? and sequence > ? order by sequence"
        for (sequence,) in self._db.execute(sql, (key, after)):
            if sequence != expected:
                break
            expected += 1
        return expected

    def _name(self, key: int) -> str:
        row = self._db.execute("select session_id from sessions where key = ?", (key,)).fetchone()
        return f"with key {key}" if row is None else str(row[0])


def log_notes(notes: list[str]) -> None:
    """Log what was put right at a start."""
    for note in notes[:MAX_TOLD]:
        _log.error("%s", note)
