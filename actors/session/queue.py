"""The messages of a session whose turns have not begun: in order, each begun once; pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roost.schemas.base import MessageId
    from roost.schemas.turn import QueuedMessage

REMEMBERED = 1024
PARTIAL_PULL = 4 * 1024 * 1024


class Queue:
    """Queued messages. The store may tell of one again after it has begun here; it is known by its id."""

    def __init__(self) -> None:
        self.may_be_partial = False
        self._waiting: OrderedDict[MessageId, QueuedMessage] = OrderedDict()
        self._begun: deque[MessageId] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: QueuedMessage) -> None:
        """Take a message unless it is known."""
        if message.message_id not in self._begun:
            self._waiting.setdefault(message.message_id, message)

    def replace(self, messages: Iterable[QueuedMessage]) -> None:
        """Take what the store says is waiting; what it does not name has been withdrawn."""
        self._waiting.clear()
        size = 0
        for message in messages:
            size += len(message.text) + len(message.metadata)
            self.add(message)
        self.may_be_partial = size >= PARTIAL_PULL

    def withdraw(self, message_id: MessageId) -> None:
        """Drop a message; one that is not there is ignored."""
        self._waiting.pop(message_id, None)

    def clear(self) -> None:
        """Drop all."""
        self._waiting.clear()
        self.may_be_partial = False

    def begin(self) -> QueuedMessage:
        """Take out the oldest message for its turn."""
        message_id, message = self._waiting.popitem(last=False)
        self._begun.append(message_id)
        return message
