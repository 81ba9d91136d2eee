"""Approvals and questions: what waits for a person, and decisions."""

from __future__ import annotations

from typing import Literal

from roost.schemas.base import CallId, Message, SessionId, TurnId

PendingKind = Literal["approval", "question"]
PendingState = Literal[
    "open", "approved", "denied", "cancelled", "answered", "unavailable", "timeout"
]
Scope = Literal["once", "session", "agent"]


class PendingRow(Message, frozen=True, kw_only=True, tag="approval.pending"):
    """Something that waits, or waited, for a person.

    `request_id` is the tool call's id. `body` is JSON: of an approval `{"input": {…}, "permissions": [risk],
    "reason"?: text, "sandbox"?: policy}`, of a question `{"questions": [...]}`. `grant_keys` are what a scope wider than `once` covers. `event_id` is
    the id of the event that asked, empty for a question. `answer` is the JSON of a question's answer.
    """

    request_id: CallId
    kind: PendingKind
    turn_id: TurnId
    tool_name: str
    body: bytes
    opened_at: int
    state: PendingState = "open"
    event_id: str = ""
    sequence: int = 0
    risk: str = ""
    grant_keys: tuple[str, ...] = ()
    scope: Scope = "once"
    by: str = ""
    reason: str = ""
    answer: bytes = b""
    settled_at: int = 0


class Settle(Message, frozen=True, kw_only=True, tag="approval.settle"):
    """Call front → store: a client's decision or answer. Answered with `PendingRow` as it is then.

    Refused `INVALID_ARGUMENT` when nothing is pending under that id, `AGENT_NOT_FOUND` for an unknown or closed session.
    """

    session_id: SessionId
    request_id: str
    kind: PendingKind
    state: Literal["approved", "denied", "cancelled", "answered"]
    scope: Scope = "once"
    reason: str = ""
    by: str = ""
    answer: bytes = b""


class Permission(Message, frozen=True, kw_only=True, tag="approval.permission"):
    """One rule in force (P 6.30). `granted_at` is 0 where it is not known."""

    permission_id: str
    subject: str
    action: str
    scope: str = ""
    granted_at: int = 0


class ListPermissions(Message, frozen=True, kw_only=True, tag="approval.list"):
    """Call front → store: the rules in force; answered with `Permissions`."""

    agent_id: str = ""
    session_id: str = ""


class Permissions(Message, frozen=True, kw_only=True, tag="approval.permissions"):
    """The answer to `ListPermissions`."""

    permissions: tuple[Permission, ...]
