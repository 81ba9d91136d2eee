"""Find agents and sessions by what a user types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.client.errors import ClientError
from roost.actors.client.replies import Agent, Agents, Session, Sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.client.connection import Connection

AGENT_PAGE = 500
SESSION_PAGE = 100
MAX_PAGES = 1_000


async def list_agents(connection: Connection) -> list[Agent]:
    """Return all agents, the oldest first."""
    found: list[Agent] = []
    params: dict[str, object] = {"limit": AGENT_PAGE}
    for _ in range(MAX_PAGES):
        page = await connection.call("agent.list", params, Agents)
        found += page.agents
        if page.next_cursor is None:
            break
        params["cursor"] = page.next_cursor
    return sorted(found, key=lambda agent: (agent.created_at, agent.agent_id))


async def list_sessions(connection: Connection, agent_id: str = "") -> list[Session]:
    """Return all sessions, or those of one agent, the oldest first."""
    found: list[Session] = []
    params: dict[str, object] = {"limit": SESSION_PAGE}
    if agent_id:
        params["agentId"] = agent_id
    for _ in range(MAX_PAGES):
        page = await connection.call("session.list", params, Sessions)
        found += page.sessions
        if page.next_cursor is None:
            break
        params["cursor"] = page.next_cursor
    return sorted(found, key=lambda session: (session.created_at, session.session_id))


def match_id(text: str, ids: Sequence[str], what: str) -> str | None:
    """Return the id that is, begins with or ends with the text, with or without its kind (`agent_`), or None.

    Raises:
        ClientError: several do.
    """
    if text in ids:
        return text
    found = [
        name
        for name in ids
        if name.startswith(text) or name.endswith(text) or name.partition("_")[2].startswith(text)
    ]
    if len(found) > 1:
        raise ClientError(f"{text!r} fits {len(found)} {what}s; type more of the id")
    return found[0] if found else None


async def find_agent(connection: Connection, text: str) -> Agent:
    """Return the agent with this id, or beginning or end of one; without a text, the newest.

    Raises:
        ClientError: there is none, or there are several.
    """
    agents = await list_agents(connection)
    if not text:
        if not agents:
            raise ClientError('there is no agent; start one with `roost run "…"`')
        return agents[-1]
    agent_id = match_id(text, [agent.agent_id for agent in agents], "agent")
    for agent in agents:
        if agent.agent_id == agent_id:
            return agent
    raise ClientError(f"there is no agent {text!r}; `roost ps` lists them")


async def find_session(connection: Connection, text: str) -> Session:
    """Return the session with this id (or part of one), or the newest open session of the agent that the text names.

    Raises:
        ClientError: there is none, or there are several.
    """
    if text:
        sessions = await list_sessions(connection)
        session_id = match_id(text, [session.session_id for session in sessions], "session")
        for session in sessions:
            if session.session_id == session_id:
                return session
    agent = await find_agent(connection, text)
    own = [s for s in await list_sessions(connection, agent.agent_id) if s.status != "closed"]
    if not own:
        raise ClientError(f"agent {agent.agent_id} has no open session")
    return own[-1]
