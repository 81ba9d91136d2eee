"""A link over which much comes in large frames: it is read into one buffer that is kept, and each frame decoded from there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from roost.schemas.frame import DEFAULT_LIMIT, HEADER, MAX_REF, REPLY, FrameTooLarge
from roost.supervisor.link import DEFAULT_QUEUE, Link

if TYPE_CHECKING:
    import socket

    from roost.schemas.base import Message
    from roost.supervisor.link import LinkHandler
    from roost.supervisor.poller import Poller

BUFFER_BYTES = 256 * 1024

_log = logging.getLogger(__name__)


class BulkLink(Link):
    """A link that copies what comes once. Its messages must not keep a view of the bytes they were decoded from."""

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
        super().__init__(
            sock, poller, name=name, decoder=decoder, handler=handler, queue_bytes=queue_bytes
        )
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0

    def on_readable(self) -> bool:
        """Read once, hand on every complete frame."""
        try:
            count = self._sock.recv_into(memoryview(self._buffer)[self._filled :])
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self.close()
            return False
        self._filled += count
        try:
            self._take_frames()
        except (msgspec.DecodeError, FrameTooLarge) as error:
            _log.error("link to %s: %s; closed", self.name, error)
            self.close()
        return False

    def _take_frames(self) -> None:
        view, at, end = memoryview(self._buffer), 0, self._filled
        needed = HEADER.size
        while end - at >= HEADER.size and not self.closed:
            length, ref = HEADER.unpack_from(view, at)
            if length > DEFAULT_LIMIT:
                raise FrameTooLarge(DEFAULT_LIMIT)
            needed = HEADER.size + length
            if at + needed > end:
                break
            message = self._decoder.decode(view[at + HEADER.size : at + needed])
            at += needed
            if ref & REPLY:
                self._answered(ref & MAX_REF, message)
            else:
                self._handler.on_message(self, ref, message)
        self._keep(view[at:end], needed)

    def _keep(self, rest: memoryview, needed: int) -> None:
        """Move an unfinished frame to the beginning of the buffer, which grows as long as it does not fit."""
        if needed > len(self._buffer) or len(self._buffer) > BUFFER_BYTES >= needed:
            larger = bytearray(max(needed, BUFFER_BYTES))
            larger[: len(rest)] = rest
            self._buffer = larger
        elif len(rest) < self._filled:
            memoryview(self._buffer)[: len(rest)] = rest
        self._filled = len(rest)
