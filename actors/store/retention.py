"""Keeps the log within the bounds of `[retention]`, in short steps; see `cuts` for what may go and `remains` for how.

Nothing is done and nothing is looked at while no bound is passed. The newest turn of a session that is not closed
stays, whatever its size: an agent may send its drafts again until they are answered, and finds them by their ids.
Only age removes it, after days.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from roost.actors.errors import DaemonError, NotFound, WrongState
from roost.actors.store.cuts import Cut, Cutter
from roost.actors.store.effects import Effects
from roost.actors.store.remains import HIDDEN, SCAN_ROWS, Remains
from roost.schemas.session import IDLE, SessionChanged, SessionDropped

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.config.model import Retention as Limits

DAY: Final = 86_400.0
STEP_SECONDS: Final = 0.002
MIN_ROWS: Final = 16
MAX_ROWS: Final = 1_024
# How much more must have come before another look when nothing could be removed.
RETRY_SHARE: Final = 64
RETRY_BYTES: Final = 1024 * 1024
ENDLESS: Final = float("inf")


class _Scan:
    """A cut that is being looked for; `whole` lets the last turn go too."""

    def __init__(self, session_id: str, cutter: Cutter, position: int, *, whole: bool) -> None:
        self.session_id = session_id
        self.cutter = cutter
        self.position = position
        self.whole = whole


class _Walk:
    """A way through the events of the whole store, oldest first, past the sessions that cannot be cut."""

    def __init__(self) -> None:
        self.key = 0
        self.skipped: set[int] = set()


class Retention:
    """The bounds and what is still to be done about them; call it between transactions."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        limits: Limits,
        transact: Callable[[Callable[[], None]], Effects],
    ) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._remains = Remains(lifecycle.journal.db)
        self._transact = transact
        self._rows = MIN_ROWS * 8
        self._removing = True
        self._purging = True
        self._scan: _Scan | None = None
        self._due: dict[str, None] = {}
        # A store that was restarted alone may have left some.
        self._ephemeral = dict.fromkeys(self._remains.closed_ephemeral())
        self._futile: dict[str, str] = {}
        self._walk: _Walk | None = None
        self._closed_after: tuple[int, int] | None = None
        self._expired_after: tuple[int, int] | None = None
        self._agents_after: int | None = None
        self._ages: _Walk | None = None
        self._total_retry = 0
        self.configure(limits)

    @property
    def has_ages(self) -> bool:
        """Return whether `look` is to be called now and then."""
        return bool(self.limits.session_days or self.limits.closed_days)

    def configure(self, limits: Limits) -> None:
        """Take new bounds; whatever is over them is due. An error of the file leaves the old ones."""
        total = self._remains.total_bytes() if limits.total_bytes else 0
        larger = self._remains.larger_than(limits.session_bytes) if limits.session_bytes else []
        self.limits = limits
        self._scan = None
        self._futile.clear()
        self._total_retry = 0
        self._journal.total_bytes = total
        self._due = dict.fromkeys(larger)
        self.look()

    def look(self) -> None:
        """Look for what has become too old, in the steps that follow."""
        if self.limits.session_days:
            self._ages = _Walk()
        if self.limits.closed_days:
            self._expired_after = (0, 0)

    def after_commit(self) -> bool:
        """Look at what the last transaction has added; return whether there is something to do."""
        limit = self.limits.session_bytes
        if limit:
            for session in self._journal.grown.values():
                if (
                    session.bytes > limit
                    and self._futile.get(session.session_id) != session.turn_id
                ):
                    self._due[session.session_id] = None
        return bool(self._due or self._ephemeral) or self._is_over()

    def drop_soon(self, session_id: str) -> None:
        """Remove an ephemeral session that is being closed, in one of the steps that follow."""
        self._ephemeral[session_id] = None

    def purge(self, session_id: str) -> None:
        """Remove a closed session whole; its id is free at once, its rows go in the steps that follow.

        Raises:
            NotFound: there is none.
            WrongState: it is not closed, or something of it is still open.
        """
        session = self._journal.session(session_id)
        if session is None:
            text = f"AgenC daemon session not found: {session_id}"
            raise NotFound("SESSION_NOT_FOUND", text)
        if session.state != "closed" or self._remains.is_busy(session.key):
            text = f"session {session_id} is in use"
            raise WrongState("SESSION_PURGE_BUSY", text, {"sessionId": session_id})
        self._announce(session_id)
        self._purge(session)

    def _purge(self, session: Session) -> None:
        self._remains.start_purge(session.key, session.agent_id)
        self._journal.forget(session.session_id)
        self._purging = True

    def step(self) -> Effects | None:
        """Do a little; return what it causes, or None when nothing is left to do.

        Raises:
            sqlite3.Error: the disk does not take it; nothing was done.
        """
        started = time.perf_counter()
        effects = self._step()
        self._adapt(time.perf_counter() - started)
        return effects

    def _step(self) -> Effects | None:
        if self._removing:
            self._removing = self._remains.is_removing()
            if self._removing:
                return self._transact(lambda: self._remains.delete_piece(self._rows))
        if self._scan is not None:
            return self._go_on(self._scan)
        return self._next_task()

    def _next_task(self) -> Effects | None:
        tasks = (
            self._drop_ephemeral,
            self._purge_next,
            self._cut_large,
            self._cut_total,
            self._cut_old,
            self._expire_closed,
            self._expire_agents,
        )
        for task in tasks:
            effects = task()
            if effects is not None:
                return effects
        return None

    def _drop_ephemeral(self) -> Effects | None:
        if not self._ephemeral:
            return None
        session_id = next(iter(self._ephemeral))
        del self._ephemeral[session_id]
        session = self._journal.session(session_id)
        # What has announced it may have been undone, and is then announced again.
        if session is None or session.state != "closed" or self._remains.is_busy(session.key):
            return Effects()
        reason = ""
        with suppress(DaemonError):
            row = self._lifecycle.catalogue.session(session_id)
            reason = row.close_reason if row is not None else ""

        def write() -> None:
            self._purge(session)
            self._remains.forget_agent(session.agent_id, alone=reason == IDLE)
            dropped = SessionDropped(
                session_id=session.session_id, agent_id=session.agent_id, reason=reason
            )
            self._journal.effects.announce(dropped)

        return self._transact(write)

    def _adapt(self, seconds: float) -> None:
        if seconds > STEP_SECONDS:
            self._rows = max(MIN_ROWS, self._rows // 2)
        elif seconds < STEP_SECONDS / 3:
            self._rows = min(MAX_ROWS, self._rows * 2)

    def _begin(self, session: Session, cutter: Cutter, *, whole: bool) -> Effects:
        after = session.first_sequence - 1
        scan = self._scan = _Scan(session.session_id, cutter, after, whole=whole)
        return self._go_on(scan)

    def _go_on(self, scan: _Scan) -> Effects:
        """Read some more of a log, and cut it when it is known where."""
        session = self._journal.session(scan.session_id)
        if session is None:
            self._scan = None
            return Effects()
        rows = self._remains.events(session.key, scan.position)
        found = False
        for row in rows:
            scan.position = row[0]
            if scan.cutter.take(*row):
                found = True
                break
        if not found and len(rows) == SCAN_ROWS:
            return Effects()
        if not found and scan.whole and not session.turn_id:
            scan.cutter.take_end()
        self._scan = None
        cut = scan.cutter.cut
        if not cut.upto and session.session_id.startswith(HIDDEN):
            # Its events are gone already.
            cut = Cut(session.last_sequence, session.bytes)
        return self._apply(session, cut)

    def _apply(self, session: Session, cut: Cut) -> Effects:
        if not cut.upto or session.turn_id in cut.turn_ids:
            self._give_up(session)
            return Effects()

        first = cut.upto + 1
        left = max(session.bytes - cut.size, 0) if first <= session.last_sequence else 0
        freed = session.bytes - left

        def write() -> None:
            self._remains.move_first(session.key, first, left)
            self._remains.forget_turns(session.key, cut)
            session.first_sequence, session.bytes = first, left
            if not session.session_id.startswith(HIDDEN):
                self._announce(session.session_id)

        effects = self._transact(write)
        self._removing = True
        self._journal.total_bytes -= freed
        return effects

    def _announce(self, session_id: str) -> None:
        """Tell who watches what is left of a session; a record that cannot be read keeps nothing from going."""
        with suppress(DaemonError):
            row = self._lifecycle.catalogue.session(session_id)
            if row is not None:
                self._journal.effects.announce(SessionChanged(row=row))

    def drop(self) -> None:
        """Leave what is under way: it has met an error that would come again."""
        self._scan = None
        self._due.clear()
        self._ephemeral.clear()
        self._walk = self._ages = None
        self._removing = self._purging = False

    def _give_up(self, session: Session) -> None:
        """Nothing of this session can go now: look at it again when it has another turn."""
        self._due.pop(session.session_id, None)
        if len(self._futile) >= MAX_ROWS:
            self._futile.clear()
        self._futile[session.session_id] = session.turn_id
        for walk in (self._walk, self._ages):
            if walk is not None:
                walk.skipped.add(session.key)

    def _purge_next(self) -> Effects | None:
        if not self._purging:
            return None
        found = self._remains.purging()
        if found is None:
            self._purging = False
            return None
        key, session_id = found
        session = self._journal.session(session_id)
        if session is not None and session.first_sequence <= session.last_sequence:
            return self._begin(session, Cutter(ENDLESS), whole=True)

        def write() -> None:
            if self._remains.delete_rest(key, self._rows):
                self._journal.forget(session_id)

        return self._transact(write)

    def _cut_large(self) -> Effects | None:
        limit = self.limits.session_bytes
        while self._due:
            session_id = next(iter(self._due))
            session = self._journal.session(session_id)
            if limit and session is not None and session.bytes > limit:
                return self._begin(session, Cutter(session.bytes - limit), whole=False)
            del self._due[session_id]
        return None

    def _is_over(self) -> bool:
        limit, total = self.limits.total_bytes, self._journal.total_bytes
        if total <= limit:
            self._total_retry = 0
        return bool(limit) and total > max(limit, self._total_retry)

    def _cut_total(self) -> Effects | None:
        """Cut closed sessions, then the oldest turn of all, until the whole is small enough."""
        if not self._is_over():
            self._walk = self._closed_after = None
            return None
        excess = self._journal.total_bytes - self.limits.total_bytes
        if self._walk is None:
            self._walk = _Walk()
            self._closed_after = (0, 0)
        if self._closed_after is not None:
            for row in (rows := self._remains.closed(self._closed_after)):
                session = self._journal.session(row.session_id) if row.bytes else None
                if session is not None and session.key not in self._walk.skipped:
                    return self._begin(session, Cutter(excess), whole=True)
                self._closed_after = (row.closed_at, row.key)
            self._closed_after = self._closed_after if rows else None
            return Effects()
        return self._cut_oldest(self._walk)

    def _cut_oldest(self, walk: _Walk) -> Effects:
        rows = self._remains.oldest(walk.key)
        for key, session_key, _ in rows:
            session = self._session(session_key) if session_key not in walk.skipped else None
            if session is not None:
                return self._begin(session, Cutter(1), whole=False)
            walk.skipped.add(session_key)
            walk.key = key
        if not rows:
            self._walk = None
            total = self._journal.total_bytes
            self._total_retry = total + max(total // RETRY_SHARE, RETRY_BYTES)
        return Effects()

    def _cut_old(self) -> Effects | None:
        """Cut the turns that ended long ago, beginning with the oldest event of all."""
        walk = self._ages
        if walk is None:
            return None
        before = self._journal.clock() - self.limits.session_days * DAY
        rows = self._remains.oldest(walk.key)
        for key, session_key, sequence in rows:
            session = self._session(session_key) if session_key not in walk.skipped else None
            if session is not None:
                if self._remains.stamp(session_key, sequence) >= before:
                    self._ages = None
                    return Effects()
                return self._begin(session, self._cutter_before(session_key, before), whole=True)
            walk.skipped.add(session_key)
            walk.key = key
        if not rows or self._remains.stamp(*rows[-1][1:]) >= before:
            self._ages = None
        return Effects()

    def _cutter_before(self, session_key: int, before: float) -> Cutter:
        stamp = self._remains.stamp
        return Cutter(ENDLESS, lambda sequence: stamp(session_key, sequence) < before)

    def _expire_closed(self) -> Effects | None:
        if self._expired_after is None:
            return None
        before = (self._journal.clock() - self.limits.closed_days * DAY) * 1000
        rows = [r for r in self._remains.closed(self._expired_after) if r.closed_at < before]
        for row in rows:
            self._expired_after = (row.closed_at, row.key)
            if not self._remains.is_busy(row.key):
                return self._transact(partial(self.purge, row.session_id))
        if not rows:
            self._expired_after = None
            self._agents_after = 0
        return Effects()

    def _expire_agents(self) -> Effects | None:
        if self._agents_after is None:
            return None
        before = (self._journal.clock() - self.limits.closed_days * DAY) * 1000
        gone: list[str] = []
        last: int | None = None
        for key, agent_id, state, ended_at in self._remains.ended_agents(self._agents_after):
            last = key
            old = state == "stopped" and 0 < ended_at < before
            if old and not self._remains.has_session(agent_id):
                gone.append(agent_id)
        self._agents_after = last
        if not gone:
            return Effects()

        def write() -> None:
            for name in gone:
                self._remains.delete_agent(name)

        return self._transact(write)

    def _session(self, key: int) -> Session | None:
        session_id = self._remains.session_id(key)
        return self._journal.session(session_id) if session_id and session_id[0] != HIDDEN else None
