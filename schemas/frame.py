"""Bytes to frames and back, without I/O: newline-delimited JSON outside, length-prefixed MessagePack inside.

An inner frame is `<length: u32><ref: u32><body>`, little-endian; `length` counts the body. `ref` is 0 for a cast,
the caller's number for a call, and that number with `REPLY` set for its answer.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = struct.Struct("<II")
REPLY = 0x8000_0000
MAX_REF = 0x7FFF_FFFF
DEFAULT_LIMIT = 32 * 1024 * 1024


class FrameTooLarge(ValueError):
    """A frame or line is longer than the reader's limit; the stream cannot be read further.

    `before` are the complete lines that came in front of it with the same bytes.
    """

    def __init__(self, limit: int, before: Sequence[bytes] = ()) -> None:
        super().__init__(f"frame is larger than {limit} bytes")
        self.limit = limit
        self.before = before


class FrameReader:
    """Turn a stream of bytes into inner frames; keeps at most one unfinished frame."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = HEADER.size

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take received bytes; return the complete frames as (ref, body).

        Raises:
            FrameTooLarge: a header announces more than the limit.
        """
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
            self._needed = HEADER.size
        end = len(data)
        if end >= HEADER.size:
            length, ref = HEADER.unpack_from(data)
            if end == HEADER.size + length <= self._limit:
                # As most of what is received: one frame, whole.
                return [(ref, data[HEADER.size :])]
        frames: list[tuple[int, bytes]] = []
        offset = 0
        needed = HEADER.size
        while end - offset >= HEADER.size:
            length, ref = HEADER.unpack_from(data, offset)
            if length > self._limit:
                raise FrameTooLarge(self._limit)
            stop = offset + HEADER.size + length
            if stop > end:
                needed = HEADER.size + length
                break
            frames.append((ref, data[offset + HEADER.size : stop]))
            offset = stop
        if offset < end:
            self._chunks.append(data[offset:] if offset else data)
        self._size = end - offset
        self._needed = needed
        return frames


class LineReader:
    """Turn a stream of bytes into lines without their LF or CR LF; keeps at most one unfinished line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take received bytes; return the complete lines.

        Raises:
            FrameTooLarge: a line has more than `limit` bytes before its LF.
        """
        head, found, tail = data.partition(b"\n")
        if self._size + len(head) > self._limit:
            raise FrameTooLarge(self._limit)
        if not found:
            self._chunks.append(data)
            self._size += len(data)
            return []
        if self._chunks:
            self._chunks.append(head)
            head = b"".join(self._chunks)
            self._chunks.clear()
        lines = [head, *tail.split(b"\n")]
        rest = lines.pop()
        if len(tail) > self._limit and max(map(len, (*lines, rest))) > self._limit:
            good = itertools.takewhile(lambda line: len(line) <= self._limit, lines)
            raise FrameTooLarge(self._limit, [line.removesuffix(b"\r") for line in good])
        self._size = len(rest)
        if rest:
            self._chunks.append(rest)
        return [line.removesuffix(b"\r") for line in lines]
