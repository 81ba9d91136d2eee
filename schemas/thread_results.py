"""The thread door: threads, turns, items and what requests are answered with (T 2, 3). What is absent is left out."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

ThreadStatus = Literal["idle", "running", "archived"]
TurnStatus = Literal["queued", "running", "completed", "failed", "interrupted"]
ItemStatus = Literal["queued", "inProgress", "completed", "failed", "interrupted"]
ItemType = Literal[
    "userMessage",
    "agentMessage",
    "toolCall",
    "approvalRequest",
    "approvalResolved",
    "memoryCompact",
    "subRun",
    "handoff",
    "runStatus",
]
ActiveFlag = Literal["waitingOnApproval", "waitingOnUserInput", "cancelling"]


class Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what clients get; an optional member is `UNSET` and then left out."""


class InputText(Shown, frozen=True, kw_only=True):
    """A piece of what a person said."""

    text: str


class TokenUsage(Shown, frozen=True, kw_only=True):
    """Tokens of a turn."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class TurnError(Shown, frozen=True, kw_only=True):
    """Why a turn failed."""

    message: str
    code: str | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET


class AppThread(Shown, frozen=True, kw_only=True):
    """A thread. `active_turn_id` is there if its status is `running`; the last three members are additions."""

    id: str
    title: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    status: ThreadStatus
    archived: bool
    ephemeral: bool
    created_at_ms: int
    updated_at_ms: int
    active_turn_id: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    active_flags: tuple[ActiveFlag, ...] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class AppTurn(Shown, frozen=True, kw_only=True):
    """A turn; `run_id` is its own id. `truncated`: it is longer than the client's line, and its texts are cut."""

    id: str
    thread_id: str
    run_id: str
    status: TurnStatus
    input: tuple[InputText, ...]
    started_at_ms: int | UnsetType = UNSET
    completed_at_ms: int | UnsetType = UNSET
    token_usage: TokenUsage | UnsetType = UNSET
    model: str | UnsetType = UNSET
    error: TurnError | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class AppItem(Shown, frozen=True, kw_only=True):
    """An item; of an `agentMessage` the text is also at the top. `truncated` as of a turn."""

    id: str
    run_event_id: str
    type: ItemType
    status: ItemStatus
    created_at_ms: int
    completed_at_ms: int | UnsetType = UNSET
    content: object = UNSET
    turn_id: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class AppModelInfo(Shown, frozen=True, kw_only=True):
    """A model."""

    id: str
    provider: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    context_length: int | UnsetType = UNSET
    supports_tools: bool


class ServerInfo(Shown, frozen=True, kw_only=True):
    """Who answers."""

    name: str
    version: str


class AppServerCapabilities(Shown, frozen=True, kw_only=True):
    """What is served; the last three members are additions."""

    thread: bool
    turn: bool
    item_stream: bool
    approval_requests: bool
    event_replay: bool
    schema_export: bool
    turn_steer: bool
    model_list: bool
    thread_status: bool


class InitializeResponse(Shown, frozen=True, kw_only=True):
    """The result of `initialize`; `user_agent` is what Codex-style clients look for."""

    server_info: ServerInfo
    protocol_version: str
    supported_transports: tuple[str, ...]
    capabilities: AppServerCapabilities
    user_agent: str


class Empty(Shown, frozen=True, kw_only=True):
    """The result of `thread/archive`, `turn/interrupt` and `initialized`."""


class ThreadStartResponse(Shown, frozen=True, kw_only=True):
    """The result of `thread/start`."""

    thread: AppThread


class ItemsResponse(Shown, frozen=True, kw_only=True):
    """What `thread/resume` and `thread/read` have in common.

    All that was stored up to `as_of_sequence` is in it, or comes with the next page. `cursor` names the last item before
    the first that may still change.
    """

    thread: AppThread
    items: tuple[AppItem, ...]
    active_turn: AppTurn | UnsetType = UNSET
    as_of_sequence: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class ThreadResumeResponse(ItemsResponse, frozen=True, kw_only=True):
    """The result of `thread/resume`."""


class ThreadReadResponse(ItemsResponse, frozen=True, kw_only=True):
    """The result of `thread/read`; `reset` says that the cursor was not found."""

    reset: bool | UnsetType = UNSET


class ThreadListResponse(Shown, frozen=True, kw_only=True):
    """The result of `thread/list`; `total` counts what the filter lets through."""

    threads: tuple[AppThread, ...]
    total: int | UnsetType = UNSET


class ThreadUnsubscribeResponse(Shown, frozen=True, kw_only=True):
    """The result of `thread/unsubscribe`."""

    thread_id: str
    subscribed: bool


class TurnStartResponse(Shown, frozen=True, kw_only=True):
    """The result of `turn/start`."""

    turn: AppTurn


class TurnSteerResponse(Shown, frozen=True, kw_only=True):
    """The result of `turn/steer`; the last two members are additions."""

    turn: AppTurn
    turn_id: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET


class ApprovalResolveResponse(Shown, frozen=True, kw_only=True):
    """The result of `approval/resolve`."""

    already_resolved: bool | UnsetType = UNSET


class ModelListResponse(Shown, frozen=True, kw_only=True):
    """The result of `model/list`; `truncated`: there are more than fit into the client's line."""

    models: tuple[AppModelInfo, ...]
    truncated: bool | UnsetType = UNSET


class SchemaExportResponse(Shown, frozen=True, kw_only=True):
    """The result of `schema/export`: texts by name."""

    json_schema: dict[str, str]
    typescript: dict[str, str]


RESULTS: dict[str, type[Shown]] = {
    "initialize": InitializeResponse,
    "thread/start": ThreadStartResponse,
    "thread/resume": ThreadResumeResponse,
    "thread/read": ThreadReadResponse,
    "thread/list": ThreadListResponse,
    "thread/archive": Empty,
    "turn/start": TurnStartResponse,
    "turn/interrupt": Empty,
    "turn/steer": TurnSteerResponse,
    "approval/resolve": ApprovalResolveResponse,
    "model/list": ModelListResponse,
    "schema/export": SchemaExportResponse,
    "initialized": Empty,
    "thread/unsubscribe": ThreadUnsubscribeResponse,
}
"""What each request is answered with."""
