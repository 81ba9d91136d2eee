from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, strategies as st

from roost.actors.commands.deltas import FRAME_BYTES, Deltas
from roost.schemas.command_exec import OutputDelta
from roost.schemas.commands import CommandOutput, OutputHead
from roost.schemas.unions import front_from_commands

CHUNKS = st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=20)))


def _read(lines: list[tuple[bytes, bytes, bytes]]) -> list[tuple[str, bytes, bool]]:
    found: list[tuple[str, bytes, bool]] = []
    for parts in lines:
        line = b"".join(parts)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert message["method"] == "commandExec.outputDelta"
        params = message["params"]
        assert set(params) == {"processId", "stream", "deltaBase64", "capReached"}
        data = base64.b64decode(params["deltaBase64"], validate=True)
        found.append((params["stream"], data, params["capReached"]))
    return found


def test_a_line_is_a_notification_of_the_schema() -> None:
    deltas = Deltas('a"b\u2028\n', None)
    deltas.add(1, b"\xff\x00")
    (line,) = deltas.take()
    params = json.loads(b"".join(line))["params"]
    assert params["processId"] == 'a"b\u2028\n'
    assert set(params) == set(OutputDelta.__struct_encode_fields__)
    assert _read([line]) == [("stderr", b"\xff\x00", False)]


@given(number=st.integers(1, 2**40), connection=st.integers(1, 2**40), line=st.binary())
def test_a_line_is_wrapped_as_its_message_would_be(
    number: int, connection: int, line: bytes
) -> None:
    wrapped = OutputHead(number, connection).before(len(line)) + line
    message = CommandOutput(number=number, connection=connection, line=line)
    assert front_from_commands.decode(wrapped) == message


def test_what_is_held_of_one_stream_is_merged_up_to_a_frame() -> None:
    deltas = Deltas("p", None)
    for _ in range(3):
        deltas.add(0, b"x" * 40_000)
    found = _read(deltas.take())
    assert [len(data) for _, data, _ in found] == [40_000, 40_000, 40_000]
    for _ in range(4):
        deltas.add(0, b"x" * 30_000)
    assert [len(data) for _, data, _ in _read(deltas.take())] == [60_000, 60_000]
    assert deltas.take() == []


def test_it_is_full_with_a_frame_of_bytes_or_many_changes_of_the_stream() -> None:
    deltas = Deltas("p", None)
    deltas.add(0, b"x" * (FRAME_BYTES - 1))
    assert not deltas.is_full
    deltas.add(0, b"x")
    assert deltas.is_full
    deltas.take()
    for number in range(256):
        deltas.add(number % 2, b"x")
    assert deltas.is_full


@pytest.mark.parametrize(
    ("cap", "chunks", "expected", "exceeded"),
    [
        (0, [b"ab"], [("stdout", b"", True)], True),
        (1, [b"ab", b"c"], [("stdout", b"a", True)], True),
        (2, [b"ab"], [("stdout", b"ab", True)], False),
        (2, [b"ab", b"c"], [("stdout", b"ab", True)], True),
        (3, [b"ab"], [("stdout", b"ab", False)], False),
    ],
)
def test_the_delta_that_reaches_the_cap_is_the_streams_last(
    cap: int, chunks: list[bytes], expected: list[tuple[str, bytes, bool]], exceeded: bool
) -> None:
    deltas = Deltas("p", cap)
    for chunk in chunks:
        deltas.add(0, chunk)
    assert _read(deltas.take()) == expected
    assert deltas.caps.exceeded == [exceeded, False]


def test_each_stream_has_a_cap_of_its_own() -> None:
    deltas = Deltas("p", 2)
    deltas.add(0, b"abc")
    deltas.add(1, b"d")
    deltas.add(0, b"e")
    deltas.add(1, b"fg")
    assert _read(deltas.take()) == [("stdout", b"ab", True), ("stderr", b"df", True)]


@given(chunks=CHUNKS, cap=st.none() | st.integers(0, 60), pauses=st.sets(st.integers(0, 20)))
def test_both_streams_are_whole_up_to_their_cap_and_in_the_order_of_reading(
    chunks: list[tuple[int, bytes]], cap: int | None, pauses: set[int]
) -> None:
    deltas = Deltas("p", cap)
    lines: list[tuple[bytes, bytes, bytes]] = []
    for number, (stream, data) in enumerate(chunks):
        if data:
            deltas.add(stream, data)
        if number in pauses:
            lines += deltas.take()
    found = _read(lines + deltas.take())
    for stream, name in enumerate(("stdout", "stderr")):
        whole = b"".join(data for number, data in chunks if number == stream)
        mine = [(data, reached) for other, data, reached in found if other == name]
        assert b"".join(data for data, _ in mine) == (whole if cap is None else whole[:cap])
        reaches = cap is not None and len(whole) >= cap and bool(whole)
        assert [reached for _, reached in mine] == [False] * (len(mine) - reaches) + [
            True
        ] * reaches
        assert all(data or cap == 0 for data, _ in mine)
    if cap is None:
        order = [name for name, data, _ in found for _ in data]
        read = [("stdout", "stderr")[stream] for stream, data in chunks for _ in data]
        assert order == read
