"""The score of one path for one query, exactly (P 10.4); pure.

The best total over all alignments is found by filling a table from the last character of the query to the first. A cell
stands for one character of the query at one place of the path. It holds the best that can follow, for each bonus that
the run of adjacent matches may carry on: what is inherited within a run is the only thing a later match must know of
the earlier ones. Of a run's bonus only four values can be told apart, for a following match has at least 4.

What has lost too much against the best that is possible, for what the caller wants, is left out of the table.

The file's name alone is an alignment that the whole path has too, with the same bonuses: its first character follows a
delimiter. So only the whole path is looked at.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MATCH = 16
GAP_FIRST = 3
AT_START = 9
MAX_CELLS = 16_384
"""Larger tables, of paths and queries that nobody has, are filled for the end of the path only."""

_SPACE, _DELIMITER, _DIGIT, _LOWER, _UPPER, _OTHER = range(6)
_LEVELS = (4, 5, 8, 9)
_OPENS = (0, 0, 0, 0, 0, 1, 0, 0, 2, 3)
"""The own bonus of a match → the level of the run that it opens."""
_NOTHING = -(1 << 30)
ANY = -(1 << 20)

Cell = tuple[int, int, int, int]
Row = dict[int, Cell]
_LAST: Cell = (0, 0, 0, 0)
_END = (-1, _LAST)


def fold(text: str) -> str:
    """Return the text for comparisons that ignore case; each character stays one."""
    if text.isascii():
        return text.lower()
    return "".join([low if len(low := char.lower()) == 1 else char for char in text])


def is_large(path: str, query: str) -> bool:
    """Return whether the score of this path takes so long that there is not time for many such."""
    return len(path) * len(query) > MAX_CELLS


def best_possible(length: int) -> int:
    """Return the score that no alignment of a query of this length exceeds."""
    return (MATCH + AT_START) * length + AT_START


def score(path: str, query: str, floor: int = ANY) -> int | None:
    """Return the score of a path for a folded query, which may be negative.

    None if the query is no subsequence of the path, or if the score is less than `floor`.
    """
    folded = fold(path)
    classes = classify(path)
    if _perfect(folded, classes, query) >= 0:
        return best_possible(len(query))
    lows = _earliest(folded, query)
    if lows is None:
        return None
    row: Row = {}
    for row in _rows(folded, classes, query, lows, floor):
        if not row:
            return None
    found = max([_total(classes, at, cell) for at, cell in row.items()])
    return found if found >= floor else None


def align(path: str, query: str, best: int) -> tuple[int, ...]:
    """Return where the characters of the folded query are in an alignment of the best score; of equal ones the earliest."""
    folded = fold(path)
    classes = classify(path)
    start = _perfect(folded, classes, query)
    if start >= 0:
        return tuple(range(start, start + len(query)))
    lows = _earliest(folded, query)
    assert lows is not None
    rows = list(_rows(folded, classes, query, lows, best))[::-1]
    at = min(at for at, cell in rows[0].items() if _total(classes, at, cell) == best)
    chosen = [at]
    level = _OPENS[_own(classes, at)]
    for row, following in itertools.pairwise(rows):
        at, level = _next(classes, at, level, row[at][level], following)
        chosen.append(at)
    return tuple(chosen)


def classify(path: str) -> bytes:
    """Return the class of what stands before the path, which counts as a delimiter, and of each character."""
    if path.isascii():
        return b"\x01" + path.encode().translate(_ASCII)
    return bytes((_DELIMITER, *map(_class_of, path)))


def _own(classes: bytes, at: int) -> int:
    """Return the bonus of the character at a place, by what it is and what it follows."""
    return _BONUS[classes[at]][classes[at + 1]]


def _perfect(folded: str, classes: bytes, query: str) -> int:
    """Return the first place at which the whole query follows a delimiter, which nothing can surpass; or -1."""
    at = folded.find(query)
    while at >= 0:
        if _own(classes, at) == AT_START:
            return at
        at = folded.find(query, at + 1)
    return -1


def _total(classes: bytes, at: int, cell: Cell) -> int:
    """Return the total of the best alignment that begins at a place."""
    own = _own(classes, at)
    return MATCH + 2 * own + cell[_OPENS[own]]


def _rows(folded: str, classes: bytes, query: str, lows: list[int], floor: int) -> Iterator[Row]:
    """Yield the rows from the last to the first, each filled from right to left; an empty one is the last."""
    last = len(query) - 1
    loss = best_possible(len(query)) - floor
    row: Row = dict.fromkeys(_places(folded, query[last], lows[last], len(folded)), _LAST)
    yield row
    for i in range(last - 1, -1, -1):
        if not row:
            return
        # Each character that is skipped is a loss of at least one.
        low = max(lows[i], next(reversed(row)) - loss)
        row = _row(folded, classes, query[i], low, row, (MATCH + AT_START) * (last - i) - loss)
        yield row


def _row(folded: str, classes: bytes, char: str, low: int, following: Row, least: int) -> Row:
    """Return the row of a character before `following`, without the cells that hold less than `least`.

    Most of a search is spent here, so nothing is called that need not be.
    """
    row: Row = {}
    ahead = iter(following.items())
    place, cell = next(ahead)
    farther = _NOTHING  # the best of what lies behind a gap: its worth less its place
    at = place
    while (at := folded.rfind(char, low, at)) >= 0:
        while place > at + 1:
            own = _BONUS[classes[place]][classes[place + 1]]
            worth = own + cell[_OPENS[own]] - place
            if worth > farther:  # noqa: PLR1730 - a call of max() takes as long as all the rest
                farther = worth
            place, cell = next(ahead, _END)
        gap = farther + at + MATCH + 2 - GAP_FIRST
        if place == at + 1:
            if cell[3] + MATCH + AT_START >= least or gap >= least:
                row[at] = _adjacent(_BONUS[classes[place]][classes[place + 1]], cell, gap)
        elif gap >= least and farther > _NOTHING:
            row[at] = (gap, gap, gap, gap)
    return row


def _adjacent(own: int, cell: Cell, gap: int) -> Cell:
    """Return the best of going on directly, for each level of the run, or after a gap."""
    lowest, low, high, highest = cell
    if own <= 5:  # the run goes on as it was
        lowest += MATCH + max(own, 4)
        low += MATCH + 5
        high += MATCH + 8
    elif own == 8:
        lowest = low = high = high + MATCH + 8
    else:
        lowest = low = high = highest + MATCH + AT_START
    highest += MATCH + AT_START
    return (
        lowest if lowest > gap else gap,  # noqa: FURB136 - a call of max() takes as long as all the rest
        low if low > gap else gap,  # noqa: FURB136
        high if high > gap else gap,  # noqa: FURB136
        highest if highest > gap else gap,  # noqa: FURB136
    )


def _next(classes: bytes, at: int, level: int, worth: int, following: Row) -> tuple[int, int]:
    """Return the first place in the next row that keeps the worth, and the level of its run."""
    for place in reversed(following):
        if place <= at:
            continue
        own = _own(classes, place)
        if place == at + 1:
            carried = max(level, _OPENS[own]) if own >= 8 else level
            gain = MATCH + max(own, _LEVELS[level])
        else:
            carried = _OPENS[own]
            gain = MATCH + own - GAP_FIRST - (place - at - 2)
        if gain + following[place][carried] == worth:
            return place, carried
    raise AssertionError("the table contradicts itself")


def _earliest(folded: str, query: str) -> list[int] | None:
    """Return before which place each character of the query cannot be; None if the query is no subsequence."""
    lows: list[int] = []
    at = -1
    for char in query:
        at = folded.find(char, at + 1)
        if at < 0:
            return None
        lows.append(at)
    if len(folded) * len(query) > MAX_CELLS:
        _narrow(folded, query, lows)
    return lows


def _narrow(folded: str, query: str, lows: list[int]) -> None:
    """Move the bounds so near to the end of the path that the table is not too large."""
    width = MAX_CELLS // len(query)
    at = len(folded)
    for i in range(len(query) - 1, -1, -1):
        at = folded.rfind(query[i], 0, at)
        lows[i] = max(lows[i], at - width)


def _places(folded: str, char: str, low: int, end: int) -> list[int]:
    """Return where a character is, from a place on and before another, the last one first."""
    found: list[int] = []
    while (end := folded.rfind(char, low, end)) >= 0:
        found.append(end)
    return found


def _class_of(char: str) -> int:
    if char.isspace():
        return _SPACE
    if char in "/\\":
        return _DELIMITER
    if char.isdigit():
        return _DIGIT
    if char.isalpha():
        lowered = char.lower()
        return _UPPER if lowered != char and char.upper() == char else _LOWER
    return _OTHER


def _bonus(before: int, this: int) -> int:
    if this not in (_DIGIT, _LOWER, _UPPER):
        return 0 if this == _DELIMITER else 8
    if before in (_SPACE, _OTHER):
        return 8
    if before == _DELIMITER:
        return AT_START
    if (before == _LOWER and this == _UPPER) or (before != _DIGIT and this == _DIGIT):
        return 5
    return 0


_BONUS = tuple(bytes(_bonus(before, this) for this in range(6)) for before in range(6))
_ASCII = bytes(_class_of(chr(code)) for code in range(128)) + bytes(128)
