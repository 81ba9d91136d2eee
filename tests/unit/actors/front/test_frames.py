from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from roost.actors.front.frames import (
    NO_CODE,
    End,
    FrameReader,
    accept_key,
    close_frame,
    pong_frame,
    text_frame,
    unmask,
)

LIMIT = 100_000
MASK = bytes.fromhex("37fa213d")


def _frame(
    payload: bytes, opcode: int = 1, *, final: bool = True, masked: bool = True, rsv: int = 0
) -> bytes:
    size = len(payload)
    mask = MASK if masked else b""
    bit = masked << 7
    if size < 126:
        head = bytes((bit | size,))
    elif size < 2**16:
        head = bytes((bit | 126,)) + size.to_bytes(2)
    else:
        head = bytes((bit | 127,)) + size.to_bytes(8)
    first = bytes((final << 7 | rsv << 4 | opcode,))
    return first + head + mask + (unmask(payload, mask) if masked else payload)


def test_the_key_is_answered_as_the_standard_says() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_have_the_shortest_length_that_holds_them(size: int) -> None:
    payload = b"x" * size
    unmasked = _frame(payload, masked=False)
    assert text_frame(payload) == unmasked
    assert FrameReader(LIMIT).feed(_frame(payload)) == [payload]


@given(st.lists(st.text(max_size=300), max_size=5), st.integers(1, 50))
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    texts: list[str], step: int
) -> None:
    payloads = [text.encode() for text in texts]
    data = b"".join(map(_frame, payloads))
    reader = FrameReader(LIMIT)
    found = [m for at in range(0, len(data), step) for m in reader.feed(data[at : at + step])]
    assert found == payloads
    assert reader.end is None


def test_a_message_may_come_in_fragments_with_control_frames_between() -> None:
    reader = FrameReader(LIMIT)
    data = _frame("é".encode()[:1], final=False) + _frame(b"ping", 9) + _frame(b"pong", 10)
    assert reader.feed(data) == []
    assert reader.pings == [b"ping"]
    assert reader.feed(_frame("é".encode()[1:], 0, final=False) + _frame(b"", 0)) == ["é".encode()]


def test_binary_messages_are_dropped() -> None:
    reader = FrameReader(LIMIT)
    data = _frame(b"\xff", 2) + _frame(b"\xff", 2, final=False) + _frame(b"\xfe", 0) + _frame(b"x")
    assert reader.feed(data) == [b"x"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_frame(b"x", masked=False), 1002),
        (_frame(b"x", rsv=4), 1002),
        (_frame(b"x", rsv=1), 1002),
        (_frame(b"x", 3), 1002),
        (_frame(b"x", 11), 1002),
        (_frame(b"x", 0), 1002),
        (_frame(b"x", final=False) + _frame(b"y"), 1002),
        (_frame(b"x", 9, final=False), 1002),
        (_frame(b"x" * 126, 9), 1002),
        (_frame(b"\x03", 8), 1002),
        (_frame((1005).to_bytes(2), 8), 1002),
        (_frame((999).to_bytes(2), 8), 1002),
        (_frame((1000).to_bytes(2) + b"\xff", 8), 1007),
        (_frame(b"\xff"), 1007),
        (_frame(b"\xed\xa0\x80"), 1007),
        (_frame(b"x" * (LIMIT + 1)), 1009),
        (b"\x81\xff" + (2**40).to_bytes(8), 1009),
        (b"\x81\xff" + (2**64 - 1).to_bytes(8), 1009),
        (_frame(b"x" * LIMIT, final=False) + _frame(b"y", 0), 1009),
    ],
)
def test_what_breaks_the_protocol_ends_it_after_what_came_before(data: bytes, code: int) -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(_frame(b"before") + data + _frame(b"after")) == [b"before"]
    assert reader.end is not None
    assert (reader.end.code, reader.end.theirs) == (code, False)
    assert reader.feed(_frame(b"after")) == []


@pytest.mark.parametrize(
    ("payload", "end"),
    [
        (b"", End(NO_CODE, theirs=True)),
        ((1000).to_bytes(2), End(1000, theirs=True)),
        ((4999).to_bytes(2) + b"why", End(4999, theirs=True)),
    ],
)
def test_a_close_is_the_end(payload: bytes, end: End) -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(_frame(payload, 8) + _frame(b"after")) == []
    assert reader.end == end


def test_a_long_message_in_tiny_fragments_keeps_few_pieces() -> None:
    reader = FrameReader(LIMIT)
    reader.feed(_frame(b"", final=False))
    for _ in range(2_000):
        assert reader.feed(_frame(b"abcde", 0, final=False)) == []
    assert reader.feed(_frame(b"", 0)) == [b"abcde" * 2_000]


def test_the_servers_control_frames() -> None:
    assert pong_frame(b"x") == b"\x8a\x01x"
    assert close_frame(NO_CODE) == b"\x88\x00"
    assert close_frame(1000, "bye") == b"\x88\x05\x03\xe8bye"
    assert len(close_frame(1000, "é" * 100)) <= 127


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_it_fail(data: bytes) -> None:
    reader, messages = FrameReader(200), list[bytes]()
    for at in range(0, len(data), 7):
        messages += reader.feed(data[at : at + 7])
    assert sum(map(len, messages)) <= len(data)


@pytest.mark.parametrize(
    ("size", "width"), [(0, 2), (5, 2), (125, 2), (0, 8), (5, 8), (126, 8), (0xFFFF, 8)]
)
def test_a_length_that_is_not_in_its_shortest_form_is_refused(size: int, width: int) -> None:
    reader = FrameReader(LIMIT)
    head = bytes((0x81, 0x80 | (126 if width == 2 else 127))) + size.to_bytes(width)
    assert reader.feed(head + bytes(4 + size)) == []
    assert reader.end is not None
    assert reader.end.code == 1002


@pytest.mark.parametrize("size", [126, 0xFFFF, 0x10000])
def test_the_first_length_of_each_form_is_read(size: int) -> None:
    assert FrameReader(LIMIT).feed(_frame(b"x" * size)) == [b"x" * size]
