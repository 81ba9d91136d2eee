"""The best matches of a query among many paths (P 10.4, 10.5)."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING

from roost.actors.search.corpus import UNKNOWN
from roost.actors.search.scoring import ANY, best_possible, is_large, score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roost.actors.search.corpus import Corpus

MAX_FOUND = 50
FEW, MANY = 300, 2_048
SMALL_CORPUS = 20_000
LOOK_EVERY = 64
LARGE_SECONDS = 0.06
"""The time for paths and queries that are so long that no person has them; those that come later are left out."""

Hit = tuple[int, str]
"""A score (negative, so that the best is the least) and a path."""


class Cancelled(Exception):
    """Nobody waits for the search any more."""


def best(
    corpus: Corpus,
    query: str,
    *,
    hidden: Callable[[str], bool] | None = None,
    cancelled: Callable[[], bool],
) -> list[Hit]:
    """Return the best matches of a folded query, best first, then by path; those that are hidden do not count.

    Every path is looked at; exactly scored are the likeliest ones, and no more once none can be better than the 50th.

    Raises:
        Cancelled: `cancelled` said so.
    """
    most = MANY if len(corpus) <= SMALL_CORPUS else FEW
    likely: Iterable[tuple[int, str]] = corpus.likely(query, most, cancelled)
    if hidden is not None:
        likely = ((bound, path) for bound, path in likely if not hidden(path))
    if cancelled():
        raise Cancelled
    return sorted(_score_all(likely, query, cancelled))[:MAX_FOUND]


def _score_all(
    likely: Iterable[tuple[int, str]], query: str, cancelled: Callable[[], bool]
) -> list[Hit]:
    """Return the exact scores of paths, as far as they can be among the best; they come in the order of their bounds."""
    hits: list[Hit] = []
    top: list[int] = []  # the best scores so far, the least first
    highest = best_possible(len(query))
    perfect = 0
    floor = ANY
    spent = 0.0
    for number, (bound, path) in enumerate(likely):
        if number % LOOK_EVERY == 0 and cancelled():
            raise Cancelled
        if len(top) == MAX_FOUND:
            # What has a bound comes in the order of bounds and paths: a later one of the highest score is no better.
            floor = top[0]
            if bound < floor or perfect >= MAX_FOUND:
                break
        if is_large(path, query):
            if spent > LARGE_SECONDS:
                continue
            began = time.monotonic()
            found = score(path, query, floor)
            spent += time.monotonic() - began
        else:
            found = score(path, query, floor)
        if found is None:
            continue
        if found == highest and bound != UNKNOWN:
            perfect += 1
        hits.append((-found, path))
        if len(top) < MAX_FOUND:
            heapq.heappush(top, found)
        elif found > top[0]:
            heapq.heapreplace(top, found)
    return hits
