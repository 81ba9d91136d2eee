"""One client's WebSocket: a JSON message in each text frame; the answers of a sweep, and events, are framed once."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from roost.actors.front.frames import TOO_BIG, End, FrameReader, close_frame, pong_frame, text_frame
from roost.actors.front.socket_peer import READ_BYTES, SocketPeer

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from roost.actors.front.peer import Batch
    from roost.actors.front.socket_peer import SocketDoor

_log = logging.getLogger(__name__)


class WebSocketConnection(SocketPeer):
    """A connection after its upgrade. What is queued are frames."""

    transport = "websocket"

    def __init__(self, door: SocketDoor, sock: socket.socket) -> None:
        self._limit = door.services.settings.limits.line_bytes
        self._frames = FrameReader(self._limit)
        super().__init__(door, sock, self._frames)
        self._shut = False

    def begin(self, accepted: bytes, data: bytes) -> None:
        """Send the answer to the upgrade, and handle what came behind the request."""
        super().answer(accepted)
        self._lines.extend(self._frames.feed(data))
        if self._handle(self._lines):
            self._poller.continue_later(self)

    def answer(self, line: bytes) -> None:
        """Queue an answer; too many unread ones close the connection."""
        if self._parting is None:
            super().answer(text_frame(line[:-1]))

    def tell(self, batch: Batch) -> None:
        """Queue events; who does so has looked at `has_room`."""
        super().tell(batch.framed())

    def finish(self, code: int = 1000, reason: str = "") -> None:
        """Close with this code once what is queued has been sent, or soon anyway; nothing more is read."""
        if self.closed or self._parting is not None:
            return
        super().answer(close_frame(code, reason))
        super().finish(code, reason)
        if not self.closed:
            # Nothing may follow a close frame.
            self.caller.end()

    def _handle(self, lines: deque[bytes]) -> bool:
        more = super()._handle(lines)
        if self.closed or self._parting is not None:
            return False
        pings = self._frames.pings
        if pings:
            super().answer(b"".join(map(pong_frame, pings)))
            pings.clear()
        if self._frames.end is not None and not more:
            self._part(self._frames.end)
        return more

    def _answer_all(self, answers: Sequence[bytes]) -> None:
        super().answer(b"".join([text_frame(line[:-1]) for line in answers]))

    def _part(self, end: End) -> None:
        if end.code == TOO_BIG and not end.theirs:
            self._refuse(self._limit)
            return
        if not end.theirs:
            _log.info("a WebSocket is closed: %s", end.reason)
        self.finish(end.code, end.reason)

    def _input_ended(self) -> None:
        """There is no half of a WebSocket."""
        self._end()

    def _sent_all(self) -> None:
        """End, but leave the other side time to read why: what it sends meanwhile must not take that back."""
        end = self._frames.end
        if end is not None and end.theirs:
            self._end()
        elif not self._shut:
            self._shut = True
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._end()
                return
            self._poller.want_write(self, False, reading=True)

    def _look_gone(self) -> None:
        """Drop what still comes, up to the other side's own close if that can be found in it."""
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
        elif self._frames.end is None:
            self._frames.feed(data)
            if self._shut and self._frames.end is not None:
                self._end()
