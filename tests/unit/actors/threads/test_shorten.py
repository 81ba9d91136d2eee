from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.threads.shorten import pieces, shortened

Json = dict[str, object]
LONG = 'é\n"x' * 20_000


def cut(value: object, limit: int) -> Json:
    found = shortened(json.dumps(value, ensure_ascii=False).encode(), limit)
    assert len(found) <= limit
    made: Json = json.loads(found)
    return made


def test_what_fits_is_left_as_it_is() -> None:
    line = b'{ "a": 1e5 }'
    assert shortened(line, len(line)) is line


def test_the_long_text_is_cut_and_all_else_stays() -> None:
    item: Json = {"id": "item_1", "content": {"text": LONG, "source": "turn"}, "big": 2**70}
    params: Json = {"threadId": "t", "item": item, "sequence": 7}
    made = cut(params, 9_000)
    found = cast("Json", made["item"])
    text = str(cast("Json", found["content"])["text"])

    assert (made["threadId"], made["sequence"], found["big"]) == ("t", 7, 2**70)
    assert found["truncated"] is True
    assert "truncated" not in made
    assert text.endswith("…")
    assert LONG.startswith(text[:-1])
    assert len(json.dumps(text, ensure_ascii=False).encode()) > 8_000


def test_an_agents_message_says_the_same_twice() -> None:
    item = {"id": "i", "text": LONG, "content": {"text": LONG}}
    made = cast("Json", cut({"item": item}, 4_000)["item"])
    assert made["text"] == cast("Json", made["content"])["text"]


def test_a_list_that_is_too_long_ends_earlier_and_the_message_says_so() -> None:
    models = [{"id": f"model {number}", "supportsTools": True} for number in range(3_000)]
    made = cut({"models": models}, 5_000)
    found = cast("list[Json]", made["models"])
    assert found == models[: len(found)]
    assert 50 < len(found) < 3_000
    assert made["truncated"] is True


def test_of_many_pieces_of_input_the_first_stay() -> None:
    turn: Json = {"id": "u", "input": [{"text": "x"}] * 30_000, "status": "queued"}
    made = cast("Json", cut({"turn": turn}, 5_000)["turn"])
    assert made["truncated"] is True
    assert made["status"] == "queued"
    assert set(map(str, cast("list[object]", made["input"]))) == {"{'text': 'x'}"}


def test_what_is_deep_is_not_followed_for_ever() -> None:
    deep: object = LONG
    for _ in range(100):
        deep = {"in": [deep]}
    made = cast("Json", cut({"item": {"id": "i", "content": {"arguments": deep}}}, 3_000)["item"])
    assert made["id"] == "i"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=5), inner, max_size=8)
    ),
    max_leaves=60,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.integers(1_000, 3_000))
def test_whatever_it_is_it_fits_and_what_is_told_around_it_stays(value: object, limit: int) -> None:
    params: Json = {"threadId": "thread", "item": {"id": "item", "content": {"result": value}}}
    made = cut(params, limit)
    assert made["threadId"] == "thread"
    assert cast("Json", made["item"])["id"] == "item"
    if "truncated" not in cast("Json", made["item"]):
        assert made == params


@given(st.text(max_size=300), st.integers(8, 40))
def test_pieces_are_short_and_the_whole_text(text: str, limit: int) -> None:
    found = list(pieces(text, limit))
    assert "".join(found) == text
    assert all(len(json.dumps(one, ensure_ascii=False).encode()) <= limit for one in found)


@pytest.mark.parametrize("odd", [b'{"a":"\\ud800' + b"x" * 5_000 + b'"}', b"[" * 200_000])
def test_what_cannot_be_read_is_not_sent_whole(odd: bytes) -> None:
    assert shortened(odd, 4_000) == b'{"truncated":true}'
