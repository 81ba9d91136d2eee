"""What the store tells the front after a commit."""

from __future__ import annotations

from roost.schemas.agent import AgentChanged
from roost.schemas.base import Message
from roost.schemas.session import (
    EventBatch,
    MessageChanged,
    PendingChanged,
    SessionChanged,
    SessionCleared,
    SessionDropped,
)

PublishedItem = (
    EventBatch
    | MessageChanged
    | PendingChanged
    | SessionChanged
    | SessionCleared
    | SessionDropped
    | AgentChanged
)


class Published(Message, frozen=True, kw_only=True, tag="published"):
    """Cast store → front: one commit, or a part of it, in order."""

    items: tuple[PublishedItem, ...]
