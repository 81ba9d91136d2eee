"""The daemon door: params, results and notifications as clients see them (P 6, 7).

Params are strict. An empty text, list or object stands for an absent optional member where that makes no difference,
`UNSET` where it does. Results and notifications leave out what has its default.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from roost.schemas.agent import AgentStatus
from roost.schemas.session import SessionStatus

PROTOCOL_VERSION = "1.0.0"

Name = Annotated[str, Meta(pattern=r"\S")]
"""A text that must be there and not be blank."""
Given = Annotated[str, Meta(min_length=1)]
"""A text that may be absent, but not empty."""
Limit = Annotated[int, Meta(ge=1)]
JsonObject = dict[str, object]
RunStatus = Literal[
    "pending",
    "running",
    "working",
    "paused",
    "blocked",
    "suspended",
    "completed",
    "errored",
    "stopped",
]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of the params of every method."""


class Nothing(Params, frozen=True, kw_only=True):
    """The params of a method that has none."""


class ProtocolInfo(Params, frozen=True, kw_only=True):
    """A protocol version as an object."""

    version: Name


class Initialize(Params, frozen=True, kw_only=True):
    """`initialize`."""

    protocol_version: Given = ""
    protocol: ProtocolInfo | UnsetType = UNSET
    client_name: Given = ""
    auth_cookie: Given = ""
    capabilities: JsonObject = {}


class RequestCancel(Params, frozen=True, kw_only=True):
    """`request.cancel`."""

    request_id: Name | int
    reason: str | UnsetType = UNSET


class AgentCreate(Params, frozen=True, kw_only=True):
    """`agent.create`; the last two members are not in the published schema, clients send them."""

    objective: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    model: str = ""
    provider: str = ""
    profile: str = ""
    unattended_allow: list[Given] = []
    unattended_deny: list[Given] = []
    metadata: JsonObject = {}
    env_overrides: dict[str, str] = {}
    initial_content: list[object] | UnsetType = UNSET
    permission_mode: str = ""


class AgentList(Params, frozen=True, kw_only=True):
    """`agent.list`."""

    cursor: str = ""
    limit: Limit = 100


class AgentAttach(Params, frozen=True, kw_only=True):
    """`agent.attach`."""

    agent_id: Name
    client_id: Given = ""


class AgentStop(Params, frozen=True, kw_only=True):
    """`agent.stop`."""

    agent_id: Name
    reason: str = ""


class AgentLogs(Params, frozen=True, kw_only=True):
    """`agent.logs`."""

    agent_id: Name


class RunCancel(Params, frozen=True, kw_only=True):
    """`run.cancel`."""

    run_id: Name
    reason: str = ""


class SessionCreate(Params, frozen=True, kw_only=True):
    """`session.create`."""

    agent_id: str = ""
    cwd: str | UnsetType = UNSET
    initial_prompt: str = ""
    metadata: JsonObject = {}


class SessionList(Params, frozen=True, kw_only=True):
    """`session.list`."""

    agent_id: str = ""
    cursor: str = ""
    limit: Limit = 50


class SessionAttach(Params, frozen=True, kw_only=True):
    """`session.attach`."""

    session_id: Name
    client_id: Given = ""


class SessionDetach(Params, frozen=True, kw_only=True):
    """`session.detach`."""

    session_id: Name
    attachment_id: Given = ""
    client_id: Given = ""


class SessionTerminate(Params, frozen=True, kw_only=True):
    """`session.terminate`."""

    session_id: Name
    reason: str = ""


class SessionCancelTurn(Params, frozen=True, kw_only=True):
    """`session.cancelTurn`."""

    session_id: Name
    reason: str = ""


class TextBlock(Params, frozen=True, kw_only=True, rename=None):
    """A piece of a message."""

    type: Literal["text"]
    text: str


Content = Annotated[str, Meta(min_length=1)] | Annotated[list[TextBlock], Meta(min_length=1)]


class MessageSend(Params, frozen=True, kw_only=True):
    """`message.send`."""

    session_id: Name
    content: Content
    client_message_id: Given = ""
    metadata: JsonObject = {}


class MessageStream(MessageSend, frozen=True, kw_only=True):
    """`message.stream`."""

    stream_id: Given = ""


class ToolApprove(Params, frozen=True, kw_only=True):
    """`tool.approve`."""

    session_id: Name
    request_id: Name
    scope: Literal["once", "session", "agent"] = "once"


class ToolDeny(Params, frozen=True, kw_only=True):
    """`tool.deny`."""

    session_id: Name
    request_id: Name
    reason: str = ""


class ElicitationRespond(Params, frozen=True, kw_only=True):
    """`elicitation.respond`."""

    session_id: Name
    request_id: Name | int
    kind: Literal["request_user_input", "mcp"]
    server_name: Given = ""
    response: JsonObject


class QuestionAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was answered to one question."""

    answers: list[str]


class QuestionAnswers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `response` to questions, by question id."""

    answers: dict[str, QuestionAnswer]


class PermissionList(Params, frozen=True, kw_only=True):
    """`permission.list`."""

    agent_id: Given = ""
    session_id: Given = ""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of results; a member that has its default is left out."""


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
    """The result of `tool.approve` and `tool.deny`."""

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
    """One process of the daemon in the result of `health.stats`."""

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


class Stats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `health.stats`."""

    uptime_ms: int
    now: str
    sessions: dict[str, int]
    memory: dict[str, int]
    state: JsonObject
    version: str
    connections: dict[str, int]
    tree: list[StatsNode]


class EventParams(Result, frozen=True, kw_only=True):
    """What every `event.*` notification has; without a stored event there is no `sequence`."""

    session_id: str
    event_id: str
    agent_id: str
    sequence: int | UnsetType = UNSET
    accepted_at: str = ""
    metadata: JsonObject = {}


class MessageChunk(EventParams, frozen=True, kw_only=True):
    """`event.message_chunk`."""

    message_id: str = ""
    stream_id: str = ""
    delta: str


class ToolRequest(EventParams, frozen=True, kw_only=True):
    """`event.tool_request`."""

    request_id: str
    tool_name: str
    turn_id: str = ""
    input: JsonObject | UnsetType = UNSET


class PermissionRequest(EventParams, frozen=True, kw_only=True):
    """`event.permission_request`."""

    request_id: str
    tool_name: str
    turn_id: str = ""
    permissions: tuple[str, ...]
    input: object = UNSET
    reason: str = ""


class UserInputRequest(EventParams, frozen=True, kw_only=True):
    """`event.user_input_request`."""

    request_id: str
    call_id: str
    turn_id: str
    questions: list[object]


class AgentStatusEvent(EventParams, frozen=True, kw_only=True):
    """`event.agent_status`."""

    status: AgentStatus
    run_status: RunStatus
    turn_id: str = ""
    message: str = ""


class SessionEvent(EventParams, frozen=True, kw_only=True):
    """`event.session_event`."""

    event: InnerEvent


class InnerEvent(Result, frozen=True, kw_only=True):
    """What an `event.session_event` is about."""

    id: str
    type: str
    message_id: str = ""
    stream_id: str = ""
    accepted_at: str = ""
    payload: JsonObject = {}
