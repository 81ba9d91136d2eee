from __future__ import annotations

from hypothesis import given, strategies as st

from roost.actors.client.bridge import WholeLines


def test_the_beginning_of_a_line_is_held_until_its_end_comes() -> None:
    lines = WholeLines(100)
    assert lines.feed(b"one\ntw") == b"one\n"
    assert lines.held == b"tw"
    assert lines.feed(b"o") == b""
    assert lines.feed(b"\n") == b"two\n"
    assert lines.held == b""
    assert lines.feed(b"three\nfour\n") == b"three\nfour\n"


def test_a_line_over_the_limit_is_passed_on_in_pieces_so_that_no_more_is_held() -> None:
    lines = WholeLines(10)
    assert lines.feed(b"x" * 10) == b""
    assert lines.feed(b"y") == b"x" * 10 + b"y"
    assert lines.held == b""
    assert lines.feed(b"z") == b""
    assert lines.feed(b"\nnext") == b"z\n"
    assert lines.held == b"next"


@given(st.lists(st.text("ab\n", max_size=8).map(str.encode), max_size=30))
def test_nothing_is_lost_and_lines_are_whole(pieces: list[bytes]) -> None:
    lines = WholeLines(1000)
    written = [lines.feed(piece) for piece in pieces]
    assert b"".join(written) + lines.held == b"".join(pieces)
    assert all(not piece or piece.endswith(b"\n") for piece in written)
