"""Server-sent events out of bytes (sans-io).

Only `data` counts; event names, ids and comments are skipped. Lines end in LF, CR LF or CR.
"""

from __future__ import annotations

import re

from roost.actors.providers.errors import over_limit

MAX_EVENT_BYTES = 1_048_576

_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseReader:
    """Bytes in, the data of complete events out."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that end in `chunk`, in order; bytes that are no UTF-8 are replaced.

        Raises:
            ProviderError: an event is over its limit.
        """
        events: list[str] = []
        if b"\n" not in chunk and b"\r" not in chunk and not self._ends_in_cr():
            self._keep(chunk)
            return events
        buffer = self._kept() + chunk
        # A CR at the very end may be half of a CR LF.
        whole = len(buffer) - 1 if buffer.endswith(b"\r") else len(buffer)
        start = 0
        for end in _LINE_END.finditer(buffer, 0, whole):
            self._take(buffer[start : end.start()], events)
            start = end.end()
        self._keep(buffer[start:])
        return events

    def end(self) -> list[str]:
        """Return what the end of the stream completes: an event whose blank line never came."""
        events: list[str] = []
        self._take(self._kept().rstrip(b"\r"), events)
        self._take(b"", events)
        return events

    def _ends_in_cr(self) -> bool:
        return bool(self._line) and self._line[-1].endswith(b"\r")

    def _keep(self, part: bytes) -> None:
        self._line.append(part)
        self._line_size += len(part)
        self._check(self._size + self._line_size)

    def _kept(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        return line

    def _take(self, line: bytes, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
            self._size = 0
            return
        self._size += len(line)
        self._check(self._size)
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _check(self, size: int) -> None:
        if size > self._max:
            raise over_limit("total_response", self._max)
