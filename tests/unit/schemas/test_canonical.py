from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from bench.event_cases import canonical_size
from roost.schemas.canonical import MAX_DEPTH, NotCanonical, encode, is_unsafe, normal, size

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2.0**52), 2.0**52, allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (-3.0, "-3"),
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        (1e-4, "0.0001"),
        (1e-5, "0.00001"),
        (1.5e-5, "0.000015"),
        (1e-06, "0.000001"),
        (-1.25e-6, "-0.00000125"),
        (9.99e-6, "0.00000999"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (5e-324, "5e-324"),
        (4503599627370495.5, "4503599627370495.5"),
        (9007199254740991.0, "9007199254740991"),
        (True, "true"),
        (None, "null"),
        (
            '\b\t\n\f\r\x00\x1f"\\/\x7f\u2028é😀',
            '"\\b\\t\\n\\f\\r\\u0000\\u001f\\"\\\\/\x7f\u2028é😀"',
        ),
        ([1.0, [2]], "[1,[2]]"),
        ((1, 2), "[1,2]"),
        ({"b": 1, "a": {"d": 1.0, "c": 2}}, '{"a":{"c":2,"d":1},"b":1}'),
        # By UTF-16 code units an emoji comes before U+FF5E; by code points it would come after.
        ({"\uff5e": 1, "😀": 2, "é": 3, "z": 4}, '{"z":4,"é":3,"😀":2,"\uff5e":1}'),
    ],
)
def test_the_canonical_form_is_ecmascripts(value: object, text: str) -> None:
    assert encode(value).decode() == text
    assert size(value) == len(text.encode())


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [float("-inf")],
        2**53,
        -(2**53),
        1e16,
        10**400,
        "\ud800",
        {"\udfff": 1},
        {1: 2},
        object(),
        b"bytes",
        {1, 2},
    ],
)
def test_what_is_no_json_has_no_canonical_form(value: object) -> None:
    with pytest.raises(NotCanonical):
        encode(value)
    with pytest.raises(NotCanonical):
        normal(value)


def in_a_list(value: object) -> object:
    return [value]


def in_an_object(value: object) -> object:
    return {"a": value}


@pytest.mark.parametrize("wrap", [in_a_list, in_an_object])
def test_depth_ends_at_its_bound_and_in_a_cycle(wrap: Callable[[object], object]) -> None:
    value: object = wrap(1)
    for _ in range(MAX_DEPTH - 1):
        value = wrap(value)
    assert normal(value) == value
    assert len(encode(value)) == size(value)
    for form in (encode, normal):
        with pytest.raises(NotCanonical):
            form(wrap(value))
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotCanonical):
        encode(cycle)


@pytest.mark.slow
@given(JSON)
def test_the_form_reads_back_and_has_the_size_that_others_find(value: object) -> None:
    found = encode(value)
    assert json.loads(found) == value
    assert len(found) == canonical_size(value)
    assert encode(normal(value)) == found
    assert encode(json.loads(found)) == found


def test_integers_are_unsafe_by_value() -> None:
    assert [is_unsafe(value) for value in (2**53 - 1, 2**53, 1e300, 1.5, True, "9", None)] == [
        False,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
