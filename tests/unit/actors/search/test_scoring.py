from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.search import scoring

VECTORS = [
    ("abexy", "abe", 84, (0, 1, 2)),
    ("sub/abce", "abe", 72, (4, 5, 7)),
    ("abcde", "abe", 71, (0, 1, 4)),
    ("src/app.py", "app", 84, (4, 5, 6)),
    ("app", "app", 84, (0, 1, 2)),
    ("tests/test_app.py", "app", 80, (11, 12, 13)),
    ("README.md", "readme", 159, (0, 1, 2, 3, 4, 5)),
    ("MyFile2.txt", "mf2", 68, (0, 2, 6)),
    ("src/index.ts", "idx", 60, (4, 6, 8)),
    ("docs/my-file.md", "mf", 54, (5, 8)),
    ("foo_bar.py", "fb", 53, (0, 4)),
    ("fooBar.py", "fb", 51, (0, 3)),
    ("foobar.py", "fb", 46, (0, 3)),
    ("alpha beta.txt", "ab", 51, (0, 6)),
    ("lib/http/server.py", "hs", 53, (4, 9)),
    ("lib/http/server.py", "http/s", 159, (4, 5, 6, 7, 8, 9)),
    ("src/main.rs", "src/m", 134, (0, 1, 2, 3, 4)),
    ("x.tar.gz", "tgz", 75, (2, 6, 7)),
    ("v2/notes.txt", "2", 26, (1,)),
    ("a", "a", 34, (0,)),
    ("Ünïcode/ñame.txt", "ñ", 34, (8,)),
]
TEXTS = st.text(alphabet="aAbB1_/ .ßÉé", max_size=9)


def all_alignments(path: str, query: str) -> list[tuple[int, ...]]:
    folded = scoring.fold(path)
    places = itertools.combinations(range(len(path)), len(query))
    return [
        at for at in places if all(folded[i] == char for i, char in zip(at, query, strict=True))
    ]


def class_of(char: str) -> str:
    if char.isspace():
        return "space"
    if char in "/\\":
        return "delimiter"
    if char.isdigit():
        return "digit"
    if char.isalpha():
        return "upper" if char.isupper() and char.lower() != char else "lower"
    return "other"


def bonus(before: str, this: str) -> int:
    """The table of the specification, row by row."""
    word = this in ("digit", "lower", "upper")
    if word and before == "space":
        return 8
    if word and before in ("delimiter", "start"):
        return 9
    if word and before == "other":
        return 8
    if (before, this) == ("lower", "upper") or (before != "digit" and this == "digit"):
        return 5
    return 8 if this in ("space", "other") else 0


def worth(path: str, alignment: tuple[int, ...]) -> int:
    """The total of one alignment, added up as the specification tells it."""
    total, first, previous = 0, 0, -2
    for number, at in enumerate(alignment):
        own = bonus(class_of(path[at - 1]) if at else "start", class_of(path[at]))
        total += 16
        if number and at == previous + 1:
            total += max(own, first, 4)
            if own >= 8 and own > first:
                first = own
        else:
            total += own * (1 if number else 2)
            first = own
            if number:
                total -= 3 + (at - previous - 2)
        previous = at
    return total


@pytest.mark.parametrize(("path", "query", "total", "indices"), VECTORS)
def test_scenario_48_the_vector_table(
    path: str, query: str, total: int, indices: tuple[int, ...]
) -> None:
    folded = scoring.fold(query)
    assert scoring.score(path, folded) == total
    assert scoring.align(path, folded, total) == indices


def test_scenario_48_what_is_no_subsequence_does_not_match() -> None:
    assert scoring.score("src/main.rs", "zz") is None


@settings(max_examples=400, deadline=None)
@given(TEXTS.filter(bool), st.text(alphabet="ab1_/é ", min_size=1, max_size=4))
def test_the_score_is_the_best_of_all_alignments_and_the_earliest_one_is_shown(
    path: str, query: str
) -> None:
    folded = scoring.fold(query)
    alignments = all_alignments(path, folded)
    if not alignments:
        assert scoring.score(path, folded) is None
        return
    best = max(worth(path, alignment) for alignment in alignments)
    assert scoring.score(path, folded) == best
    assert best <= scoring.best_possible(len(query))
    earliest = min(one for one in alignments if worth(path, one) == best)
    assert scoring.align(path, folded, best) == earliest
    name = path.rpartition("/")[2]
    if all_alignments(name, folded):
        assert (scoring.score(name, folded) or 0) <= best, "the name alone is never better"


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.text(alphabet="ab1_/", min_size=1, max_size=4), st.integers(-20, 130))
def test_a_score_below_the_floor_is_left_out_and_no_other(
    path: str, query: str, floor: int
) -> None:
    floor = min(floor, scoring.best_possible(len(query)))
    whole = scoring.score(path, query)
    found = scoring.score(path, query, floor)
    assert found == (whole if whole is not None and whole >= floor else None)


def test_characters_whose_small_form_is_longer_stay_one_character() -> None:
    assert len(scoring.fold("İx")) == 2
    assert scoring.score("İx", "x") is not None


@pytest.mark.parametrize("path", ["a/" * 2_000, "xa" * 5_000])
def test_a_table_that_is_too_large_is_filled_for_the_end_of_the_path(path: str) -> None:
    query = "a" * 255 + path[-1].replace("/", "a")
    total = scoring.score(path, query)
    assert total is not None
    alignment = scoring.align(path, query, total)
    assert len(alignment) == len(query)
    assert worth(path, alignment) == total
