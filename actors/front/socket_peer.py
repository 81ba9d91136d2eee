"""A client's raw non-blocking socket, served by the process's one poller: what all wire transports share."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from roost.actors.errors import DaemonError
from roost.actors.front.peer import Peer, gather
from roost.schemas.frame import FrameTooLarge

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from roost.actors.front.peer import Batch
    from roost.actors.front.router import Caller
    from roost.actors.front.services import Services
    from roost.actors.front.timers import Timer
    from roost.supervisor.poller import Poller

READ_BYTES = 64 * 1024
LINES_AT_ONCE = 16
BIG_LINE = 1024 * 1024
FINISH_SECONDS = 1.0
TOO_BIG = 1009

_log = logging.getLogger(__name__)


class Reader(Protocol):
    """What turns the bytes of a transport into messages."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take received bytes; return the complete messages.

        Raises:
            FrameTooLarge: a message is longer than the limit.
        """
        ...


class SocketDoor:
    """Base of the doors: the connections that came in by one."""

    transport = ""

    def __init__(self, services: Services, poller: Poller) -> None:
        self.services = services
        self.poller = poller
        self.connections: set[SocketPeer] = set()
        self._big_taken = False
        poller.after_sweep(self._allow_big)

    def may_take_big(self) -> bool:
        """Return whether one more very long message may be handled in this sweep."""
        taken, self._big_taken = self._big_taken, True
        return not taken

    def welcome(self, connection: SocketPeer) -> None:
        """Serve a connection from now on; it is closed if it does not initialize in time."""
        self.connections.add(connection)
        self.count()
        self.poller.add(connection)
        handshake = self.services.settings.timeouts.handshake
        if handshake:
            connection.expect_greeting(handshake)

    def ended(self, connection: SocketPeer) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.count()

    def count(self) -> None:
        """Tell how many connections there are."""
        self.services.count(self.transport, len(self.connections))

    def _allow_big(self) -> None:
        self._big_taken = False


class SocketPeer(Peer):
    """One client's socket: a port of the poller."""

    def __init__(self, door: SocketDoor, sock: socket.socket, reader: Reader) -> None:
        limits = door.services.settings.limits
        super().__init__(
            answer_limit=limits.unsent_response_bytes, event_limit=limits.client_queue_bytes
        )
        self.caller: Caller
        self._door = door
        self._poller = door.poller
        self._sock = sock
        self._fd = sock.fileno()
        self._reader = reader
        self._lines: deque[bytes] = deque()
        self._head: memoryview | None = None
        self._head_answers = 0
        self._at_once: list[bytes] = []
        """Answers that were there at once and are queued together, before anything else is."""
        self._dirty = False
        self._blocked = False
        self._reading = True
        self._overlong = 0
        self._leaving = False
        self._greeting: Timer | None = None
        self._parting: Timer | None = None
        self._stall: Timer | None = None

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    def on_readable(self) -> bool:
        """Read once and handle what is complete, but not more at a time than is fair to the others."""
        lines = self._lines
        if not lines:
            if not self._reading:
                self._look_gone()
                return False
            try:
                data = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                self._end()
                return False
            if not data:
                self._input_ended()
                return False
            try:
                lines.extend(self._reader.feed(data))
            except FrameTooLarge as error:
                lines.extend(error.before)
                self._overlong = error.limit
        more = self._handle(lines)
        if self._overlong and not more and self._parting is None:
            self._refuse(self._overlong)
        return more

    def answer(self, line: bytes) -> None:
        """Queue an answer behind all that was answered before; too many unread ones close the connection."""
        if self._at_once:
            self._queue_at_once()
        super().answer(line)

    def tell(self, batch: Batch) -> None:
        """Queue events behind all that was answered before; who does so has looked at `has_room`."""
        if self._at_once:
            self._queue_at_once()
        super().tell(batch)

    def wake(self) -> None:
        """Flush at the end of this sweep."""
        if not self._dirty and not self._blocked:
            self._dirty = True
            self._poller.mark_dirty(self)

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        self._dirty = False
        if self.closed:
            return
        try:
            while self._head is not None or self._queue:
                if not self._send_some():
                    break
        except BlockingIOError:
            pass
        except OSError:
            self._end()
        if self.closed:
            return
        blocked = self._head is not None or bool(self._queue)
        if blocked is not self._blocked:
            self._blocked = blocked
            self._poller.want_write(self, blocked, reading=self._reading)
        if blocked and self._stall is None:
            self._watch_stall()
        if self._leaving and not blocked:
            self._sent_all()

    def finish(self, code: int = 1000, reason: str = "") -> None:
        """Close once what is queued has been sent, or soon anyway; nothing more is read."""
        if self.closed or self._parting is not None:
            return
        self._parting = self._door.services.timers.after(FINISH_SECONDS, self._end)
        self._leave()

    def abort(self, reason: str) -> None:
        """Close now."""
        if not self.closed:
            _log.info("a client is disconnected: %s", reason)
            self._end()

    def expect_greeting(self, seconds: float) -> None:
        """Close if the client has not initialized in so many seconds."""
        self._greeting = self._door.services.timers.after(seconds, self._look_greeted)

    def _look_greeted(self) -> None:
        if not self.closed and not self.caller.connection.greeted:
            self.abort("it did not initialize in time")

    def _handle(self, lines: deque[bytes]) -> bool:
        """Handle some messages; return whether others are left.

        Answers that are there at once are queued together, at the latest before anything else is queued: what is on the
        wire is in the order in which it was said. What goes wrong here costs this connection and no other.
        """
        try:
            self._handle_some(lines)
        except Exception:  # noqa: BLE001
            _log.exception("a message could not be handled")
            self.abort("a fault of the daemon")
        return bool(lines)

    def _handle_some(self, lines: deque[bytes]) -> None:
        receive = self.caller.receive
        for _ in range(LINES_AT_ONCE):
            if not lines:
                break
            if len(lines[0]) > BIG_LINE and not self._door.may_take_big():
                break
            answer = receive(lines.popleft())
            if answer is not None:
                self._at_once.append(answer)
        if self._at_once:
            self._queue_at_once()

    def _queue_at_once(self) -> None:
        # Taken out first: to queue them is to answer, and that looks here again.
        answers, self._at_once = self._at_once, []
        self._answer_all(answers)

    def _answer_all(self, answers: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _input_ended(self) -> None:
        """The client sends no more."""
        raise NotImplementedError

    def _look_gone(self) -> None:
        """Something has happened to a socket that is not read any more."""
        raise NotImplementedError

    def _sent_all(self) -> None:
        """Nothing is queued, and nothing more will come."""
        self._end()

    def _leave(self) -> None:
        """Close once what is queued has been sent; nothing more is read."""
        if not self.closed:
            self._leaving = True
            self._stop_reading()
            self.wake()

    def _stop_reading(self) -> None:
        self._lines.clear()
        if self._reading:
            self._reading = False
            self._poller.want_write(self, self._blocked, reading=False)

    def _send_some(self) -> bool:
        """Send one piece; return whether the socket took all of it."""
        head = self._head
        if head is not None:
            sent = self._sock.send(head)
            self._progress(sent)
            if sent < len(head):
                self._head = head[sent:]
                return False
            self._head, self._begun = None, ()
            self._answers -= self._head_answers
            return True
        queue = self._queue
        data, count, answers = gather(queue)
        sent = self._sock.send(data)
        if sent < len(data):
            self._begun = [queue[at] for at in range(count)]
        if count == len(queue):
            queue.clear()
        else:
            for _ in range(count):
                queue.popleft()
        if sent < len(data):
            self._head, self._head_answers = memoryview(data)[sent:], answers
        else:
            self._answers -= answers
        self._progress(sent)
        return sent == len(data)

    def _progress(self, sent: int) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.took(sent)

    def _watch_stall(self) -> None:
        """Close if nothing can be written for so long; whatever is written ends the wait."""
        stall = self._door.services.settings.timeouts.client_stall
        if stall:
            self._stall = self._door.services.timers.after(stall, self._stalled)

    def _stalled(self) -> None:
        self.abort("nothing could be written to it")

    def _refuse(self, limit: int) -> None:
        text = f"a message has at most {limit} bytes"
        error = DaemonError("MESSAGE_TOO_LARGE", text, {"limit": limit})
        self.answer(self.caller.wire.error(None, error))
        self.finish(TOO_BIG, text)

    def _end(self) -> None:
        if self.closed:
            return
        self.forget()
        self._head = None
        self._lines.clear()
        self._at_once.clear()
        for timer in (self._greeting, self._parting, self._stall):
            if timer is not None:
                timer.cancel()
        self._poller.remove(self)
        self._sock.close()
        self._door.ended(self)
        self.caller.end()
        # The caller has this connection too: neither may outlive the other until a collection.
        del self.caller
