"""Records of the store as clients see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.front.clock import stamp_or_nothing
from roost.schemas.results import AgentSummary, SessionSummary

if TYPE_CHECKING:
    from roost.schemas.agent import AgentRow, AgentSpec, AgentStatus
    from roost.schemas.daemon import JsonObject
    from roost.schemas.session import SessionRow

AGENT_PATH = "/root"

_object = msgspec.json.Decoder(dict[str, object])


def read_object(data: bytes) -> JsonObject:
    """Return a stored JSON object; empty if it cannot be read."""
    try:
        return _object.decode(data)
    except msgspec.MsgspecError:
        return {}


def agent_summary(
    row: AgentRow, *, status: AgentStatus | None = None, session_id: str = ""
) -> AgentSummary:
    """Return an agent as the lists show it."""
    spec = row.spec
    return AgentSummary(
        agent_id=spec.agent_id,
        agent_path=AGENT_PATH,
        objective=spec.objective,
        status=status or row.status,
        created_at=stamp_or_nothing(spec.created_at),
        started_at=stamp_or_nothing(row.started_at),
        last_active_at=stamp_or_nothing(row.last_active_at),
        cwd=spec.cwd,
        active_session_ids=row.sessions,
        metadata=_agent_metadata(spec, row),
        session_id=session_id,
    )


def _agent_metadata(spec: AgentSpec, row: AgentRow) -> JsonObject:
    metadata = read_object(spec.metadata)
    named = {"model": spec.model, "provider": spec.provider, "profile": spec.profile}
    metadata.update((key, value) for key, value in named.items() if value)
    metadata["unattendedAllow"] = spec.unattended_allow
    metadata["unattendedDeny"] = spec.unattended_deny
    if row.error:
        metadata["error"] = row.error
    if row.recovered:
        metadata["recovered"] = True
    if row.env_lost:
        metadata["recovery"] = {"envLost": True}
    return metadata


def session_summary(row: SessionRow, attachments: tuple[str, ...]) -> SessionSummary:
    """Return a session as the lists show it."""
    spec = row.spec
    metadata = read_object(spec.metadata)
    if row.recovered:
        metadata["recovered"] = True
    closed = row.state != "open"
    return SessionSummary(
        session_id=spec.session_id,
        agent_id=spec.agent_id,
        status="closed" if closed else row.status,
        created_at=stamp_or_nothing(spec.created_at),
        cwd=spec.cwd,
        metadata=metadata,
        active_attachment_ids=attachments,
        last_sequence=row.last_sequence,
        closed_at=stamp_or_nothing(row.closed_at) if closed else "",
    )
