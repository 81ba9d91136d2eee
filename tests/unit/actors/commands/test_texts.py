from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, strategies as st

from roost.actors.commands.texts import (
    PIECE_BYTES,
    Budget,
    Texts,
    answer_of,
    json_text,
    packed,
)
from roost.schemas.command_exec import CommandFacts

if TYPE_CHECKING:
    from collections.abc import Sequence


def _texts(cap: int | None, limit: int = 1000, budget: int = 1000) -> Texts:
    return Texts(cap, limit, Budget(budget))


@pytest.mark.parametrize(
    ("cap", "expected", "exceeded"),
    [(0, b"", True), (1, b"a", True), (4, b"abcd", False), (5, b"abcd", False)],
)
def test_of_each_stream_the_first_bytes_are_kept(cap: int, expected: bytes, exceeded: bool) -> None:
    texts = _texts(cap)
    for part in (b"ab", b"cd"):
        texts.add(0, part)
    texts.add(1, b"")
    assert texts.exceeded == [exceeded, False]
    assert [bytes(text) for text in texts.take()] == [expected, b""]


def test_without_a_cap_both_streams_share_the_limit() -> None:
    texts = _texts(None, limit=5)
    texts.add(0, b"abc")
    texts.add(1, b"defg")
    texts.add(1, b"h")
    assert [bytes(text) for text in texts.take()] == [b"abc", b"de"]
    assert texts.exceeded == [False, True]


def test_commands_together_keep_no_more_than_their_budget() -> None:
    budget = Budget(5)
    first, second = Texts(None, 100, budget), Texts(None, 100, budget)
    first.add(0, b"abc")
    second.add(0, b"abc")
    assert second.exceeded == [True, False]
    assert bytes(second.take()[0]) == b"ab"
    first.take()
    assert budget.left == 5


def test_nothing_follows_after_a_gap() -> None:
    budget = Budget(2)
    texts = Texts(None, 100, budget)
    texts.add(0, b"abc")
    budget.give_back(10)
    texts.add(0, b"d")
    assert bytes(texts.take()[0]) == b"ab"


@given(data=st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_text_is_utf_8_with_replacement_characters(data: bytes) -> None:
    text = b"".join(json_text(data))
    assert json.loads(b'"%b"' % text) == data.decode(errors="replace")


def test_a_character_on_the_border_of_two_pieces_stays_whole() -> None:
    data = ("x" * (PIECE_BYTES - 1) + "€" + "y").encode()
    assert json.loads(b'"%b"' % b"".join(json_text(data))) == data.decode()


def test_a_cut_character_ends_in_a_replacement_character() -> None:
    assert b"".join(json_text("a€".encode()[:-1])).decode() == "a\ufffd"


def _answer(code: int, out: bytes, err: bytes, facts: CommandFacts, limit: int = 1_000) -> object:
    def told(cut: Sequence[bool]) -> CommandFacts:
        return msgspec.structs.replace(
            facts,
            stdout_truncated=facts.stdout_truncated or cut[0],
            stderr_truncated=facts.stderr_truncated or cut[1],
        )

    return json.loads(b"".join(answer_of(code, (out, err), limit, told)))


def test_an_answer_says_no_more_than_there_is_to_say() -> None:
    assert _answer(0, b"o", b"e", CommandFacts()) == {"exitCode": 0, "stdout": "o", "stderr": "e"}
    facts = CommandFacts(signal="SIGTERM", timed_out=True, stdout_truncated=True)
    assert _answer(-1, b"", b"", facts) == {
        "exitCode": -1,
        "stdout": "",
        "stderr": "",
        "signal": "SIGTERM",
        "timedOut": True,
        "stdoutTruncated": True,
    }


def test_an_answer_is_bounded_as_it_is_written() -> None:
    out = bytes(PIECE_BYTES) + b"x"
    limit = 6 * PIECE_BYTES
    whole = _answer(0, bytes(PIECE_BYTES), b"", CommandFacts(), limit)
    assert whole == {"exitCode": 0, "stdout": "\0" * PIECE_BYTES, "stderr": ""}
    cut = _answer(0, out, b"e", CommandFacts(), limit)
    assert cut == {
        "exitCode": 0,
        "stdout": "\0" * PIECE_BYTES,
        "stderr": "",
        "stdoutTruncated": True,
        "stderrTruncated": True,
    }


@given(parts=st.lists(st.binary(max_size=9)), size=st.integers(1, 20))
def test_pieces_are_joined_up_to_a_size(parts: list[bytes], size: int) -> None:
    found = list(packed(parts, size))
    assert b"".join(found) == b"".join(parts)
    assert found
    assert all(size <= len(piece) < size + 9 for piece in found[:-1])
    assert len(found[-1]) < size
