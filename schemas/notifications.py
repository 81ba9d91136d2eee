"""What the daemon tells its clients unasked: the params of every notification (P 7)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from roost.schemas.agent import AgentStatus
from roost.schemas.daemon import Given, JsonObject
from roost.schemas.results import Result

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


class EventParams(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every `event.*` notification has; without a stored event there is no `sequence`."""

    session_id: Given
    event_id: Given
    agent_id: Given = ""
    sequence: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    accepted_at: Given = ""
    metadata: JsonObject = {}


class MessageChunk(EventParams, frozen=True, kw_only=True):
    """`event.message_chunk`."""

    message_id: Given = ""
    stream_id: Given = ""
    delta: str


class ToolRequest(EventParams, frozen=True, kw_only=True):
    """`event.tool_request`."""

    request_id: Given
    tool_name: Given
    turn_id: Given = ""
    input: object = UNSET


class PermissionRequest(EventParams, frozen=True, kw_only=True):
    """`event.permission_request`."""

    request_id: Given
    tool_name: Given = ""
    turn_id: Given = ""
    permissions: tuple[Given, ...]
    input: object = UNSET
    reason: str = ""


class UserInputRequest(EventParams, frozen=True, kw_only=True):
    """`event.user_input_request`."""

    request_id: Given
    call_id: Given
    turn_id: Given
    questions: Annotated[list[JsonObject], Meta(min_length=1, max_length=3)]


class McpElicitationRequest(EventParams, frozen=True, kw_only=True):
    """`event.mcp_elicitation_request`."""

    request_id: Given | int
    server_name: Given
    turn_id: Given
    request: JsonObject


class AgentStatusEvent(EventParams, frozen=True, kw_only=True):
    """`event.agent_status`."""

    agent_id: Given  # pyright: ignore[reportGeneralTypeIssues] - only keywords, so the order of defaults is free
    status: AgentStatus
    run_status: RunStatus | UnsetType = UNSET
    turn_id: Given = ""
    message: str = ""


class InnerEvent(Result, frozen=True, kw_only=True):
    """What an `event.session_event` is about."""

    id: str
    type: str
    message_id: str = ""
    stream_id: str = ""
    accepted_at: str = ""
    payload: JsonObject = {}


class SessionEvent(EventParams, frozen=True, kw_only=True):
    """`event.session_event`."""

    event: Annotated[InnerEvent, Meta(extra_json_schema={"type": "object"})]
