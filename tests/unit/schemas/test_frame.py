from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from roost.schemas.frame import HEADER, REPLY, FrameReader, FrameTooLarge, LineReader

cuts = st.lists(st.integers(min_value=0, max_value=400), max_size=12)


def encode_frame(body: bytes, ref: int = 0) -> bytes:
    return HEADER.pack(len(body), ref) + body


def pieces(stream: bytes, at: list[int]) -> list[bytes]:
    marks = [0, *sorted(min(cut, len(stream)) for cut in at), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(marks) if b > a]


@given(st.lists(st.tuples(st.integers(0, 0xFFFF_FFFF), st.binary(max_size=60)), max_size=8), cuts)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    frames: list[tuple[int, bytes]], at: list[int]
) -> None:
    stream = b"".join(encode_frame(body, ref) for ref, body in frames)
    reader = FrameReader()
    assert [frame for piece in pieces(stream, at) for frame in reader.feed(piece)] == frames


def test_frames_are_read_one_byte_at_a_time() -> None:
    reader = FrameReader()
    stream = encode_frame(b"a" * 300, 7) + encode_frame(b"", 7 | REPLY)
    out = [frame for i in range(len(stream)) for frame in reader.feed(stream[i : i + 1])]
    assert out == [(7, b"a" * 300), (7 | REPLY, b"")]


def test_a_frame_as_large_as_the_limit_is_read_and_a_larger_one_refused_by_its_header() -> None:
    assert FrameReader(limit=5).feed(encode_frame(b"12345")) == [(0, b"12345")]
    with pytest.raises(FrameTooLarge):
        FrameReader(limit=5).feed(HEADER.pack(6, 0))


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").rstrip(b"\r"))), cuts)
def test_lines_come_out_as_they_went_in_however_the_stream_is_cut(
    lines: list[bytes], at: list[int]
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader(limit=100)
    assert [line for piece in pieces(stream, at) for line in reader.feed(piece)] == lines


def test_a_carriage_return_before_the_line_feed_is_dropped() -> None:
    assert LineReader(10).feed(b"a\r\nb\n\r\n") == [b"a", b"b", b""]


@pytest.mark.parametrize("stream", [b"12345\n", b"1\n12345\n"])
def test_a_line_as_long_as_the_limit_is_read(stream: bytes) -> None:
    assert LineReader(5).feed(stream)[-1] == b"12345"


@pytest.mark.parametrize("stream", [b"123456", b"123456\n", b"1\n123456\n", b"1\n123456"])
def test_a_line_longer_than_the_limit_is_refused(stream: bytes) -> None:
    with pytest.raises(FrameTooLarge):
        LineReader(5).feed(stream)


def test_the_lines_before_one_that_is_too_long_are_told() -> None:
    reader = LineReader(5)
    assert reader.feed(b"on") == []
    with pytest.raises(FrameTooLarge) as caught:
        reader.feed(b"e\r\ntwo\n123456\nthree\n")
    assert caught.value.before == [b"one", b"two"]


def test_a_long_line_in_pieces_is_refused_when_the_limit_is_passed() -> None:
    reader = LineReader(5)
    assert reader.feed(b"123") == []
    with pytest.raises(FrameTooLarge):
        reader.feed(b"456")
