"""What the thread door tells its clients unasked: the params of every notification, and of its one request (T 4).

`sequence` is that of the stored event which caused the notification; what no event has caused has none.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from roost.schemas.thread import ApprovalDecision
from roost.schemas.thread_results import (
    ActiveFlag,
    AppItem,
    AppThread,
    AppTurn,
    Shown,
    ThreadStatus,
    TokenUsage,
)

WarningCode = Literal[
    "run_failed", "max_iterations", "event_stream", "slow_consumer", "shutting_down"
]


class Told(Shown, frozen=True, kw_only=True):
    """Base of the params of notifications."""

    sequence: int | UnsetType = UNSET


class ThreadStarted(Told, frozen=True, kw_only=True):
    """`thread/started`."""

    thread: AppThread


class ThreadArchived(Told, frozen=True, kw_only=True):
    """`thread/archived`."""

    thread_id: str


class ThreadStatusChanged(Told, frozen=True, kw_only=True):
    """`thread/status/changed`."""

    thread_id: str
    status: ThreadStatus
    active_turn_id: str | UnsetType = UNSET
    active_flags: tuple[ActiveFlag, ...] | UnsetType = UNSET


class ThreadClosed(Told, frozen=True, kw_only=True):
    """`thread/closed`: a thread that is not kept has been dropped."""

    thread_id: str
    reason: str | UnsetType = UNSET


class TurnStarted(Told, frozen=True, kw_only=True):
    """`turn/started`."""

    thread_id: str
    turn: AppTurn


class TurnCompleted(Told, frozen=True, kw_only=True):
    """`turn/completed`."""

    thread_id: str
    turn: AppTurn


class ItemStarted(Told, frozen=True, kw_only=True):
    """`item/started`."""

    thread_id: str
    turn_id: str
    item: AppItem


class ItemCompleted(Told, frozen=True, kw_only=True):
    """`item/completed`."""

    thread_id: str
    turn_id: str
    item: AppItem


class AgentMessageDelta(Told, frozen=True, kw_only=True):
    """`item/agentMessage/delta`."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ToolCallDelta(Told, frozen=True, kw_only=True):
    """`item/toolCall/delta`."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: object


class ApprovalRequestParams(Told, frozen=True, kw_only=True):
    """`approval/requested`, and the request `approval/request`; `truncated`: its arguments are longer than the line."""

    thread_id: str
    turn_id: str
    request_id: str
    tool_name: str
    preview: str
    choices: tuple[ApprovalDecision, ...] = ("allow", "deny")
    tool_call_id: str | UnsetType = UNSET
    arguments: object = UNSET
    risk: str | UnsetType = UNSET
    expires_at_ms: int | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class ApprovalResolved(Told, frozen=True, kw_only=True):
    """`approval/resolved`."""

    thread_id: str
    turn_id: str
    request_id: str
    decision: ApprovalDecision
    reason: str | UnsetType = UNSET


class ErrorWarning(Told, frozen=True, kw_only=True):
    """`error/warning`."""

    message: str
    code: WarningCode | UnsetType = UNSET
    thread_id: str | UnsetType = UNSET
    turn_id: str | UnsetType = UNSET


class TokenUsageUpdated(Told, frozen=True, kw_only=True):
    """`thread/tokenUsage/updated`, for clients with `experimentalApi` alone."""

    thread_id: str
    turn_id: str
    token_usage: TokenUsage


NOTIFICATIONS: dict[str, type[Told]] = {
    "thread/started": ThreadStarted,
    "thread/archived": ThreadArchived,
    "thread/status/changed": ThreadStatusChanged,
    "thread/closed": ThreadClosed,
    "turn/started": TurnStarted,
    "turn/completed": TurnCompleted,
    "item/started": ItemStarted,
    "item/agentMessage/delta": AgentMessageDelta,
    "item/toolCall/delta": ToolCallDelta,
    "item/completed": ItemCompleted,
    "approval/requested": ApprovalRequestParams,
    "approval/resolved": ApprovalResolved,
    "error/warning": ErrorWarning,
    "thread/tokenUsage/updated": TokenUsageUpdated,
}
"""Every notification with its params."""

METHODS: dict[type[Told], str] = {shape: name for name, shape in NOTIFICATIONS.items()}
REQUEST = "approval/request"
"""The one request to a client; its id is the `request_id` of its params."""
EXPERIMENTAL = frozenset(("thread/tokenUsage/updated",))
"""Notifications that only clients with `experimentalApi` get."""
