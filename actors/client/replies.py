"""What the command line reads out of the daemon's answers; members that it does not use are left out.

A newer daemon may say more, so unknown members are ignored.
"""

from __future__ import annotations

import msgspec


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every answer."""


class Nothing(Reply, frozen=True, kw_only=True):
    """An answer of which nothing is read."""


class Initialized(Reply, frozen=True, kw_only=True):
    """Answer to `initialize`."""

    protocol_version: str


class Pong(Reply, frozen=True, kw_only=True):
    """Answer to `health.ping`."""

    now: str


class Readiness(Reply, frozen=True, kw_only=True):
    """Answer to `health.ready`."""

    ready: bool


class SessionCounts(Reply, frozen=True, kw_only=True):
    """Sessions in `health.stats`."""

    active: int
    closed: int
    total: int


class Memory(Reply, frozen=True, kw_only=True):
    """Memory in `health.stats`."""

    rss: int


class TreeNode(Reply, frozen=True, kw_only=True):
    """One process of the supervision tree."""

    child_id: str
    parent: str = ""
    kind: str = ""
    state: str = ""
    pid: int = 0
    generation: int = 0
    restarts: int = 0
    uptime_ms: int = 0
    rss: int = -1
    cpu_seconds: float = -1.0
    working: bool = False
    last_error: str = ""
    silent_ms: int = 0
    mailbox: int = 0
    turns: int = 0
    queued: int = 0
    waiting: int = 0


class StoreFigures(Reply, frozen=True, kw_only=True):
    """What `health.stats` says of the store."""

    available: bool = True
    open_turns: int = 0
    pending_requests: int = 0
    queued_messages: int = 0
    in_flight_tool_calls: int = 0


class Stats(Reply, frozen=True, kw_only=True):
    """Answer to `health.stats`."""

    uptime_ms: int
    sessions: SessionCounts
    memory: Memory
    state: StoreFigures = StoreFigures()
    connections: dict[str, int] = {}
    restarts: int = 0
    sandbox: dict[str, object] = {}
    tree: tuple[TreeNode, ...] = ()


class Reloaded(Reply, frozen=True, kw_only=True):
    """Answer to `daemon.reload`."""

    config_reloaded_at: str
    changed: tuple[str, ...] = ()
    need_restart: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


class Agent(Reply, frozen=True, kw_only=True):
    """One agent of `agent.list`."""

    agent_id: str
    status: str
    created_at: str
    objective: str = ""
    last_active_at: str = ""
    cwd: str = ""
    active_session_ids: tuple[str, ...] = ()
    metadata: dict[str, object] = {}


class Created(Agent, frozen=True, kw_only=True):
    """Answer to `agent.create`."""

    session_id: str


class Agents(Reply, frozen=True, kw_only=True):
    """Answer to `agent.list`."""

    agents: tuple[Agent, ...]
    next_cursor: str | None = None


class Session(Reply, frozen=True, kw_only=True):
    """One session of `session.list`."""

    session_id: str
    agent_id: str
    status: str
    created_at: str
    cwd: str = ""
    active_attachment_ids: tuple[str, ...] = ()
    last_sequence: int | None = None
    metadata: dict[str, object] = {}


class Sessions(Reply, frozen=True, kw_only=True):
    """Answer to `session.list`."""

    sessions: tuple[Session, ...]
    next_cursor: str | None = None


class Attached(Reply, frozen=True, kw_only=True):
    """Answer to `session.attach`."""

    session_id: str
    attachment_id: str
    last_sequence: int = 0
    resumed_after: int = 0


class Terminal(Reply, frozen=True, kw_only=True):
    """How a turn ended, as an exit status."""

    code: int
    message: str = ""


class HistoryCleared(Reply, frozen=True, kw_only=True):
    """Answer to `session.clear`."""

    session_id: str
    cleared_at: str


class Sent(Reply, frozen=True, kw_only=True):
    """Answer to `message.send`, which comes when the turn has ended."""

    message_id: str
    outcome: str = ""
    turn_id: str = ""
    terminal: Terminal | None = None


class Cancelled(Reply, frozen=True, kw_only=True):
    """Answer to `session.cancelTurn`."""

    cancelled: bool


class Stopped(Reply, frozen=True, kw_only=True):
    """Answer to `agent.stop`."""

    stopped: bool


class Decided(Reply, frozen=True, kw_only=True):
    """Answer to `tool.approve` and `tool.deny`."""

    decision: str


class Logs(Reply, frozen=True, kw_only=True):
    """Answer to `agent.logs`."""

    transcript: str
