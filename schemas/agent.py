"""Agents and runs: their records, and what is asked of the store about them."""

from __future__ import annotations

from typing import Literal

from roost.schemas.base import AgentId, Message, SessionId
from roost.schemas.session import SessionRow, SessionSpec
from roost.schemas.turn import Accepted, AcceptMessage

AgentStatus = Literal["idle", "running", "stopping", "stopped", "error"]


class AgentSpec(Message, frozen=True, kw_only=True, tag="agent.spec"):
    """What an agent was created with; never changes. `metadata` is a JSON object, `env` is not part of it."""

    agent_id: AgentId
    created_at: int
    cwd: str
    scratch: bool = False
    objective: str = ""
    provider: str = ""
    model: str = ""
    profile: str = ""
    sandbox: str = ""
    unattended: bool = False
    unattended_allow: tuple[str, ...] = ()
    unattended_deny: tuple[str, ...] = ()
    metadata: bytes = b"{}"


class AgentRow(Message, frozen=True, kw_only=True, tag="agent.row"):
    """An agent as the store knows it. Times are milliseconds since 1970, 0 where there is none.

    `asleep` means that it has no process on purpose; `cancelled` that `run.cancel` ended it; `env_lost` that it was
    created with environment overrides that a restart of the daemon has forgotten.
    """

    spec: AgentSpec
    status: AgentStatus
    started_at: int = 0
    last_active_at: int = 0
    ended_at: int = 0
    asleep: bool = False
    cancelled: bool = False
    recovered: bool = False
    env_lost: bool = False
    error: str = ""
    sessions: tuple[SessionId, ...] = ()


class CreateAgent(Message, frozen=True, kw_only=True, tag="agent.create"):
    """Call front → store: record agent, first session and first message in one transaction; idempotent by the ids.

    Answered with `AgentCreated`.
    """

    spec: AgentSpec
    session: SessionSpec
    message: AcceptMessage | None = None
    has_env: bool = False


class AgentCreated(Message, frozen=True, kw_only=True, tag="agent.created"):
    """The answer to `CreateAgent`."""

    agent: AgentRow
    session: SessionRow
    message: Accepted | None = None


class GetAgent(Message, frozen=True, kw_only=True, tag="agent.get"):
    """Call front → store; answered with `AgentRow` (its `sessions` are the live ones, oldest first) or refused."""

    agent_id: AgentId


class ListAgents(Message, frozen=True, kw_only=True, tag="agent.list"):
    """Call front → store: agents by (created_at, agent_id), strictly after `after`; `ended` includes ended ones.

    `after` is ("", "") for the start; its first member is the decimal creation time, or empty to start after a bare id.
    """

    limit: int
    after: tuple[str, str] = ("", "")
    ended: bool = False


class Agents(Message, frozen=True, kw_only=True, tag="agent.agents"):
    """The answer to `ListAgents`; `more` says whether there are further ones."""

    agents: tuple[AgentRow, ...]
    more: bool = False


class EndAgent(Message, frozen=True, kw_only=True, tag="agent.end"):
    """Call front → store: mark an agent `stopping` and its sessions `closing`.

    Its open turns get `cancellation.requested`, queued messages end `interrupted`. Answered with `AgentEnding`.

    `cancel` is `run.cancel`: the record says `cancelled`, which no later status overwrites.
    """

    agent_id: AgentId
    reason: str
    cancel: bool = False


class AgentEnding(Message, frozen=True, kw_only=True, tag="agent.ending"):
    """The answer to `EndAgent`; `already` if it had ended, or was ending, before."""

    already: bool
    live: bool = False


class FinishAgent(Message, frozen=True, kw_only=True, tag="agent.finish"):
    """Call front → store, once no process of the agent runs: close what is open and mark it `stopped`; idempotent.

    Answered with `AgentRow`.
    """

    agent_id: AgentId


class AgentChanged(Message, frozen=True, kw_only=True, tag="agent.changed"):
    """Store → front: an agent's status changed without an event that says so (stopped, given up, woken)."""

    agent_id: AgentId
    status: AgentStatus
    message: str = ""
    sessions: tuple[SessionId, ...] = ()


class Hello(Message, frozen=True, kw_only=True, tag="agent.hello"):
    """Call agent → store on every new link: who is there. Answered with `Welcome`."""

    agent_id: AgentId
    generation: int


class Welcome(Message, frozen=True, kw_only=True, tag="agent.welcome"):
    """The answer to `Hello`: the agent's record, and its live sessions that have something to do.

    `grants` are the keys approved for the whole agent.
    """

    agent: AgentRow
    sessions: tuple[SessionId, ...]
    grants: tuple[str, ...] = ()


class Sleep(Message, frozen=True, kw_only=True, tag="agent.sleep"):
    """Call agent → store: may I end for idleness? `Done` marks it asleep; refused while its inbox is not empty."""

    agent_id: AgentId
    generation: int
