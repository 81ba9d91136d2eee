"""The sending half of a connection: one queue, in which order of queueing is order on the wire.

Answers and events are counted apart: answers that nobody reads close the connection, events wait in the log instead.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from roost.actors.front.frames import text_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEND_BYTES = 32 * 1024


class Batch:
    """Lines that go to many clients; joined once, shared by all that read lines.

    `first` is the sequence of the first event of the session in it; 0 if it holds none that count.
    """

    __slots__ = ("_framed", "first", "joined", "lines", "session_id")

    def __init__(self, lines: Sequence[bytes], *, session_id: str = "", first: int = 0) -> None:
        self.lines = lines
        self.session_id = session_id
        self.first = first
        self.joined = lines[0] if len(lines) == 1 else b"".join(lines)
        self._framed: Batch | None = None

    def framed(self) -> Batch:
        """Return the same events as WebSocket frames, which are made once for all."""
        if self._framed is None:
            frames = b"".join([text_frame(line[:-1]) for line in self.lines])
            self._framed = Batch((frames,), session_id=self.session_id, first=self.first)
        return self._framed


class Peer:
    """Base of the transports' sending halves. An entry of the queue is an answer (bytes) or events (a batch)."""

    transport = ""
    waits = True
    """Whether a short request too many waits; else it is refused as a long one is."""
    hears = True
    """Whether notifications reach the client."""

    def __init__(self, *, answer_limit: int, event_limit: int) -> None:
        self.closed = False
        self.lost = False
        """Whether something that was queued will never be written."""
        self.unsent = 0
        self.queued_total = 0
        self._answer_limit = answer_limit
        self._event_limit = event_limit
        self._answers = 0
        self._queue: deque[bytes | Batch] = deque()
        self._begun: Sequence[bytes | Batch] = ()
        """What has been taken out of the queue and not been sent whole."""
        self._unwritten: dict[str, int] = {}
        self._waiting_for_room: list[tuple[int, Callable[[], None]]] = []
        self._wake_at = 0
        self.on_sent: Callable[[], None] | None = None
        """Called whenever the transport has taken something."""

    def set_limits(self, answer_limit: int, event_limit: int) -> None:
        """Let so many bytes of answers and of events wait from now on."""
        self._answer_limit = answer_limit
        self._event_limit = event_limit

    @property
    def has_room(self) -> bool:
        """Whether events may be queued; answers always are."""
        return self.unsent < self._event_limit

    @property
    def sent_total(self) -> int:
        """How many of `queued_total` bytes the transport has taken."""
        return self.queued_total - self.unsent

    def answer(self, line: bytes) -> None:
        """Queue an answer; too many unread ones close the connection."""
        if self.closed:
            return
        size = len(line)
        self._answers += size
        if self._answers > self._answer_limit and self._answers > size:
            self.abort("its answers are not read")
            return
        self._queue.append(line)
        self.unsent += size
        self.queued_total += size
        self.wake()

    def tell(self, batch: Batch) -> None:
        """Queue events; who does so has looked at `has_room`."""
        if self.closed:
            if batch.first:
                self._unwritten.setdefault(batch.session_id, batch.first)
            return
        size = len(batch.joined)
        self._queue.append(batch)
        self.unsent += size
        self.queued_total += size
        self.wake()

    def when_room(self, callback: Callable[[], None], most: int | None = None) -> None:
        """Call back once when at most so many bytes wait, or half of the room; not at all if the connection ends."""
        most = self._event_limit // 2 if most is None else most
        if self.unsent <= most:
            callback()
        else:
            self._waiting_for_room.append((most, callback))
            self._wake_at = max(self._wake_at, most)

    def first_unwritten(self, session_id: str) -> int:
        """Return the first event of a session that is queued, or was lost with the connection; 0 if there is none."""
        if self.closed:
            return self._unwritten.get(session_id, 0)
        for entry in (*self._begun, *self._queue):
            if isinstance(entry, Batch) and entry.first and entry.session_id == session_id:
                return entry.first
        return 0

    def took(self, size: int) -> None:
        """Note that the transport has taken bytes."""
        self.unsent -= size
        if self._waiting_for_room and self.unsent <= self._wake_at:
            waiting, self._waiting_for_room, self._wake_at = self._waiting_for_room, [], 0
            for most, callback in waiting:
                self.when_room(callback, most)
        if self.on_sent is not None:
            self.on_sent()

    def forget(self) -> None:
        """Drop what is queued; the connection has ended."""
        if self.closed:
            return
        for entry in (*self._begun, *self._queue):
            if isinstance(entry, Batch) and entry.first:
                self._unwritten.setdefault(entry.session_id, entry.first)
        self.closed = True
        self._queue.clear()
        self._begun = ()
        self._waiting_for_room.clear()
        self.on_sent = None
        self.lost = self.lost or self.unsent > 0
        self.queued_total -= self.unsent
        self.unsent = self._answers = 0

    def wake(self) -> None:
        """Let the transport write soon."""
        raise NotImplementedError

    def finish(self, code: int = 1000, reason: str = "") -> None:
        """Close once what is queued has been written, or soon anyway."""
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        """Close now; what is queued is lost."""
        raise NotImplementedError


def gather(queue: deque[bytes | Batch]) -> tuple[bytes, int, int]:
    """Return the next bytes to send, how many entries of the queue they are, and how much of them is answers."""
    first = queue[0]
    if len(queue) == 1:
        return (first, 1, len(first)) if isinstance(first, bytes) else (first.joined, 1, 0)
    parts: list[bytes] = []
    size = answers = 0
    for entry in queue:
        data = entry if isinstance(entry, bytes) else entry.joined
        if parts and size + len(data) > SEND_BYTES:
            # What does not fit at once is copied once for each client; what is alone is shared by all.
            break
        parts.append(data)
        size += len(data)
        if data is entry:
            answers += len(data)
    return b"".join(parts), len(parts), answers
