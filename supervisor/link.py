"""Typed messages over a raw non-blocking socket: one writer, batches, bounded by bytes.

A link is a port of a poller. What is queued between two flushes leaves in one send. A closed link fails its calls
with `ActorGone` and tells its handler once.
"""

from __future__ import annotations

import array
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from roost.schemas.base import Message, Refused
from roost.schemas.frame import (
    DEFAULT_LIMIT,
    HEADER,
    MAX_REF,
    REPLY,
    FrameReader,
    FrameTooLarge,
)
from roost.supervisor.errors import ActorGone, CallTimeout, LinkFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.supervisor.poller import Poller

# A larger buffer is mapped anew for each read, which costs several times the read itself.
READ_BYTES = 64 * 1024
DEFAULT_QUEUE = 64 * 1024 * 1024
MAX_SENT_AT_ONCE = 1024 * 1024
# What is this large is sent by itself: to join it with others would cost more than a send.
SENT_ALONE = 32 * 1024
FDS_AT_ONCE = 16

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()

Answer = Message | ActorGone
OnAnswer = Callable[[Answer], None]


class LinkHandler(Protocol):
    """What the owner of a link does with what comes. None of the methods may raise."""

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Handle a message; a `ref` other than 0 is a call, to be answered with `link.reply(ref, …)`."""
        ...

    def on_closed(self, link: Link) -> None:
        """The link is closed; its calls have failed already."""
        ...


class Link:
    """One end of a link."""

    def __init__(
        self,
        sock: socket.socket,
        poller: Poller,
        *,
        name: str,
        decoder: msgspec.msgpack.Decoder[Message],
        handler: LinkHandler,
        queue_bytes: int = DEFAULT_QUEUE,
    ) -> None:
        sock.setblocking(False)
        self.name = name
        self.queued = 0
        self.closed = False
        self._sock = sock
        self._fd = sock.fileno()
        self._poller = poller
        self._decoder = decoder
        self._handler = handler
        self._queue_bytes = queue_bytes
        self._out: deque[bytes | memoryview] = deque()
        self._out_fds: deque[tuple[int, socket.socket | int]] = deque()
        self._in_fds: deque[int] = deque()
        self._reader = FrameReader()
        self._calls: dict[int, OnAnswer] = {}
        self._last_ref = 0
        self._dirty = False
        self._blocked = False
        self._drained: trio.Event | None = None
        self._refused = 0
        poller.add(self)

    def fileno(self) -> int:
        """Return the socket's descriptor, the same one after the link is closed."""
        return self._fd

    def cast(self, message: Message) -> None:
        """Queue a message. Nothing is said on a closed link.

        Raises:
            LinkFull: the other side has not read for so long that the queue is full; nothing was queued.
        """
        self._push(0, message)

    def cast_encoded(self, parts: Sequence[bytes]) -> None:
        """Queue a message that is encoded already, in parts, so that large bytes in it are copied once. As `cast`."""
        size = sum(map(len, parts))
        self._queue(b"".join((HEADER.pack(size, 0), *parts)))

    def reply(self, ref: int, message: Message) -> None:
        """Queue the answer to the call `ref`; nothing for 0. Raises `LinkFull` as `cast` does.

        What cannot be written down, or is longer than any frame, is refused instead: that call fails, and only that one.
        """
        if not ref or self.closed:
            return
        try:
            body = _encoder.encode(message)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, the one who asked is to hear so
            _log.exception("%s cannot be sent to %s", type(message).__name__, self.name)
            body = _encoder.encode(Refused(code="INTERNAL", message="internal error"))
        if len(body) > DEFAULT_LIMIT:
            body = _encoder.encode(self._too_large("ANSWER_TOO_LARGE", message, len(body)))
        self._queue(HEADER.pack(len(body), ref | REPLY) + body)

    def call_nowait(self, message: Message, on_answer: OnAnswer) -> int:
        """Queue a call and return its number; `on_answer` gets the answer, or `ActorGone`, exactly once.

        `forget` drops it. Raises `LinkFull` as `cast` does; on a closed link `on_answer` is called at once, and with a
        `Refused` if the call is longer than any frame.
        """
        if self.closed:
            on_answer(ActorGone(f"{self.name} is gone"))
            return 0
        body = _encoder.encode(message)
        if len(body) > DEFAULT_LIMIT:
            on_answer(self._too_large("REQUEST_TOO_LARGE", message, len(body)))
            return 0
        self._last_ref = ref = self._last_ref % MAX_REF + 1
        self._queue(HEADER.pack(len(body), ref) + body)
        self._calls[ref] = on_answer
        return ref

    def forget(self, ref: int) -> None:
        """Drop the answer to a call when it comes."""
        self._calls.pop(ref, None)

    async def call(self, message: Message, *, timeout: float) -> Message:  # noqa: ASYNC109 - a call has a deadline
        """Send a call and return its answer (which may be `Refused`).

        Cancelled or timed out, the call may still be carried out: repeat only what is idempotent.

        Raises:
            ActorGone: the link closed before the answer came.
            CallTimeout: no answer within `timeout` seconds.
            LinkFull: as for `cast`.
        """
        answers: list[Answer] = []
        answered = trio.Event()

        def take(answer: Answer) -> None:
            answers.append(answer)
            answered.set()

        ref = self.call_nowait(message, take)
        with trio.move_on_after(timeout):
            try:
                await answered.wait()
            finally:
                self.forget(ref)
        if not answers:
            raise CallTimeout(f"{self.name} did not answer within {timeout} s")
        answer = answers[0]
        if isinstance(answer, Message):
            return answer
        raise answer

    def set_bound(self, queue_bytes: int) -> None:
        """Let so many unsent bytes wait from now on."""
        self._queue_bytes = queue_bytes

    async def drained(self) -> None:
        """Wait until at most half of the queue is used and what was refused last fits, or the link is closed."""
        while self._is_too_full() and not self.closed:
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()
        self._refused = 0

    def _is_too_full(self) -> bool:
        if self.queued > self._queue_bytes // 2:
            return True
        # Or else who sends it again at once would be refused again, for ever.
        return bool(self.queued) and self.queued + self._refused > self._queue_bytes

    def pass_handle(self, message: Message, handle: socket.socket | int) -> None:
        """Queue a message with one file descriptor, which is closed here once it is sent (or the link is closed)."""
        if self.closed:
            _close_handle(handle)
            return
        self._push(0, message)
        self._out_fds.append((len(self._out) - 1, handle))

    def take_handle(self) -> int:
        """Return the descriptor that came with the message being handled; the caller owns it.

        Raises:
            ActorGone: none came, which is a fault of the other side.
        """
        if not self._in_fds:
            raise ActorGone(f"{self.name} announced a descriptor that did not come")
        return self._in_fds.popleft()

    def close(self) -> None:
        """Close this end at once; queued bytes are dropped, calls fail with `ActorGone`. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._poller.remove(self)
        self._sock.close()
        self._out.clear()
        self.queued = 0
        for _, handle in self._out_fds:
            _close_handle(handle)
        self._out_fds.clear()
        for fd in self._in_fds:
            _close_handle(fd)
        self._in_fds.clear()
        self._wake_drained()
        calls, self._calls = self._calls, {}
        for on_answer in calls.values():
            on_answer(ActorGone(f"{self.name} is gone"))
        self._handler.on_closed(self)

    def on_readable(self) -> bool:
        """Read once, hand on every complete frame."""
        try:
            data = self._receive()
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        try:
            frames = self._reader.feed(data)
            for ref, body in frames:
                message = self._decoder.decode(body)
                if ref & REPLY:
                    self._answered(ref & MAX_REF, message)
                else:
                    self._handler.on_message(self, ref, message)
                if self.closed:
                    return False
        except (msgspec.DecodeError, FrameTooLarge) as error:
            _log.error("link to %s: %s; closed", self.name, error)
            self.close()
        return False

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        self._dirty = False
        try:
            while self._out and self._send_some():
                pass
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._out or self._blocked or self._drained is not None:
            self._watch_writable()

    def _watch_writable(self) -> None:
        blocked = bool(self._out) and not self.closed
        if blocked is not self._blocked:
            self._blocked = blocked
            self._poller.want_write(self, blocked)
        if self.queued <= self._queue_bytes // 2:
            self._wake_drained()

    def _wake_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _push(self, ref: int, message: Message) -> None:
        if not self.closed:
            body = _encoder.encode(message)
            self._queue(HEADER.pack(len(body), ref) + body)

    def _too_large(self, code: str, message: Message, size: int) -> Refused:
        """Return what is said instead of a message that the other side could not read."""
        name = type(message).__name__
        _log.error("%s for %s has %d bytes, more than a frame holds", name, self.name, size)
        what = "an answer" if code == "ANSWER_TOO_LARGE" else "a request"
        text = f"{what} inside the daemon has {size} bytes, and may have {DEFAULT_LIMIT}"
        data = msgspec.json.encode({"limit": DEFAULT_LIMIT, "size": size})
        return Refused(code=code, message=text, data=data)

    def _queue(self, frame: bytes) -> None:
        if self.closed:
            return
        size = len(frame)
        if self.queued + size > self._queue_bytes and self.queued:
            self._refused = size
            raise LinkFull(f"{self.name} does not read: {self.queued} bytes wait")
        self._out.append(frame)
        self.queued += size
        if not self._dirty and not self._blocked:
            self._dirty = True
            self._poller.mark_dirty(self)

    def _send_some(self) -> bool:
        """Send one batch; return whether the socket took all of it."""
        if len(self._out) == 1 and not self._out_fds:
            # As most sends are: one part, taken whole.
            part = self._out[0]
            sent = self._sock.send(part)
            if sent < len(part):
                self._took(sent, 1)
                return False
            self._out.popleft()
            self.queued -= sent
            return True
        handle = None
        count = len(self._out)
        if self._out_fds:
            at = self._out_fds[0][0]
            handle, count = (self._out_fds[0][1], 1) if at == 0 else (None, at)
        batch, used = self._batch(count)
        if handle is not None:
            sent = socket.send_fds(self._sock, [batch], [_fileno(handle)])
            self._out_fds.popleft()
            _close_handle(handle)
        else:
            sent = self._sock.send(batch)
        self._took(sent, used)
        return sent == len(batch)

    def _batch(self, count: int) -> tuple[bytes | memoryview, int]:
        if count == 1 or len(self._out[0]) >= SENT_ALONE:
            return self._out[0], 1
        parts: list[bytes | memoryview] = []
        size = 0
        for part in self._out:
            if len(parts) == count or size >= MAX_SENT_AT_ONCE:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts), len(parts)

    def _took(self, sent: int, used: int) -> None:
        self.queued -= sent
        popped = 0
        while used:
            part = self._out[0]
            if sent < len(part):
                self._out[0] = memoryview(part)[sent:]
                break
            sent -= len(part)
            self._out.popleft()
            popped += 1
            used -= 1
        if popped and self._out_fds:
            self._out_fds = deque((at - popped, handle) for at, handle in self._out_fds)

    def _receive(self) -> bytes:
        return self._sock.recv(READ_BYTES)

    def _answered(self, ref: int, message: Message) -> None:
        on_answer = self._calls.pop(ref, None)
        if on_answer is not None:
            on_answer(message)


class ControlLink(Link):
    """A link that can also receive file descriptors; the one between root and a child."""

    def _receive(self) -> bytes:
        room = socket.CMSG_SPACE(FDS_AT_ONCE * array.array("i").itemsize)
        data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._in_fds.extend(fds)
        return data


def _fileno(handle: socket.socket | int) -> int:
    return handle if isinstance(handle, int) else handle.fileno()


def _close_handle(handle: socket.socket | int) -> None:
    with contextlib.suppress(OSError):
        socket.close(handle) if isinstance(handle, int) else handle.close()
