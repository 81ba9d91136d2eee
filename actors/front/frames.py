"""The server's half of WebSocket framing (RFC 6455), without I/O: bytes to messages, messages to frames."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, NOT_TEXT, TOO_BIG = 1000, 1002, 1007, 1009
NO_CODE = 1005
MAX_CONTROL = 125

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FINAL, _RESERVED, _OPCODE, _MASKED, _SIZE = 0x80, 0x70, 0x0F, 0x80, 0x7F


class End(NamedTuple):
    """Why nothing more is read: the other side has closed, or has broken the protocol."""

    code: int
    reason: str = ""
    theirs: bool = False


def accept_key(key: str) -> str:
    """Return the answer to a `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def text_frame(payload: bytes) -> bytes:
    """Return a whole message as one frame."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 0x10000:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), payload)


def pong_frame(payload: bytes) -> bytes:
    """Return the answer to a ping."""
    return b"\x8a%c%b" % (len(payload), payload)


def close_frame(code: int, reason: str = "") -> bytes:
    """Return the frame that ends a connection; the reason is cut to what fits."""
    text = reason.encode()[: MAX_CONTROL - 2].decode(errors="ignore").encode()
    payload = b"" if code == NO_CODE else code.to_bytes(2) + text
    return b"\x88%c%b" % (len(payload), payload)


def unmask(data: bytes, mask: bytes) -> bytes:
    """Return a payload without its mask."""
    size = len(data)
    if not size or mask == b"\0\0\0\0":
        return data
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


class _Broken(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.end = End(code, reason)


class FrameReader:
    """Turn a stream of a client's bytes into text messages; keeps at most one that is unfinished.

    Once `end` is set, everything further is dropped. Binary messages are dropped, too. A frame that announces more than
    the limit is refused by its head.
    """

    def __init__(self, limit: int) -> None:
        self.end: End | None = None
        self.pings: list[bytes] = []
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = 2
        self._kind = 0
        self._parts: list[bytes] = []
        self._collected = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take received bytes; return the complete text messages."""
        if self.end is not None:
            return []
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        messages: list[bytes] = []
        try:
            rest = self._read(data, messages)
        except _Broken as broken:
            self.end = broken.end
            rest = b""
        if self.end is not None:
            self._parts.clear()
        elif rest:
            self._chunks.append(rest)
        self._size = len(rest)
        return messages

    def _read(self, data: bytes, messages: list[bytes]) -> bytes:
        """Read all complete frames; return what is left."""
        at, size = 0, len(data)
        while self.end is None:
            start, stop = self._measure(data, at, size)
            if stop > size:
                self._needed = stop - at
                break
            payload = unmask(data[start:stop], data[start - 4 : start])
            self._take(data[at], payload, messages)
            at = stop
        return data[at:] if at else data

    def _measure(self, data: bytes, at: int, end: int) -> tuple[int, int]:
        """Return where the payload of a frame begins and ends; of an unfinished head, where more of it would end."""
        if end - at < 2:
            return at, at + 2
        first, second = data[at], data[at + 1]
        size = second & _SIZE
        if first & _RESERVED or not second & _MASKED:
            raise _Broken(PROTOCOL_ERROR, "a frame is not masked, or has an extension")
        if first & 0x08 and (size > MAX_CONTROL or not first & _FINAL):
            raise _Broken(PROTOCOL_ERROR, "a control frame is too long or in pieces")
        start = at + 6
        if size > MAX_CONTROL:
            width = 2 if size == 126 else 8
            start += width
            if end - at < 2 + width:
                return start, at + 2 + width
            size = int.from_bytes(data[at + 2 : at + 2 + width])
            if size <= (MAX_CONTROL if width == 2 else 0xFFFF):
                raise _Broken(PROTOCOL_ERROR, "a frame's length is not in its shortest form")
        if not first & 0x08 and self._collected + size > self._limit:
            raise _Broken(TOO_BIG, f"a message has at most {self._limit} bytes")
        return start, start + size

    def _take(self, first: int, payload: bytes, messages: list[bytes]) -> None:
        opcode = first & _OPCODE
        if opcode in (TEXT, BINARY, CONTINUATION):
            if (opcode == CONTINUATION) is not bool(self._kind):
                raise _Broken(PROTOCOL_ERROR, "a message begins or goes on where it must not")
            if opcode == TEXT and first & _FINAL:
                messages.append(_text(payload))
                return
            self._collect(opcode, payload)
            if first & _FINAL:
                self._complete(messages)
        elif opcode == PING:
            self.pings.append(payload)
        elif opcode == CLOSE:
            self.end = _end_of(payload)
        elif opcode != PONG:
            raise _Broken(PROTOCOL_ERROR, f"there is no kind of frame {opcode}")

    def _collect(self, opcode: int, payload: bytes) -> None:
        self._kind = self._kind or opcode
        self._collected += len(payload)
        # Many tiny pieces would cost more than their bytes.
        if self._parts and len(self._parts[-1]) + len(payload) <= 4096:
            self._parts[-1] += payload
        else:
            self._parts.append(payload)

    def _complete(self, messages: list[bytes]) -> None:
        kind, whole = self._kind, b"".join(self._parts)
        self._kind = self._collected = 0
        self._parts.clear()
        if kind == TEXT:
            messages.append(_text(whole))


def _text(payload: bytes) -> bytes:
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise _Broken(NOT_TEXT, "a text message is not UTF-8") from None
    return payload


def _end_of(payload: bytes) -> End:
    if not payload:
        return End(NO_CODE, theirs=True)
    code = int.from_bytes(payload[:2])
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _Broken(NOT_TEXT, "the reason of a close is not UTF-8") from None
    allowed = code in range(1000, 1004) or code in range(1007, 1015) or code in range(3000, 5000)
    if len(payload) == 1 or not allowed:
        raise _Broken(PROTOCOL_ERROR, f"there is no close code {code}")
    return End(code, theirs=True)
