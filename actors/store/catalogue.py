"""Agents, sessions and grants: their rows, and the records made of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from roost.actors.errors import DaemonError
from roost.schemas.agent import AgentRow, AgentSpec
from roost.schemas.approval import Permission
from roost.schemas.base import AgentId, SessionId
from roost.schemas.session import SessionRow, SessionSpec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from roost.schemas.agent import AgentStatus
    from roost.schemas.session import SessionStatus

# A row that cannot be read is left out, and must not shorten a page.
NO_LIMIT: Final = -1
BEHIND_ALL: Final = (2**63 - 1, "")
UNREADABLE: Final = (msgspec.MsgspecError, TypeError, ValueError)
STATES: Final = frozenset({"open", "closing", "closed", "importing"})

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_agent_spec = msgspec.msgpack.Decoder(AgentSpec).decode
_session_spec = msgspec.msgpack.Decoder(SessionSpec).decode

_AGENT = """select agent_id, spec, state, failed, down, error, asleep, cancelled, recovered, env_lost,
    started_at, last_active_at, ended_at,
    exists(select 1 from sessions s where s.agent_id = agents.agent_id and s.state <> 'closed' and (
        exists(select 1 from turns t where t.session = s.key and t.state = 'open')
        or exists(select 1 from messages m where m.session = s.key and m.state = 'queued')))
    from agents"""
_SESSION = """select spec, state,
    coalesce((select last_sequence from counters c where c.session = s.key), 0), first_sequence, delivered, turns,
    closed_at, close_reason, cleared_after, recovered, cleared_at, updated_at, preview,
    coalesce((select turn_id from turns t where t.session = s.key and t.state = 'open'),
        (select planned from messages m where m.session = s.key and m.state = 'queued'
            and m.steering = 0 order by m.key limit 1), ''),
    exists(select 1 from turns t where t.session = s.key and t.state = 'open'
        and t.cancel_reason is not null),
    (select count(*) from messages m where m.session = s.key and m.state = 'queued'),
    exists(select 1 from turns t where t.session = s.key and t.state = 'open')
        or exists(select 1 from messages m where m.session = s.key and m.state = 'queued'),
    exists(select 1 from pending p where p.session = s.key and p.state = 'open' and p.event_id <> ''),
    exists(select 1 from pending p where p.session = s.key and p.state = 'open' and p.event_id = '')
    from sessions s"""
_AFTER = "(created_at, agent_id) > (?, ?) order by created_at, agent_id limit ?"
_ONE_AGENT = f"{_AGENT} where agent_id = ?"
_AGENTS: Final = (
    f"{_AGENT} where state = 'live' and {_AFTER}",
    f"{_AGENT} where {_AFTER}",
)
_ONE_SESSION = f"{_SESSION} where s.session_id = ?"
_SESSIONS = (
    f"{_SESSION} where (s.created_at, s.session_id) > (?, ?) and s.state not in ('importing', 'purging')"
    " order by s.created_at, s.session_id limit ?"
)
_SESSIONS_BACK = (
    f"{_SESSION} where s.agent_id = ? and (s.created_at, s.session_id) < (?, ?)"
    " order by s.created_at desc, s.session_id desc limit ?"
)
_SESSIONS_OF = (
    f"{_SESSION} where s.agent_id = ? and (s.created_at, s.session_id) > (?, ?)"
    " order by s.created_at, s.session_id limit ?"
)
# First which, from an index alone; then their records. Newest first.
_THREADS: Final = {
    archived: f"""{_SESSION} join (select key as found, updated_at as at, session_id as id
        from sessions where {where} order by updated_at desc, session_id desc limit ? offset ?)
        on s.key = found order by at desc, id desc"""
    for archived, where in ((True, "state = 'closed'"), (False, "state in ('open', 'closing')"))
}
_ALL_THREADS: Final = f"""{_SESSION} join (
        select key as found, updated_at as at, session_id as id from sessions
        where state in ('open', 'closing')
        union all select key, updated_at, session_id from sessions where state = 'closed'
        order by at desc, id desc limit ? offset ?)
    on s.key = found order by at desc, id desc"""
_EVENT_AT = """select e.sequence, e.turn_id, coalesce((select first_sequence from turns t
    where t.turn_id = e.turn_id and t.session = e.session), 0)
    from events e where e.event_id = ? and e.session = ?"""
# A session that came from elsewhere has no rows of turns: its first event behind the last one of another turn.
_TURN_FIRST = """select sequence from events where session = ?1 and turn_id = ?3 and sequence > coalesce((
    select sequence from events where session = ?1 and sequence < ?2 and turn_id not in ('', ?3)
    order by sequence desc limit 1), 0) order by sequence limit 1"""
_LIVE = """select session_id from sessions where agent_id = ? and state <> 'closed'
    order by created_at, session_id"""
_WITH_WORK = """select session_id from sessions s where agent_id = ? and state <> 'closed' and (
    state = 'closing'
    or exists(select 1 from messages m where m.session = s.key and m.state = 'queued')
    or exists(select 1 from turns t where t.session = s.key and t.state = 'open'))
    order by created_at, session_id"""


class Catalogue:
    """The rows of agents, sessions and grants."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def agent(self, agent_id: str) -> AgentRow | None:
        """Return an agent's record, or None."""
        row = self._db.execute(_ONE_AGENT, (agent_id,)).fetchone()
        try:
            return None if row is None else self._agent_row(row)
        except UNREADABLE as error:
            raise _damaged(f"the record of agent {agent_id}") from error

    def agents(self, after: tuple[str, str], limit: int, ended: bool) -> Iterator[AgentRow]:
        """Yield records of agents in order, strictly after (creation time, id); a time of "" is looked up."""
        created, agent_id = after
        if not created and agent_id:
            found = self._db.execute(
                "select created_at from agents where agent_id = ?", (agent_id,)
            ).fetchone()
            created = str(found[0]) if found else "0"
        key = (int(created or 0), agent_id)
        for row in self._db.execute(_AGENTS[ended], (*key, NO_LIMIT)):
            if limit <= 0:
                break
            try:
                yield self._agent_row(row)
                limit -= 1
            except UNREADABLE:
                _log.error("the record of agent %s is damaged: left out", row[0])

    def agent_state(self, agent_id: str) -> str:
        """Return `live`, `stopping`, `stopped`, or nothing for an unknown agent."""
        row = self._db.execute(
            "select state from agents where agent_id = ?", (agent_id,)
        ).fetchone()
        return "" if row is None else str(row[0])

    def is_down(self, agent_id: str) -> bool:
        """Return whether root has given the agent up."""
        row = self._db.execute("select down from agents where agent_id = ?", (agent_id,)).fetchone()
        return row is not None and bool(row[0])

    def add_agent(self, spec: AgentSpec, *, has_env: bool) -> None:
        """Make an agent's row."""
        self._db.execute(
            "insert into agents(agent_id, created_at, spec, has_env) values(?, ?, ?, ?)",
            (spec.agent_id, spec.created_at, _encode(spec), has_env),
        )

    def set_agent(self, agent_id: str, **columns: str | int) -> None:
        """Change columns of an agent's row."""
        names = ", ".join(f"{name} = ?" for name in columns)
        sql = f"update agents set {names} where agent_id = ?"
        self._db.execute(sql, (*columns.values(), agent_id))

    def session(self, session_id: str) -> SessionRow | None:
        """Return a session's record, or None."""
        row = self._db.execute(_ONE_SESSION, (session_id,)).fetchone()
        try:
            return None if row is None else _session_row(row)
        except UNREADABLE as error:
            raise _damaged(f"the record of session {session_id}") from error

    def sessions(self, agent_id: str, after: tuple[int, str], limit: int) -> Iterator[SessionRow]:
        """Yield records of sessions in order, strictly after (creation time, id)."""
        if agent_id:
            rows = self._db.execute(_SESSIONS_OF, (agent_id, *after, NO_LIMIT))
        else:
            rows = self._db.execute(_SESSIONS, (*after, NO_LIMIT))
        return _readable(rows, limit)

    def sessions_back(
        self, agent_id: str, before: tuple[int, str], limit: int
    ) -> Iterator[SessionRow]:
        """Yield records of an agent's sessions backwards, from the last one or strictly before (creation time, id)."""
        made, session_id = before if before[1] else BEHIND_ALL
        rows = self._db.execute(_SESSIONS_BACK, (agent_id, made, session_id, NO_LIMIT))
        return _readable(rows, limit)

    def threads(self, archived: bool | None, limit: int, offset: int) -> Iterator[SessionRow]:
        """Yield records of sessions by their last change, newest first: closed ones, the others, or both."""
        sql = _ALL_THREADS if archived is None else _THREADS[archived]
        return _readable(self._db.execute(sql, (limit, offset)), limit)

    def event_at(self, session: int, event_id: str) -> tuple[int, str, int] | None:
        """Return sequence and turn of an event of a session, and where that turn begins; None if it has no such event."""
        row = self._db.execute(_EVENT_AT, (event_id, session)).fetchone()
        if row is None:
            return None
        sequence, turn_id, first = row
        if not turn_id:
            return sequence, "", sequence
        if not first:
            found = self._db.execute(_TURN_FIRST, (session, sequence, turn_id)).fetchone()
            first = found[0] if found is not None else sequence
        return sequence, turn_id, first

    def live_sessions(self, agent_id: str) -> list[SessionId]:
        """Return the sessions of an agent that are not closed, oldest first."""
        return [SessionId(row[0]) for row in self._db.execute(_LIVE, (agent_id,))]

    def sessions_with_work(self, agent_id: str) -> list[SessionId]:
        """Return those live sessions of an agent that have a message, an open turn or an end to see to."""
        return [SessionId(row[0]) for row in self._db.execute(_WITH_WORK, (agent_id,))]

    def add_session(self, spec: SessionSpec) -> None:
        """Make a session's row."""
        self._db.execute(
            "insert into sessions(session_id, agent_id, created_at, updated_at, spec, ephemeral)"
            " values(?1, ?2, ?3, ?3, ?4, ?5)",
            (spec.session_id, spec.agent_id, spec.created_at, _encode(spec), spec.ephemeral),
        )

    def set_session(self, session_id: str, **columns: str | int) -> None:
        """Change columns of a session's row."""
        names = ", ".join(f"{name} = ?" for name in columns)
        sql = f"update sessions set {names} where session_id = ?"
        self._db.execute(sql, (*columns.values(), session_id))

    def session_count(self) -> int:
        """Return how many sessions there are, closed ones included."""
        return int(self._db.execute("select count(*) from sessions").fetchone()[0])

    def listed_count(self) -> int:
        """Return how many sessions there are but for those that are just coming in, or going."""
        sql = "select count(*) from sessions where state not in ('importing', 'purging')"
        return int(self._db.execute(sql).fetchone()[0])

    def set_delivered(self, sequences: dict[str, int]) -> None:
        """Keep the last sequences written to any client; they only grow."""
        self._db.executemany(
            "update sessions set delivered = ? where session_id = ? and delivered < ?",
            [(sequence, key, sequence) for key, sequence in sequences.items()],
        )

    def grant(self, agent_id: str, session_key: int, keys: tuple[str, ...], at: int) -> None:
        """Keep keys as approved for a session, or for the whole agent (key 0)."""
        self._db.executemany(
            "insert or ignore into grants(agent_id, session, grant_key, granted_at)"
            " values(?, ?, ?, ?)",
            [(agent_id, session_key, key, at) for key in keys],
        )

    def revoke(self, agent_id: str, session_key: int) -> None:
        """Forget what was approved for a session; what was approved for the whole agent stays."""
        sql = "delete from grants where agent_id = ? and session = ?"
        self._db.execute(sql, (agent_id, session_key))

    def grants(self, agent_id: str, session_key: int = 0) -> tuple[str, ...]:
        """Return the keys approved for the agent, and for one session of it."""
        rows = self._db.execute(
            "select distinct grant_key from grants where agent_id = ? and session in (0, ?)"
            " order by grant_key",
            (agent_id, session_key),
        )
        return tuple(row[0] for row in rows)

    def granted(self, agent_id: str, session_key: int | None) -> list[Permission]:
        """Return what has been approved for longer than one call; a session of None means all sessions."""
        rows = self._db.execute(
            "select grant_key, session, min(granted_at) from grants"
            " where agent_id = ?1 and (session = 0 or ?2 is null or session = ?2)"
            " group by session = 0, grant_key order by session = 0, grant_key",
            (agent_id, session_key),
        )
        return [
            _permission(key, "session" if session else "agent", at) for key, session, at in rows
        ]

    def _agent_row(self, row: tuple[object, ...]) -> AgentRow:
        agent_id, spec, state, failed, down, error, asleep, cancelled, recovered, lost = row[:10]
        return AgentRow(
            spec=_agent_spec(spec),  # type: ignore[arg-type] # columns have the types of the schema
            status=_agent_status(str(state), bool(down), bool(row[13]), bool(failed)),
            started_at=row[10],  # type: ignore[arg-type]
            last_active_at=row[11],  # type: ignore[arg-type]
            ended_at=row[12],  # type: ignore[arg-type]
            asleep=bool(asleep),
            cancelled=bool(cancelled),
            recovered=bool(recovered),
            env_lost=bool(lost),
            error=str(error),
            sessions=tuple(self.live_sessions(AgentId(str(agent_id)))),
        )


def _damaged(what: str) -> DaemonError:
    return DaemonError("EVENT_SCHEMA_INCOMPATIBLE", f"{what} is damaged")


def _agent_status(state: str, down: bool, running: bool, failed: bool) -> AgentStatus:
    if state in {"stopping", "stopped"}:
        return "stopping" if state == "stopping" else "stopped"
    if down:
        return "error"
    if running:
        return "running"
    return "error" if failed else "idle"


def _session_status(state: str, running: bool, waiting: bool) -> SessionStatus:
    if state == "closed":
        return "closed"
    if waiting:
        return "waiting"
    return "running" if running else "idle"


def _readable(rows: Iterable[tuple[object, ...]], limit: int) -> Iterator[SessionRow]:
    """Yield so many records; one that is damaged is left out."""
    for row in rows:
        if limit <= 0:
            break
        try:
            yield _session_row(row)
            limit -= 1
        except UNREADABLE as error:
            _log.error("a session's record is damaged: left out (%s)", error)


def _session_row(row: tuple[object, ...]) -> SessionRow:
    spec, state, last, first, delivered, turns, closed_at, reason, cleared, recovered = row[:10]
    cleared_at, updated_at, preview, turn_id, cancelling = row[10:15]
    queued, running, to_decide, to_answer = row[15:]
    if state not in STATES:
        raise ValueError(f"a session is never {state!r}")
    values = {
        "spec": _session_spec(spec),  # type: ignore[arg-type] # columns have the types of the schema
        "state": state,
        "status": _session_status(str(state), bool(running), bool(to_decide or to_answer)),
        "last_sequence": last,
        "first_sequence": first,
        "delivered": delivered,
        "turns": turns,
        "queued": queued,
        "closed_at": closed_at,
        "close_reason": reason,
        "cleared_after": cleared,
        "recovered": bool(recovered),
        "cleared_at": cleared_at,
        "updated_at": updated_at,
        "preview": preview,
        "turn_id": turn_id,
        "cancelling": bool(cancelling),
        "to_decide": bool(to_decide),
        "to_answer": bool(to_answer),
    }
    return SessionRow(**values)  # type: ignore[arg-type]


def _permission(key: str, scope: str, granted_at: int) -> Permission:
    return Permission(
        permission_id=f"approval:{scope}:{key}",
        subject=key,
        action="allow",
        scope=scope,
        granted_at=granted_at,
    )
