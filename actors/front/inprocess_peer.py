"""The sending half of a connection inside the front's process: it hands over what is queued by callbacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from roost.actors.front.peer import Batch, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.config.model import Limits

_log = logging.getLogger(__name__)


class InProcessPeer(Peer):
    """The sending half: hands over what is queued in a later pass of the scheduler."""

    transport = "in-process"
    waits = False

    def __init__(
        self,
        limits: Limits,
        *,
        answered: Callable[[bytes], None],
        notified: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(
            answer_limit=limits.unsent_response_bytes, event_limit=limits.client_queue_bytes
        )
        self._answered = answered
        self._notified = notified
        self._ended = ended
        self._token = trio.lowlevel.current_trio_token()
        self._scheduled = False

    def wake(self) -> None:
        """Hand over soon."""
        if not self._scheduled:
            self._scheduled = True
            self._token.run_sync_soon(self._flush)

    def finish(self, code: int = 1000, reason: str = "") -> None:
        """Hand over what is queued and close."""
        self._hand_over(len(self._queue))
        self.end()

    def abort(self, reason: str) -> None:
        """Close now."""
        _log.info("a connection in this process is closed: %s", reason)
        self.end()

    def end(self) -> None:
        """Close now; what is queued is lost."""
        if not self.closed:
            self.forget()
            ended, self._ended = self._ended, _nothing
            # The owner has this one too: neither may outlive the other until a collection.
            self._answered = self._notified = _nobody
            ended()

    def _flush(self) -> None:
        self._scheduled = False
        # What is queued meanwhile has its turn in the next pass: a callback that asks again must not stop the others.
        self._hand_over(len(self._queue))
        if self._queue:
            self.wake()

    def _hand_over(self, count: int) -> None:
        for _ in range(count):
            if self.closed:
                return
            entry = self._queue.popleft()
            self._begun = (entry,)
            try:
                size = self._tell_owner(entry)
            except Exception:  # noqa: BLE001
                _log.exception("the owner of a connection in this process failed")
                self.abort("its owner failed")
                return
            self._begun = ()
            if not self.closed:
                self.took(size)

    def _tell_owner(self, entry: bytes | Batch) -> int:
        if isinstance(entry, bytes):
            self._answers -= len(entry)
            self._answered(entry)
            return len(entry)
        for line in entry.lines:
            if not self.closed:
                self._notified(line[:-1])
        return len(entry.joined)


class DeafPeer(InProcessPeer):
    """The sending half of who takes no notifications: no event is ever written to it."""

    hears = False

    def __init__(
        self, limits: Limits, *, answered: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        super().__init__(limits, answered=answered, notified=_nobody, ended=ended)
        self.lost = True

    @property
    def sent_total(self) -> int:
        """Less than any mark: what clients attach to after this one begins where it did."""
        return -1

    def tell(self, batch: Batch) -> None:
        """Drop events, and note from where on."""
        if batch.first:
            self._unwritten.setdefault(batch.session_id, batch.first)

    def first_unwritten(self, session_id: str) -> int:
        """Return the first event of a session that was dropped; 0 if there is none."""
        return self._unwritten.get(session_id, 0)


def _nobody(_line: bytes) -> None:
    pass


def _nothing() -> None:
    pass
