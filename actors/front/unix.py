"""The Unix socket: newline JSON on raw non-blocking sockets, all served by the process's one poller."""

from __future__ import annotations

import contextlib
import errno
import logging
import select
from collections import deque
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, Overloaded
from roost.actors.front.auth import identify, is_cookie, is_trusted
from roost.actors.front.envelope import error_line
from roost.actors.front.limits import make_bucket
from roost.actors.front.peer import Peer
from roost.actors.front.router import Caller
from roost.schemas.frame import FrameTooLarge, LineReader

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roost.actors.front.router import Door
    from roost.actors.front.services import Services
    from roost.actors.front.timers import Timer
    from roost.supervisor.poller import Poller

READ_BYTES = 64 * 1024
SEND_BYTES = 256 * 1024
LINES_AT_ONCE = 16
BIG_LINE = 1024 * 1024
ACCEPTS_AT_ONCE = 64
FULL_PAUSE = 0.1
FINISH_SECONDS = 1.0

_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)


class UnixConnection(Peer):
    """One client's socket: a port of the poller."""

    transport = "unix"

    def __init__(self, door: UnixDoor, sock: socket.socket) -> None:
        limits = door.services.settings.limits
        super().__init__(
            answer_limit=limits.unsent_response_bytes, event_limit=limits.client_queue_bytes
        )
        self.caller: Caller
        self._door = door
        self._poller = door.poller
        self._sock = sock
        self._fd = sock.fileno()
        self._reader = LineReader(limits.line_bytes)
        self._lines: deque[bytes] = deque()
        self._head: memoryview | None = None
        self._head_answers = 0
        self._dirty = False
        self._blocked = False
        self._reading = True
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
                self._refuse(error.limit)
                return False
        return self._handle(lines)

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
            return
        blocked = self._head is not None or bool(self._queue)
        if blocked is not self._blocked:
            self._block(blocked)
        if self._leaving and not blocked:
            self._end()

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

    def _handle(self, lines: deque[bytes]) -> bool:
        """Handle some messages; return whether others are left. Answers that are there at once are queued together."""
        receive = self.caller.receive
        answers: list[bytes] = []
        for _ in range(LINES_AT_ONCE):
            if not lines:
                break
            if len(lines[0]) > BIG_LINE and not self._door.may_take_big():
                break
            answer = receive(lines.popleft())
            if answer is not None:
                answers.append(answer)
        if answers:
            self.answer(answers[0] if len(answers) == 1 else b"".join(answers))
        return bool(lines)

    def expect_greeting(self, seconds: float) -> None:
        """Close if the client has not initialized in so many seconds."""
        self._greeting = self._door.services.timers.after(seconds, self._look_greeted)

    def _look_greeted(self) -> None:
        if not self.closed and not self.caller.connection.greeted:
            self.abort("it did not initialize in time")

    def _input_ended(self) -> None:
        """The client sends no more. If it still reads, it gets the answers that it waits for."""
        self._stop_reading()
        self._look_gone()
        if not self.closed:
            self.caller.when_idle(self._leave)

    def _look_gone(self) -> None:
        """End if the client has closed its socket, and not only the half that it wrote to."""
        if self.closed:
            return
        look = select.poll()
        look.register(self._sock, 0)
        if look.poll(0):
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
        data, count, answers = self._gather()
        sent = self._sock.send(data)
        queue = self._queue
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

    def _gather(self) -> tuple[bytes, int, int]:
        """Return the next bytes to send, how many entries they are, and how much of them is answers."""
        first = self._queue[0]
        if len(self._queue) == 1:
            return (first, 1, len(first)) if isinstance(first, bytes) else (first.joined, 1, 0)
        parts: list[bytes] = []
        size = answers = 0
        for entry in self._queue:
            if isinstance(entry, bytes):
                parts.append(entry)
                answers += len(entry)
                size += len(entry)
            else:
                parts.append(entry.joined)
                size += len(entry.joined)
            if size >= SEND_BYTES:
                break
        return b"".join(parts), len(parts), answers

    def _progress(self, sent: int) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.took(sent)

    def _block(self, blocked: bool) -> None:
        self._blocked = blocked
        self._poller.want_write(self, blocked, reading=self._reading)
        stall = self._door.services.settings.timeouts.client_stall
        if blocked and stall:
            self._stall = self._door.services.timers.after(stall, self._stalled)

    def _stalled(self) -> None:
        self.abort("nothing could be written to it")

    def _refuse(self, limit: int) -> None:
        text = f"a message has at most {limit} bytes"
        error = DaemonError("MESSAGE_TOO_LARGE", text, {"limit": limit})
        self.answer(error_line(None, error))
        self.finish(1009, text)

    def _end(self) -> None:
        if self.closed:
            return
        self.forget()
        self._head = None
        self._lines.clear()
        for timer in (self._greeting, self._parting, self._stall):
            if timer is not None:
                timer.cancel()
        self._poller.remove(self)
        self._sock.close()
        self._door.ended(self)
        self.caller.end()
        # The caller has this connection too: neither may outlive the other until a collection.
        del self.caller


class UnixDoor:
    """The listener and its connections: the listener itself is a port of the poller."""

    def __init__(self, services: Services, door: Door, poller: Poller) -> None:
        self.services = services
        self.poller = poller
        self.connections: set[UnixConnection] = set()
        self._door = door
        self._listener: socket.socket | None = None
        self._fd = -1
        self._big_taken = False
        poller.after_sweep(self._allow_big)

    def listen(self, listener: socket.socket) -> None:
        """Accept from this listener from now on."""
        self.stop_listening()
        listener.setblocking(False)
        self._listener, self._fd = listener, listener.fileno()
        self.poller.add(self)

    def stop_listening(self) -> None:
        """Accept no more; what waits in the backlog is the next front's."""
        if self._listener is not None:
            self.poller.remove(self)
            self._listener.close()
            self._listener = None

    def fileno(self) -> int:
        """Return the listener's descriptor."""
        return self._fd

    def on_readable(self) -> bool:
        """Accept what waits."""
        for _ in range(ACCEPTS_AT_ONCE):
            if self._listener is None:
                return False
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _FULL:
                    self._pause(error)
                return False
            self._welcome(sock)
        return False

    def flush(self) -> None:
        """A listener sends nothing."""

    def may_take_big(self) -> bool:
        """Return whether one more very long message may be handled in this sweep."""
        taken, self._big_taken = self._big_taken, True
        return not taken

    def ended(self, connection: UnixConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        self.services.count("unix", len(self.connections))

    def _allow_big(self) -> None:
        self._big_taken = False

    def _welcome(self, sock: socket.socket) -> None:
        services = self.services
        limits = services.settings.limits
        if sum(services.connections.values()) >= limits.connections:
            _turn_away(sock, limits.connections)
            return
        sock.setblocking(False)
        trusted = is_trusted(identify(sock), services.boot.root_pid)
        connection = UnixConnection(self, sock)
        connection.caller = Caller(
            services,
            self._door,
            connection,
            authenticated=trusted is True,
            authenticate=self._cookie_check() if trusted is None else _never,
            bucket=make_bucket(limits.unix_rate, limits.unix_burst, services.timers.now()),
        )
        self.connections.add(connection)
        services.count("unix", len(self.connections))
        self.poller.add(connection)
        handshake = services.settings.timeouts.handshake
        if handshake:
            connection.expect_greeting(handshake)

    def _cookie_check(self) -> Callable[[str], bool]:
        cookie = self.services.cookie
        return lambda given: is_cookie(given, cookie)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors the listener stays readable; look again when some may have been given back."""
        _log.warning("cannot accept a client: %s", error.strerror)
        self.poller.want_write(self, False, reading=False)
        self.services.timers.after(FULL_PAUSE, self._resume)

    def _resume(self) -> None:
        if self._listener is not None:
            self.poller.want_write(self, False, reading=True)


def _never(_given: str) -> bool:
    return False


def too_many_connections(limit: int) -> bytes:
    """Return what a connection over the limit is told before it is closed."""
    error = Overloaded(
        "TOO_MANY_CONNECTIONS",
        "the daemon has too many connections",
        {"maxConnections": limit, "retryAfterMs": 1000},
    )
    return error_line(None, error)


def _turn_away(sock: socket.socket, limit: int) -> None:
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(too_many_connections(limit))
    sock.close()
