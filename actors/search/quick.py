"""Finds the likely matches among many paths, quickly and without the interpreter's lock; the only file that knows `frizbee`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import frizbee

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK = 131_072
"""Paths that are looked through without a look at whether the search is still wanted."""
MAX_LENGTH = 500

# As near to the exact score as it comes: in the exact one, the matches that follow a run's first inherit its bonus.
_SCORING = frizbee.Scoring(
    match_score=22,
    mismatch_penalty=100,
    gap_open_penalty=8,
    gap_extend_penalty=1,
    prefix_bonus=8,
    capitalization_bonus=2,
    delimiter_bonus=8,
    matching_case_bonus=0,
    exact_match_bonus=0,
)


class Quick:
    """Paths in a fixed order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._chunks = [
            frizbee.Haystacks(
                [path if knows(path) else "" for path in paths[start : start + CHUNK]]
            )
            for start in range(0, len(paths), CHUNK)
        ]

    def find(self, query: str, most: int, cancelled: Callable[[], bool]) -> list[tuple[int, int]]:
        """Return the likeliest matches, best first: the most that the exact score can be, and the place of the path."""
        matcher = frizbee.Matcher(
            query,
            max_typos=0,
            max_items=most,
            casing="ignore",
            sort="score_then_index_asc",
            scoring=_SCORING,
        )
        more = headroom(query)
        found: list[tuple[int, int]] = []
        for number, chunk in enumerate(self._chunks):
            if cancelled():
                break
            base = number * CHUNK
            found += [(hit.score + more, base + hit.index) for hit in matcher.match_list(chunk)]
        if len(self._chunks) > 1:
            found.sort(key=lambda hit: (-hit[0], hit[1]))
        return found[:most]


def knows(path: str) -> bool:
    """Return whether a path is among those that are found; others must be looked through otherwise."""
    return path.isascii() and len(path) <= MAX_LENGTH


def headroom(query: str) -> int:
    """Return by how much the exact score may be, at most, above frizbee's: what a run inherits, and signs' own bonus."""
    return 3 * len(query) + 6 + 16 * sum(not char.isalnum() for char in query)
