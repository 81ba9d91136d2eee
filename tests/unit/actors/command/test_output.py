from __future__ import annotations

from hypothesis import given, strategies as st

from roost.actors.command.output import HeadTail


@given(st.lists(st.binary(max_size=40)), st.integers(2, 64))
def test_head_and_tail_are_the_ends_of_the_stream(pieces: list[bytes], limit: int) -> None:
    kept = HeadTail(limit)
    for piece in pieces:
        kept.feed(piece)
    whole = b"".join(pieces)
    assert kept.total == len(whole)
    assert kept.truncated is (len(whole) > limit)
    if len(whole) <= limit:
        assert kept.head() + kept.tail() == whole
    else:
        assert kept.head() == whole[: limit // 2]
        assert kept.tail() == whole[-(limit - limit // 2) :]


def test_many_small_pieces_do_not_grow() -> None:
    kept = HeadTail(100)
    for number in range(10_000):
        kept.feed(b"%d" % (number % 10))
    assert len(kept.head()) + len(kept.tail()) == 100
