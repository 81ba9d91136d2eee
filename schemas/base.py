"""Ids, time stamps, and the base of every message between processes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NewType

import msgspec

AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
TurnId = NewType("TurnId", str)
CallId = NewType("CallId", str)
EventId = NewType("EventId", str)


class Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    array_like=True,
    tag_field="$tag",
    forbid_unknown_fields=True,
):
    """Base of everything processes say to each other; written as a MessagePack array behind its tag."""


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The answer to a call that was not carried out.

    `code` is one of `roost.schemas.errors.ErrorCode`; `data` is a JSON object of further members, or empty.
    """

    code: str
    message: str
    data: bytes = b""
    retryable: bool = False


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """The answer to a call that has nothing more to say."""


def iso_time(milliseconds: int) -> str:
    """Return milliseconds since 1970 as ISO 8601 in UTC with milliseconds and `Z` (P 1)."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
