"""What is kept of a command's output: head and tail, in memory that does not grow; pure."""

from __future__ import annotations

from collections import deque


class HeadTail:
    """The first and the last bytes of a stream, together at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    @property
    def truncated(self) -> bool:
        """Return whether something between head and tail is not kept."""
        return self.total > len(self._head) + self._tail_size

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            data = data[-self._tail_limit :]
            self._tail.append(data)
            self._tail_size += len(data)
            self._shorten()

    def head(self) -> bytes:
        """Return the first bytes."""
        return bytes(self._head)

    def tail(self) -> bytes:
        """Return the last bytes, without those that are in the head."""
        return b"".join(self._tail)

    def _shorten(self) -> None:
        while self._tail_size > self._tail_limit:
            first = self._tail[0]
            over = self._tail_size - self._tail_limit
            if len(first) <= over:
                self._tail.popleft()
                self._tail_size -= len(first)
            else:
                self._tail[0] = first[over:]
                self._tail_size -= over
