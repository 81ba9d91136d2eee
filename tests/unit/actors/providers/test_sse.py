from __future__ import annotations

import pytest

from roost.actors.providers.errors import ProviderError
from roost.actors.providers.wire.sse import SseReader


def read(data: bytes, size: int) -> list[str]:
    reader = SseReader()
    events: list[str] = []
    for at in range(0, len(data), size):
        events += reader.feed(data[at : at + size])
    return events + reader.end()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_however_the_bytes_are_cut(size: int, end: bytes) -> None:
    lines = [
        b": hello",
        b"event: x",
        b"data: one",
        b"",
        b"id: 7",
        b"data:two",
        b"data: 2",
        b"",
        b"",
    ]
    lines += [b"retry: 5", b"", b"data: \xc3\xa4\xe2\x82\xac", b"", b""]
    assert read(end.join(lines), size) == ["one", "two\n2", "ä€"]


def test_an_event_without_its_blank_line_counts_at_the_end() -> None:
    assert read(b"data: [DONE]", 5) == ["[DONE]"]


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert read(b"data: a\xffb\n\n", 100) == ["a\ufffdb"]


@pytest.mark.parametrize("piece", [b"x" * 50, b"data: " + b"x" * 44 + b"\n"])
def test_an_event_over_its_limit_is_refused(piece: bytes) -> None:
    reader = SseReader(max_event_bytes=120)
    reader.feed(piece)
    reader.feed(piece)
    with pytest.raises(ProviderError) as refused:
        reader.feed(piece)
    assert refused.value.code == "PROVIDER_OUTPUT_LIMIT"


def test_many_small_events_are_no_large_one() -> None:
    reader = SseReader(max_event_bytes=120)
    for _ in range(100):
        assert reader.feed(b"data: " + b"x" * 50 + b"\n\n") == ["x" * 50]
