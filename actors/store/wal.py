"""What SQLite's write-ahead log holds, read without SQLite, which drops all commits after a damaged frame unsaid.

A frame counts for the log if it has the salt of the header; behind the last one lie leftovers of earlier rounds. Each
frame's checksum goes on from the one stored in the frame before, so a damaged frame is found without those before it.
"""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise
from typing import Final, Literal, NamedTuple

HEADER: Final = 32
FRAME: Final = 24
VERSION: Final = 3_007_000
MAGIC: Final = 0x377F_0682
SALTS: Final = slice(8, 16)
SUMS: Final = slice(16, 24)
DEFAULT_PAGE: Final = 4096
LOOK_AT: Final = 8
INDEX: Final = 48
_WORD: Final = 0xFFFF_FFFF
_SIZES: Final = frozenset(1 << power for power in range(9, 17))

Sums = tuple[int, int]


class Frame(NamedTuple):
    """One frame: its page, the size of the database in pages if it is a commit (else 0), and where its page begins.

    `good` says that its checksum is right, `ours` that it may be used at all: a leftover between ours may not.
    """

    page: int
    commit: int
    at: int
    good: bool
    ours: bool


class Wal(NamedTuple):
    """The frames from `first` on (those before are known to be good) up to the last one with the right salt."""

    page_size: int
    first: int
    frames: tuple[Frame, ...]
    header_good: bool

    @property
    def damaged(self) -> bool:
        """Whether committed frames may be lost to SQLite; a torn tail is no damage, nothing follows it."""
        bad = next((at for at, frame in enumerate(self.frames) if not frame.good), None)
        if not self.header_good:
            return bool(self.frames)
        return bad is not None and bad < len(self.frames) - 1

    @property
    def bad(self) -> tuple[int, ...]:
        """The numbers of the damaged frames, from 1."""
        return tuple(self.first + at + 1 for at, frame in enumerate(self.frames) if not frame.good)


class Contents(NamedTuple):
    """The pages that the log puts into the database, as offsets in the log, and the size it then has in pages.

    `older` are versions of a damaged frame's page that lie before it in the log.
    """

    pages: dict[int, int]
    size: int
    older: tuple[tuple[int, int], ...]


class Index(NamedTuple):
    """What the index beside a log (`-shm`) last said of it: so many frames are committed, so many are in the database."""

    frames: int
    backfilled: int
    salts: bytes


def index_of(data: bytes) -> Index | None:
    """Return what an index says, or None if it is not whole. SQLite writes it after the log is on the disk."""
    if len(data) < 2 * INDEX + 4 or data[:INDEX] != data[INDEX : 2 * INDEX] or not data[12]:
        return None
    order: Literal["big", "little"] = "big" if data[3] == VERSION & 0xFF else "little"
    sums = checksum(data[:40], (0, 0), big=order == "big")
    if tuple(int.from_bytes(data[at : at + 4], order) for at in (40, 44)) != sums:
        return None
    frames = int.from_bytes(data[16:20], order)
    backfilled = int.from_bytes(data[2 * INDEX : 2 * INDEX + 4], order)
    return Index(frames, backfilled, data[32:40])


def missing_frames(wal: Wal, index: Index | None, salts: bytes, *, with_bad: bool = False) -> int:
    """Return how many committed frames a log lacks at its end, as its index knows; damaged ones are there `with_bad`."""
    if index is None or (salts and index.salts != salts):
        return 0
    taken = wal.first
    for number, frame in enumerate(wal.frames, wal.first + 1):
        if not frame.good and not with_bad:
            break
        if frame.commit or not frame.good:
            taken = number
    return max(0, index.frames - max(taken, index.backfilled))


def checksum(data: bytes, sums: Sums, *, big: bool) -> Sums:
    """Return the checksum of SQLite's log over `data` (a multiple of 8 bytes), going on from `sums`."""
    words = iter(struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data))
    first, second = sums
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second


def scan(data: bytes, *, page_size: int = DEFAULT_PAGE, trusted: int = 0) -> Wal:
    """Return what is in a log; the first `trusted` frames are taken as good. `page_size` is used if the header is bad."""
    header_good = _header_good(data)
    said = int.from_bytes(data[8:12], "big")
    if header_good or said in _SIZES:
        page_size = said
    step = FRAME + page_size
    starts = range(HEADER, len(data) - step + 1, step)
    salts = data[16:24] if header_good else _likely_salts(data, starts)
    last = _last_with(data, starts, salts)
    trusted = min(trusted, last) if header_good else 0
    big = bool(data[3] & 1) if header_good else _likely_order(data, starts[:last], page_size)
    frames: list[Frame] = []
    before = data[24:32]
    if trusted:
        before = data[starts[trusted - 1] + 16 : starts[trusted - 1] + FRAME]
    for number, at in enumerate(starts[trusted:last], trusted):
        head = data[at : at + FRAME]
        # The first frame goes on from the header: of a bad one there is nothing to go on from.
        judged = header_good or number > 0
        good = head[SALTS] == salts and (
            not judged or _sums_of(data, at, step, before, big=big) == head[SUMS]
        )
        ours = head[8:12] == salts[:4] or head[12:16] == salts[4:]
        page, commit = struct.unpack(">II", head[:8])
        frames.append(Frame(page, commit, at + FRAME, good, ours and page > 0))
        before = head[SUMS]
    return Wal(page_size, trusted, tuple(frames), header_good)


def contents(wal: Wal) -> Contents:
    """Return what a log that was scanned whole puts into the database, damaged frames with the right salt included."""
    last = max(
        (at for at, frame in enumerate(wal.frames) if frame.commit and frame.ours), default=-1
    )
    pages: dict[int, int] = {}
    older: list[tuple[int, int]] = []
    size = 0
    suspects: set[int] = set()
    for frame in wal.frames[: last + 1]:
        if not frame.ours:
            continue
        if not frame.good:
            suspects.add(frame.page)
            if frame.page in pages:
                older.append((frame.page, pages[frame.page]))
        pages[frame.page] = frame.at
        size = frame.commit if frame.commit and frame.good else size
    if last >= 0 and not size:
        size = max(pages)
    return Contents(pages, size, tuple(older))


def _header_good(data: bytes) -> bool:
    if len(data) < HEADER:
        return False
    magic, version, size = struct.unpack(">III", data[:12])
    if magic & ~1 != MAGIC or version != VERSION or size not in _SIZES:
        return False
    sums = checksum(data[:24], (0, 0), big=bool(magic & 1))
    return struct.pack(">II", *sums) == data[24:32]


def _likely_salts(data: bytes, starts: range) -> bytes:
    """Return the salts of a log without a usable header: the header's if a frame has them, else those of most first frames."""
    seen = [data[at + 8 : at + 16] for at in starts[:LOOK_AT]]
    if data[16:24] in seen or not seen:
        return data[16:24]
    if len(seen) > 1 and seen[0] == seen[1]:
        return seen[0]
    return Counter(seen).most_common(1)[0][0]


def _likely_order(data: bytes, starts: range, page_size: int) -> bool:
    """Return whether the words are big-endian, as the first frames that agree with one order say."""
    step = FRAME + page_size
    for before, at in pairwise(starts[:LOOK_AT]):
        stored = data[at + 16 : at + 24]
        for big in (False, True):
            if _sums_of(data, at, step, data[before + 16 : before + 24], big=big) == stored:
                return big
    return bool(data[3] & 1) if len(data) > 3 else False


def _last_with(data: bytes, starts: range, salts: bytes) -> int:
    for number in range(len(starts), 0, -1):
        at = starts[number - 1]
        if data[at + 8 : at + 16] == salts:
            return number
    return 0


def _sums_of(data: bytes, at: int, step: int, before: bytes, *, big: bool) -> bytes:
    first, second = struct.unpack(">II", before)
    sums = checksum(data[at : at + 8] + data[at + FRAME : at + step], (first, second), big=big)
    return struct.pack(">II", *sums)
