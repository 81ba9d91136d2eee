"""The daemon door: results of its methods as clients see them (P 6). A member that has its default is left out."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from roost.schemas.agent import AgentStatus
from roost.schemas.daemon import JsonObject
from roost.schemas.session import SessionStatus


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of results; a member that has its default is left out."""


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of what `fs.fuzzy_search` returns; its names are written with underscores, alone among all."""

    root: str
    path: str
    match_type: Literal["file", "directory"]
    file_name: str
    score: int
    indices: tuple[int, ...]


class FoundFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `fs.fuzzy_search`."""

    files: list[FoundFile]


class Initialized(Result, frozen=True, kw_only=True):
    """The result of `initialize`."""

    type: str
    protocol_version: str
    protocol: dict[str, str]
    capabilities: JsonObject
    daemon_identity: JsonObject


class CancelResult(Result, frozen=True, kw_only=True):
    """The result of `request.cancel`."""

    request_id: str | int
    cancelled: bool
    reason: str | UnsetType = UNSET


class AgentSummary(Result, frozen=True, kw_only=True):
    """An agent."""

    agent_id: str
    agent_path: str
    objective: str = ""
    status: AgentStatus
    created_at: str
    started_at: str = ""
    last_active_at: str = ""
    cwd: str = ""
    active_session_ids: tuple[str, ...] = ()
    metadata: JsonObject
    session_id: str = ""


class AgentListResult(Result, frozen=True, kw_only=True):
    """The result of `agent.list`."""

    agents: list[AgentSummary]
    next_cursor: str = ""


class SessionSummary(Result, frozen=True, kw_only=True):
    """A session."""

    session_id: str
    agent_id: str
    status: SessionStatus
    created_at: str
    cwd: str = ""
    metadata: JsonObject
    active_attachment_ids: tuple[str, ...] = ()
    last_sequence: int = 0
    closed_at: str = ""


class SessionListResult(Result, frozen=True, kw_only=True):
    """The result of `session.list`."""

    sessions: list[SessionSummary]
    next_cursor: str = ""


class Attached(Result, frozen=True, kw_only=True):
    """The result of `session.attach`; the last four members say where its events begin."""

    session_id: str
    attachment_id: str
    attached_at: str
    client_id: str = ""
    active_attachment_ids: tuple[str, ...]
    epoch: str
    last_sequence: int
    first_sequence: int
    resumed_after: int


class AgentAttached(Result, frozen=True, kw_only=True):
    """The result of `agent.attach`; the last four members are about the first of the sessions."""

    agent_id: str
    attachment_id: str
    session_ids: tuple[str, ...]
    runtime_session_id: str
    sessions: list[SessionSummary]
    epoch: str
    last_sequence: int
    first_sequence: int
    resumed_after: int


class Detached(Result, frozen=True, kw_only=True):
    """The result of `session.detach`."""

    session_id: str
    detached: bool
    attachment_id: str = ""
    remaining_attachment_ids: tuple[str, ...]


class Terminated(Result, frozen=True, kw_only=True):
    """The result of `session.terminate`."""

    session_id: str
    terminated: bool
    status: str
    closed_at: str
    reason: str = ""


class TurnCancelResult(Result, frozen=True, kw_only=True):
    """The result of `session.cancelTurn`."""

    session_id: str
    cancelled: bool
    reason: str


class HistoryCleared(Result, frozen=True, kw_only=True):
    """The result of `session.clear`."""

    session_id: str
    cleared: bool
    cleared_at: str


class AgentStopped(Result, frozen=True, kw_only=True):
    """The result of `agent.stop`."""

    agent_id: str
    stopped: bool


class RunCancelled(Result, frozen=True, kw_only=True):
    """The result of `run.cancel`."""

    run_id: str
    already_terminal: bool
    cancelled_run_ids: tuple[str, ...]
    closed_edge_child_ids: tuple[str, ...]
    interrupted_live_agent_ids: tuple[str, ...]
    voided_holds: int


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended, as an exit status: 0, 1 (failed) or 130 (interrupted)."""

    code: int
    message: str


class MessageDone(Result, frozen=True, kw_only=True):
    """The result of `message.send` and `message.stream`."""

    message_id: str
    accepted_at: str
    stream_id: str = ""
    turn_id: str = ""
    outcome: str
    disposition: Literal["started", "duplicate"]
    duplicate: bool = False
    duplicate_state: str = ""
    terminal: Terminal


class Decided(Result, frozen=True, kw_only=True):
    """The result of `tool.approve`, `tool.deny` and `tool.cancel`."""

    request_id: str
    decision: Literal["approved", "denied", "cancelled"]


class Answered(Result, frozen=True, kw_only=True):
    """The result of `elicitation.respond`."""

    request_id: str | int
    resolved: bool


class PermissionRule(Result, frozen=True, kw_only=True):
    """One rule in force."""

    permission_id: str
    subject: str
    action: str
    scope: str = ""
    granted_at: str = ""


class PermissionListResult(Result, frozen=True, kw_only=True):
    """The result of `permission.list`."""

    permissions: list[PermissionRule]


class TokenTotals(Result, frozen=True, kw_only=True):
    """What a session has used."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cost_usd: float


class CacheStats(Result, frozen=True, kw_only=True):
    """How much of the input the providers knew already; `hit_rate` is null where none of them says."""

    request_count: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    cache_total_input_tokens: int
    hit_rate: float | None


class SnapshotResult(Result, frozen=True, kw_only=True):
    """The result of `session.snapshot`."""

    session_id: str
    turn_count: int
    token_usage: TokenTotals
    cache_stats: CacheStats


class TranscriptMessage(Result, frozen=True, kw_only=True):
    """One text in the result of `session.transcript`."""

    role: Literal["user", "assistant"]
    text: str
    message_id: str = ""
    sequence: int
    committed_at: str


class TranscriptResult(Result, frozen=True, kw_only=True):
    """The result of `session.transcript`: what was said up to the event `as_of_sequence`."""

    session_id: str
    messages: list[TranscriptMessage]
    as_of_sequence: int
    epoch: str
    truncated: bool = False


class SessionTranscript(Result, frozen=True, kw_only=True):
    """One session in the result of `agent.logs`."""

    session_id: str
    item_count: int
    transcript: str
    source: str = ""


class ToolOutput(Result, frozen=True, kw_only=True):
    """One tool call in the result of `agent.logs`."""

    session_id: str
    tool_call_id: str
    tool_name: str
    status: str
    output: str
    output_bytes: int


class AgentLogsResult(Result, frozen=True, kw_only=True):
    """The result of `agent.logs`."""

    agent_id: str
    transcript: str
    sessions: list[SessionTranscript]
    tool_outputs: list[ToolOutput] = []


class StatsNode(Result, frozen=True, kw_only=True):
    """One process of the daemon in the result of `health.stats`.

    `silent_ms` is for how long it has not answered a ping, `mailbox` how many requests wait for it. An agent has open
    turns, messages that are queued, and requests that wait for a person.
    """

    child_id: str
    parent: str
    kind: str
    state: str
    pid: int
    generation: int
    restarts: int
    uptime_ms: int
    rss: int = -1
    cpu_seconds: float = -1.0
    working: bool
    last_error: str = ""
    silent_ms: int = 0
    mailbox: int = 0
    turns: int = 0
    queued: int = 0
    waiting: int = 0


class Stats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `health.stats`."""

    uptime_ms: int
    now: str
    sessions: dict[str, int]
    memory: dict[str, int]
    state: JsonObject
    version: str
    connections: dict[str, int]
    restarts: int
    sandbox: JsonObject
    tree: list[StatsNode]
