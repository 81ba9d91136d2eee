"""Output of a command as lines for its client: cut at the cap, merged while the client is busy; pure.

The order in which the two streams were read is kept. A stream's last line is the one that reaches its cap.
"""

from __future__ import annotations

import msgspec

FRAME_BYTES = 64 * 1024
MAX_HELD = 256
STREAMS = (b"stdout", b"stderr")

_encode = msgspec.json.Encoder().encode


class Caps:
    """How much of each of the two streams is still passed on; `cap` None is all of it."""

    def __init__(self, cap: int | None) -> None:
        self._left = None if cap is None else [cap, cap]
        self._closed = [False, False]
        self.exceeded = [False, False]
        """Whether a stream had more than was passed on."""

    def take(self, stream: int, data: bytes) -> tuple[bytes, bool] | None:
        """Return what is passed on of the data, and whether that was the stream's last; None if nothing is."""
        if self._left is None:
            return data, False
        if self._closed[stream]:
            self.exceeded[stream] = True
            return None
        left = self._left[stream]
        if len(data) < left:
            self._left[stream] = left - len(data)
            return data, False
        self._closed[stream] = True
        self.exceeded[stream] = len(data) > left
        return data[:left], True


class _Held:
    __slots__ = ("parts", "reached", "size", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.parts: list[bytes] = []
        self.size = 0
        self.reached = False


class Deltas:
    """Makes `commandExec.outputDelta` lines; what is added waits here until it is taken."""

    def __init__(self, process_id: str, cap: int | None) -> None:
        shown = _encode(process_id)
        self._heads = [
            b'{"jsonrpc":"2.0","method":"commandExec.outputDelta","params":{"processId":%b,'
            b'"stream":"%b","deltaBase64":' % (shown, stream)
            for stream in STREAMS
        ]
        self.caps = Caps(cap)
        self._held: list[_Held] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether what is held is to be sent, however busy the client is."""
        return self._size >= FRAME_BYTES or len(self._held) >= MAX_HELD

    def add(self, stream: int, data: bytes) -> None:
        """Hold what is passed on of the data."""
        taken = self.caps.take(stream, data)
        if taken is None:
            return
        piece, reached = taken
        held = self._held[-1] if self._held else None
        if held is None or held.stream != stream or held.size + len(piece) > FRAME_BYTES:
            held = _Held(stream)
            self._held.append(held)
        held.parts.append(piece)
        held.size += len(piece)
        held.reached = reached
        self._size += len(piece)

    def take(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return the lines of what is held, each in three parts, and hold nothing."""
        if not self._held:
            return []
        held, self._held, self._size = self._held, [], 0
        return [self._line(one) for one in held]

    def _line(self, held: _Held) -> tuple[bytes, bytes, bytes]:
        data = held.parts[0] if len(held.parts) == 1 else b"".join(held.parts)
        end = b',"capReached":true}}\n' if held.reached else b',"capReached":false}}\n'
        return self._heads[held.stream], _encode(data), end
