"""The paths of one root, ready to be matched: a sorted list, what came since, and what is gone since.

The likely matches of most paths are found quickly (`quick`). Where that is not to be had, and for paths that it does not
know (long ones, and ones beyond ASCII), a regular expression finds the candidates.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from roost.actors.search.scoring import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from roost.actors.search.quick import Quick

MAX_CHANGES = 1_000
LOOK_EVERY = 256
FILE, DIRECTORY = 0, 1
UNKNOWN = 1 << 30
"""The bound of a path for which there is no estimate."""


class Corpus:
    """Paths (relative to the root, as they are shown) with their kinds."""

    def __init__(self, found: Iterable[tuple[str, int]], *, fast: bool = True) -> None:
        self._fast = fast
        self._added: dict[str, int] = {}
        self._dead: set[int] = set()
        self._set(sorted(found))

    def _set(self, found: list[tuple[str, int]]) -> None:
        self._paths = [path for path, _ in found]
        self._kinds = bytes(kind for _, kind in found)
        self._quick, self._odd = (
            _make_quick(self._paths) if self._fast else _go_without(self._paths)
        )

    def __len__(self) -> int:
        return len(self._paths) + len(self._added) - len(self._dead)

    def kind(self, path: str) -> int:
        """Return whether a path of this corpus is a file or a directory."""
        found = self._added.get(path)
        return self._kinds[bisect_left(self._paths, path)] if found is None else found

    def add(self, path: str, kind: int) -> None:
        """Add a path, or change its kind."""
        at = bisect_left(self._paths, path)
        if at < len(self._paths) and self._paths[at] == path:
            if self._kinds[at] == kind:
                self._dead.discard(at)
                return
            self._dead.add(at)
        self._added[path] = kind

    def remove(self, path: str) -> None:
        """Remove a path and all that are below it."""
        at = bisect_left(self._paths, path)
        if at < len(self._paths) and self._paths[at] == path:
            self._dead.add(at)
        below = path + "/"
        at = bisect_left(self._paths, below, at)
        while at < len(self._paths) and self._paths[at].startswith(below):
            self._dead.add(at)
            at += 1
        for added in [key for key in self._added if key == path or key.startswith(below)]:
            del self._added[added]

    def settle(self) -> None:
        """Sort in what has changed, once it is much."""
        if len(self._added) + len(self._dead) > MAX_CHANGES:
            found = [*self]
            self._added.clear()
            self._dead.clear()
            self._set(sorted(found))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for at, path in enumerate(self._paths):
            if at not in self._dead:
                yield path, self._kinds[at]
        yield from self._added.items()

    def likely(self, query: str, most: int, cancelled: Callable[[], bool]) -> list[tuple[int, str]]:
        """Return the likely matches of a folded query, best first, each with the most that its score can be.

        At most `most` of those that have an estimate, and all others. Cancelled, the list is short.
        """
        hits = [*self._filter(query, cancelled)]
        if self._quick is not None and query.isascii():
            likely = self._quick.find(query, most + len(self._dead), cancelled)
            hits += [(bound, self._paths[at]) for bound, at in likely if at not in self._dead]
        return hits

    def _filter(self, query: str, cancelled: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Yield what has no estimate and has the query as a subsequence; nothing limits its score."""
        fits = _subsequence(query).match
        for number, path in enumerate(self._unknown()):
            if number % LOOK_EVERY == 0 and cancelled():
                return
            if fits(fold(path)):
                yield UNKNOWN, path

    def _unknown(self) -> Iterator[str]:
        for at in self._odd:
            if at not in self._dead:
                yield self._paths[at]
        yield from self._added


def _make_quick(paths: list[str]) -> tuple[Quick | None, Sequence[int]]:
    """Return what finds most of the paths quickly, and the places of the others."""
    try:
        from roost.actors.search.quick import Quick, knows
    except ImportError:  # there is no wheel for this system
        return _go_without(paths)
    return Quick(paths), [at for at, path in enumerate(paths) if not knows(path)]


def _go_without(paths: list[str]) -> tuple[Quick | None, Sequence[int]]:
    return None, range(len(paths))


def _subsequence(query: str) -> re.Pattern[str]:
    """Return what matches texts that have the query as a subsequence, in a time that grows with the text alone."""
    parts = [f"[^{re.escape(char)}]*+{re.escape(char)}" for char in query]
    return re.compile("".join(parts))
