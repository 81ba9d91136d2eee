"""What is answered without writing: records, pages, figures, and the start of a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from roost.actors.errors import DaemonError, NotFound
from roost.actors.store.paging import Damaged
from roost.schemas.agent import Agents
from roost.schemas.approval import Permission, Permissions
from roost.schemas.session import EventFound, Page, Sessions, Threads, Watched
from roost.schemas.tool_names import canonical_tools
from roost.schemas.turn import CallRecalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.paging import PageRow
    from roost.schemas.agent import AgentRow, AgentSpec, ListAgents
    from roost.schemas.approval import ListPermissions
    from roost.schemas.session import (
        FindEvent,
        ListSessions,
        ListThreads,
        ReadPage,
        SessionRow,
    )
    from roost.schemas.turn import RecallCall

MAX_ROWS: Final = 1_000
MAX_PAGE: Final = 1_024
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
MAX_LIST_BYTES: Final = 1024 * 1024
NO_BOUND: Final = 2**62

R = TypeVar("R", "AgentRow", "SessionRow")


class Reads:
    """Reads of committed state; call them between transactions."""

    def __init__(self, lifecycle: Lifecycle, epoch: str) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._catalogue = lifecycle.catalogue
        self._epoch = epoch
        self.met_damage: Callable[[BaseException], None] = _nobody

    def agent(self, agent_id: str) -> AgentRow:
        """Return an agent's record."""
        return self._lifecycle.need_agent(agent_id)

    def agents(self, request: ListAgents) -> Agents:
        """Return a page of agents, shorter than asked for if they are large."""
        limit = min(max(request.limit, 0), MAX_ROWS)
        rows, more = _bounded(
            self._catalogue.agents(request.after, limit + 1, request.ended), limit
        )
        return Agents(agents=tuple(rows), more=more)

    def session(self, session_id: str) -> SessionRow:
        """Return a session's record."""
        row = self._catalogue.session(session_id)
        if row is None:
            raise _unknown(session_id)
        return row

    def sessions(self, request: ListSessions) -> Sessions:
        """Return a page of sessions, shorter than asked for if they are large."""
        limit = min(max(request.limit, 0), MAX_ROWS)
        read = self._catalogue.sessions_back if request.newest else self._catalogue.sessions
        found = read(request.agent_id, request.after, limit + 1)
        rows, more = _bounded(found, limit)
        return Sessions(sessions=tuple(rows), more=more)

    def threads(self, request: ListThreads, live: int, archived: int) -> Threads:
        """Return a page of sessions by their last change; `live` and `archived` of them there are."""
        total = {True: archived, False: live, None: live + archived}[request.archived]
        limit, offset = max(request.limit, 0), min(max(request.offset, 0), NO_BOUND)
        found = self._catalogue.threads(request.archived, min(limit, MAX_ROWS), offset)
        rows, _ = _bounded(found, MAX_ROWS)
        return Threads(threads=tuple(rows), total=total)

    def find_event(self, request: FindEvent) -> EventFound:
        """Return where an event is in the log of its session."""
        session = self._need(request.session_id)
        found = self._catalogue.event_at(session.key, request.event_id)
        if found is None or found[0] < session.first_sequence:
            return EventFound()
        sequence, turn_id, first = found
        return EventFound(
            sequence=sequence, turn_id=turn_id, turn_first=max(first, session.first_sequence)
        )

    def watched(self, session_id: str) -> Watched:
        """Return the state of a session as of the last commit."""
        session = self._need(session_id)
        agent = self._catalogue.agent(session.agent_id)
        status = agent.status if agent is not None else "stopped"
        if status == "error" and not self._catalogue.is_down(session.agent_id):
            # The end of its turn has told of the crash; who comes now finds it ready.
            status = "idle"
        turns = self._turns.refs(session.key, [session.turn_id] if session.turn_id else [])
        return Watched(
            row=self.session(session_id),
            agent_status=status,
            epoch=self._epoch,
            turn=turns[0] if turns else None,
            pending=tuple(self._turns.open_pending(session.key)),
        )

    def page(self, request: ReadPage, agent_id: str = "") -> Page:
        """Return a page of events; an agent reads its own sessions only."""
        session = self._need(request.session_id)
        if agent_id and session.agent_id != agent_id:
            raise _unknown(request.session_id)
        limit = min(max(request.max_events, 0), MAX_PAGE)
        upto = request.upto or NO_BOUND
        size = min(request.max_bytes, MAX_PAGE_BYTES)
        damaged = 0
        try:
            rows = self._journal.read(session, request.after, upto, limit, size)
        except Damaged as error:
            self.met_damage(error)
            if not request.skip_damaged:
                raise damaged_event(error) from error
            damaged = self._journal.damaged_upto(session, error.sequence - 1, upto)
            rows = self._behind(session, damaged, upto, limit, size)
        turn_ids = dict.fromkeys(row.turn_id for row in rows if row.turn_id)
        lost = session.first_sequence - 1
        return Page(
            session_id=session.session_id,
            first=rows[0].sequence if rows else max(request.after, lost, damaged) + 1,
            bodies=tuple(row.body for row in rows),
            last_sequence=session.last_sequence,
            turns=self._turns.refs(session.key, turn_ids),
            lost_upto=min(lost, upto) if request.after < lost else 0,
            damaged_upto=damaged,
        )

    def call(self, request: RecallCall, agent_id: str) -> CallRecalled:
        """Return how a call of an agent's session has ended; nothing if that is not in the log (any more)."""
        session = self._need(request.session_id)
        if session.agent_id != agent_id:
            raise _unknown(request.session_id)
        at = self._lifecycle.ledger.ended_at(session.key, request.call_id)
        try:
            rows = self._journal.read(session, at - 1, at, 1, NO_BOUND) if at else []
        except Damaged:
            rows = []
        return CallRecalled(body=rows[0].body if rows else b"")

    def permissions(self, request: ListPermissions) -> Permissions:
        """Return the rules in force for an agent, or for one session of it."""
        session_key: int | None = None
        agent_id = request.agent_id
        if request.session_id:
            session = self._journal.session(request.session_id)
            if session is None or session.state == "closed":
                text = f"AgenC daemon session not found or closed: {request.session_id}"
                raise NotFound("AGENT_NOT_FOUND", text)
            session_key = session.key
            agent_id = session.agent_id
        spec = self._lifecycle.need_agent(agent_id).spec
        granted = self._catalogue.granted(agent_id, session_key)
        return Permissions(permissions=(*_rules(spec), *granted))

    def _behind(
        self, session: Session, damaged: int, upto: int, limit: int, size: int
    ) -> list[PageRow]:
        try:
            return self._journal.read(session, damaged, upto, limit, size)
        except Damaged:
            # The next page begins there.
            return []

    def _need(self, session_id: str) -> Session:
        session = self._journal.session(session_id)
        if session is None:
            raise _unknown(session_id)
        return session


def _nobody(error: BaseException) -> None:
    """Tell nobody of damage."""


def _bounded(found: Iterator[R], limit: int) -> tuple[list[R], bool]:
    """Return at most `limit` records and, but for the first, `MAX_LIST_BYTES` of them; and whether there are more."""
    rows: list[R] = []
    size = 0
    for row in found:
        size += len(row.spec.metadata)
        if len(rows) == limit or (rows and size > MAX_LIST_BYTES):
            return rows, True
        rows.append(row)
    return rows, False


def damaged_event(error: Damaged) -> DaemonError:
    """Return the error for a reader of a damaged event."""
    where = {"sessionId": error.session_id, "sequence": error.sequence}
    return DaemonError("EVENT_SCHEMA_INCOMPATIBLE", str(error), where)


def _unknown(session_id: str) -> NotFound:
    return NotFound("SESSION_NOT_FOUND", f"AgenC daemon session not found: {session_id}")


def _rules(spec: AgentSpec) -> list[Permission]:
    """Return the mode, then the unattended lists (P 6.30)."""
    mode = "unattended" if spec.unattended else "default"
    rules = [
        Permission(
            permission_id=f"mode:{mode}", subject="permission-mode", action=mode, scope="session"
        )
    ]
    if spec.unattended:
        lists = (("allow", spec.unattended_allow), ("deny", spec.unattended_deny))
        rules += [
            Permission(
                permission_id=f"unattended:{verdict}:{tool}",
                subject=tool,
                action=f"unattended-{verdict}",
                scope="session",
            )
            for verdict, tools in lists
            for tool in canonical_tools(tools)
        ]
    return rules
