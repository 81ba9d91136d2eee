"""The messages of a session whose turns have not begun: in order, each begun once; pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roost.schemas.base import MessageId
    from roost.schemas.turn import QueuedMessage

REMEMBERED = 1024
PARTIAL_PULL = 4 * 1024 * 1024


class Waiting(NamedTuple):
    """A message, and when it came by the clock of the queue."""

    message: QueuedMessage
    since: float


class Queue:
    """Queued messages. The store may tell of one again after it has begun here; it is known by its id."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.may_be_partial = False
        self._now = now
        self._waiting: OrderedDict[MessageId, Waiting] = OrderedDict()
        self._begun: deque[MessageId] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: QueuedMessage) -> None:
        """Take a message unless it is known."""
        if message.message_id not in self._begun:
            self._waiting.setdefault(message.message_id, Waiting(message, self._now()))

    def replace(self, messages: Iterable[QueuedMessage]) -> None:
        """Take what the store says is waiting; what it does not name has been withdrawn."""
        known, self._waiting = self._waiting, OrderedDict()
        size = 0
        for message in messages:
            size += len(message.text) + len(message.metadata)
            waiting = known.get(message.message_id)
            if waiting is None:
                self.add(message)
            else:
                self._waiting[message.message_id] = waiting
        self.may_be_partial = size >= PARTIAL_PULL

    def withdraw(self, message_id: MessageId) -> None:
        """Drop a message; one that is not there is ignored."""
        self._waiting.pop(message_id, None)

    def clear(self) -> None:
        """Drop all."""
        self._waiting.clear()
        self.may_be_partial = False

    def begin(self) -> Waiting:
        """Take out the oldest message for its turn."""
        message_id, waiting = self._waiting.popitem(last=False)
        self._begun.append(message_id)
        return waiting
