"""Output of a command that is kept for its answer, and the answer as JSON; pure.

The two texts are decoded and encoded piece by piece: however long they are, they are in memory once.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from roost.schemas.command_exec import CommandFacts

PIECE_BYTES = 64 * 1024

_encode = msgspec.json.Encoder().encode
_decoder = codecs.getincrementaldecoder("utf-8")


class Budget:
    """Bytes that all commands together may keep."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, wanted: int) -> int:
        """Return how many of so many bytes may be kept."""
        given = max(0, min(wanted, self.left))
        self.left -= given
        return given

    def give_back(self, size: int) -> None:
        """Take back what was given."""
        self.left += size


class Texts:
    """The first bytes of the two streams: of each at most `cap` (None: any number), of both together at most `limit`."""

    def __init__(self, cap: int | None, limit: int, budget: Budget) -> None:
        self.exceeded = [False, False]
        self._kept = (bytearray(), bytearray())
        self._cap = cap
        self._limit = limit
        self._budget = budget
        self._size = 0

    def add(self, stream: int, data: bytes) -> None:
        """Keep what there is room for."""
        kept = self._kept[stream]
        room = self._limit - self._size
        if self._cap is not None:
            room = min(room, self._cap - len(kept))
        taken = 0 if self.exceeded[stream] else self._budget.take(min(room, len(data)))
        if taken < len(data):
            self.exceeded[stream] = True
            data = data[:taken]
        kept += data
        self._size += taken

    def take(self) -> Sequence[bytes | bytearray]:
        """Return what was kept of the two streams, and keep nothing."""
        kept, self._kept = self._kept, (bytearray(), bytearray())
        self._budget.give_back(self._size)
        self._size = 0
        return kept


def answer_of(
    exit_code: int,
    texts: Sequence[bytes | bytearray],
    limit: int,
    facts: Callable[[Sequence[bool]], CommandFacts],
) -> Generator[bytes]:
    """Yield the JSON of a command's answer in pieces of some hundred KiB at most.

    The two texts take at most `limit` bytes together, as they are written there; `facts` is told which of them were cut.
    """
    yield b'{"exitCode":%d,"stdout":"' % exit_code
    out_cut, limit = yield from _bounded(json_text(texts[0]), limit)
    yield b'","stderr":"'
    err_cut, _ = yield from _bounded(json_text(texts[1]), limit)
    more = _encode(facts((out_cut, err_cut)))
    yield b'"}' if more == b"{}" else b'",' + more[1:]


def _bounded(pieces: Iterable[bytes], limit: int) -> Generator[bytes, None, tuple[bool, int]]:
    """Yield the pieces that fit; return whether one did not, and what is left of the limit."""
    for piece in pieces:
        if len(piece) > limit:
            return True, 0
        limit -= len(piece)
        yield piece
    return False, limit


def json_text(data: bytes | bytearray) -> Generator[bytes]:
    """Yield the inside of a JSON string: the data as UTF-8, with a replacement character for each fault."""
    decoder = _decoder("replace")
    view = memoryview(data)
    for at in range(0, len(data), PIECE_BYTES):
        text = decoder.decode(bytes(view[at : at + PIECE_BYTES]))
        yield _encode(text)[1:-1]
    rest = decoder.decode(b"", final=True)
    if rest:
        yield _encode(rest)[1:-1]


def packed(pieces: Iterable[bytes], size: int) -> Generator[bytes]:
    """Yield the pieces joined to some of at least `size` bytes, but for the last; one at least."""
    parts: list[bytes] = []
    total = 0
    for piece in pieces:
        parts.append(piece)
        total += len(piece)
        if total >= size:
            yield b"".join(parts)
            parts, total = [], 0
    yield b"".join(parts)
