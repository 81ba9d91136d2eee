"""agent.list, agent.attach and the session.* methods that change no agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, InvalidArgument, NotFound
from roost.actors.front.clock import stamp_or_nothing
from roost.actors.front.cursor import FAMILY, make_cursor, read_cursor
from roost.actors.front.summaries import agent_summary, session_summary
from roost.schemas.agent import AgentRow, Agents, GetAgent, ListAgents
from roost.schemas.base import AgentId, SessionId
from roost.schemas.results import (
    AgentAttached,
    AgentListResult,
    Attached,
    Detached,
    SessionListResult,
    SessionSummary,
    TurnCancelResult,
)
from roost.schemas.session import GetSession, ListSessions, SessionRow, Sessions
from roost.schemas.turn import CancelTurn, TurnCancelled

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.schemas.daemon import (
        AgentAttach,
        AgentList,
        SessionAttach,
        SessionCancelTurn,
        SessionDetach,
        SessionList,
    )

MAX_AGENTS = 500
MAX_SESSIONS = 100


async def list_agents(call: Call, params: AgentList) -> AgentListResult:
    """Return a page of the agents that have not ended."""
    after = ("", "")
    if params.cursor.startswith(FAMILY):
        created_at, last_id = read_cursor("agent", params.cursor)
        after = (str(created_at), last_id)
    elif params.cursor:
        after = ("", params.cursor)
    request = ListAgents(limit=min(params.limit, MAX_AGENTS), after=after)
    found = await call.services.store.ask_bulky(request, Agents)
    following = ""
    if found.more and found.agents:
        spec = found.agents[-1].spec
        following = make_cursor("agent", spec.created_at, spec.agent_id)
    return AgentListResult(
        agents=[agent_summary(row) for row in found.agents], next_cursor=following
    )


async def list_sessions(call: Call, params: SessionList) -> SessionListResult:
    """Return a page of sessions, closed ones included."""
    agent_id = params.agent_id.strip()
    after = read_cursor("session", params.cursor, agent_id) if params.cursor else (0, "")
    limit = min(params.limit, MAX_SESSIONS)
    request = ListSessions(limit=limit, agent_id=agent_id, after=after)
    found = await call.services.store.ask_bulky(request, Sessions)
    following = ""
    if found.more and found.sessions:
        spec = found.sessions[-1].spec
        following = make_cursor("session", spec.created_at, spec.session_id, agent_id)
    attachments = call.services.attachments
    return SessionListResult(
        sessions=[
            session_summary(row, attachments.ids_of(row.spec.session_id)) for row in found.sessions
        ],
        next_cursor=following,
    )


async def attach_session(call: Call, params: SessionAttach) -> Attached:
    """Subscribe the connection; the answer comes behind everything that came before."""
    attachments = call.services.attachments
    visitor = call.caller.visitor
    found = await attachments.attach(visitor, params.session_id, params.client_id)
    call.services.remember_agent(params.session_id, found.stream.where.agent_id)
    return Attached(
        session_id=params.session_id,
        attachment_id=found.attachment.id,
        attached_at=stamp_or_nothing(found.attachment.attached_at),
        client_id=params.client_id,
        active_attachment_ids=attachments.ids_of(params.session_id),
        epoch=found.stream.epoch,
        last_sequence=found.stream.position,
        first_sequence=found.stream.row.first_sequence,
        resumed_after=found.resumed_after,
    )


async def attach_agent(call: Call, params: AgentAttach) -> AgentAttached:
    """Attach to the newest live session of an agent, and name its others."""
    services = call.services
    row = await services.store.ask(GetAgent(agent_id=AgentId(params.agent_id)), AgentRow)
    live = tuple(reversed(row.sessions))
    none = NotFound(
        "AGENT_NOT_FOUND", f"AgenC daemon agent has no active session: {params.agent_id}"
    )
    if not live or row.status in ("stopping", "stopped"):
        raise none
    visitor = call.caller.visitor
    try:
        found = await services.attachments.attach(visitor, live[0], params.client_id)
    except DaemonError as error:
        # It was closed in the meantime.
        raise none if error.code in ("SESSION_CLOSED", "SESSION_NOT_FOUND") else error from None
    services.remember_agent(live[0], params.agent_id)
    return AgentAttached(
        agent_id=params.agent_id,
        attachment_id=found.attachment.id,
        session_ids=live,
        runtime_session_id=params.agent_id,
        sessions=await _summaries(services, live[:MAX_SESSIONS]),
        epoch=found.stream.epoch,
        last_sequence=found.stream.position,
        first_sequence=found.stream.row.first_sequence,
        resumed_after=found.resumed_after,
    )


async def detach_session(call: Call, params: SessionDetach) -> Detached:
    """End one attachment, of whichever connection."""
    if not params.attachment_id and not params.client_id:
        text = "session.detach requires attachmentId or clientId"
        raise InvalidArgument(text, {"path": "/attachmentId"})
    services = call.services
    if services.fanout.find(params.session_id) is None:
        await _need_session(services, params.session_id)
    ended = services.attachments.detach(params.session_id, params.attachment_id, params.client_id)
    return Detached(
        session_id=params.session_id,
        detached=bool(ended),
        attachment_id=ended,
        remaining_attachment_ids=services.attachments.ids_of(params.session_id),
    )


async def cancel_turn(call: Call, params: SessionCancelTurn) -> TurnCancelResult:
    """Interrupt the open turn; an unknown session has none."""
    reason = params.reason.strip() or "interrupted"
    request = CancelTurn(session_id=SessionId(params.session_id), reason=reason)
    cancelled = await call.services.store.ask(request, TurnCancelled)
    return TurnCancelResult(
        session_id=params.session_id, cancelled=cancelled.cancelled, reason=reason
    )


async def _need_session(services: Services, session_id: str) -> None:
    try:
        await services.store.ask(GetSession(session_id=SessionId(session_id)), SessionRow)
    except DaemonError as error:
        if error.code == "SESSION_NOT_FOUND":
            text = f"AgenC daemon session not found: {session_id}"
            raise NotFound("SESSION_NOT_FOUND", text) from None
        raise


async def _summaries(
    services: Services, session_ids: tuple[SessionId, ...]
) -> list[SessionSummary]:
    asked = [services.store.ask(GetSession(session_id=key), SessionRow) for key in session_ids]
    attachments = services.attachments
    return [
        session_summary(await row, attachments.ids_of(key))
        for key, row in zip(session_ids, asked, strict=True)
    ]
