from __future__ import annotations

import random

import pytest

from roost.actors.search.corpus import DIRECTORY, FILE, MAX_CHANGES, Corpus
from roost.actors.search.matching import MAX_FOUND, Cancelled, best
from roost.actors.search.scoring import score

WORDS = [
    "agent",
    "session",
    "command",
    "store",
    "front",
    "actor",
    "index",
    "parser",
    "Token",
    "stream",
    "café",
    "2nd",
]


def never() -> bool:
    return False


def some_paths(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    found: set[str] = set()
    while len(found) < count:
        parts = [chance.choice(WORDS) + chance.choice(["", "_x", "9", "Y"]) for _ in range(4)]
        found.add("/".join(parts[: chance.randrange(1, 5)]) + chance.choice([".py", ".ts", ""]))
    return sorted(found)


def expected(paths: list[str], query: str) -> list[tuple[int, str]]:
    hits = [(-found, path) for path in paths if (found := score(path, query)) is not None]
    return sorted(hits)[:MAX_FOUND]


@pytest.mark.parametrize("fast", [True, False], ids=["frizbee", "python"])
@pytest.mark.parametrize("query", ["a", "sesf", "tok/py", "é", "agent", "x9", "zzz", "2", "_"])
def test_the_best_fifty_are_those_of_scoring_every_path(query: str, fast: bool) -> None:
    paths = some_paths(1_500)
    corpus = Corpus([(path, FILE) for path in paths], fast=fast)
    assert best(corpus, query, cancelled=never) == expected(paths, query)


@pytest.mark.parametrize("fast", [True, False], ids=["frizbee", "python"])
def test_what_was_added_and_removed_since_counts(fast: bool) -> None:
    corpus = Corpus([("a", DIRECTORY), ("a/b", FILE), ("a.c", FILE), ("ab", FILE)], fast=fast)
    corpus.remove("a")
    corpus.add("new/a", FILE)
    corpus.add("ab", DIRECTORY)
    assert [path for _, path in best(corpus, "a", cancelled=never)] == ["a.c", "ab", "new/a"]
    assert corpus.kind("ab") == DIRECTORY
    assert len(corpus) == 3
    corpus.add("a", FILE)
    corpus.add("a/b", FILE)
    assert corpus.kind("a") == FILE
    assert sorted(path for path, _ in corpus) == ["a", "a.c", "a/b", "ab", "new/a"]


def test_many_changes_are_sorted_in() -> None:
    corpus = Corpus([("first", FILE)])
    for number in range(MAX_CHANGES + 1):
        corpus.add(f"later{number}", FILE)
    corpus.remove("first")
    corpus.settle()
    assert len(corpus) == MAX_CHANGES + 1
    assert corpus.kind("later7") == FILE
    assert best(corpus, "first", cancelled=never) == []
    assert best(corpus, f"later{MAX_CHANGES}", cancelled=never)[0][1] == f"later{MAX_CHANGES}"


def test_long_paths_and_any_text_are_matched_too() -> None:
    paths = ["x/" * 400 + "needle", "n\udcffeedle", "käse/needle"]
    corpus = Corpus([(path, FILE) for path in paths])
    assert best(corpus, "needle", cancelled=never) == expected(paths, "needle")


def test_hidden_paths_do_not_count() -> None:
    corpus = Corpus([("a", FILE), ("b/a", FILE)])
    found = best(corpus, "a", hidden=lambda path: path.startswith("b/"), cancelled=never)
    assert found == [(-34, "a")]


@pytest.mark.parametrize("fast", [True, False], ids=["frizbee", "python"])
def test_a_cancel_is_seen_within_256_candidates(fast: bool) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    corpus = Corpus([(f"a{number}", FILE) for number in range(2_000)], fast=fast)
    with pytest.raises(Cancelled):
        best(corpus, "a", cancelled=cancelled)
    assert asked <= 4, "it goes on after a cancel"
