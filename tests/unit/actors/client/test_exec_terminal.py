from __future__ import annotations

import os
import pty
import termios
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from roost.actors.client.exec_terminal import RawTerminal, ScreenModes

if TYPE_CHECKING:
    from collections.abc import Iterator

VIM = b"\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[?25l\x1b[1;24r"


def test_what_a_full_screen_program_left_is_undone_once() -> None:
    modes = ScreenModes()
    modes.feed(VIM)
    undo = modes.undo()
    for each in (b"\x1b[?1l", b"\x1b[?2004l", b"\x1b[r\x1b[?1049l", b"\x1b[?25h"):
        assert each in undo
    assert modes.undo() == b""


def test_nothing_is_undone_that_the_program_has_undone_itself() -> None:
    modes = ScreenModes()
    modes.feed(VIM)
    modes.feed(b"\x1b[?1;2004l\x1b[?25h\x1b[?1049l\x1b>")
    assert modes.undo() == b""
    modes.feed(b"text \x1b[31mred\x1b[m \x1b[?7h\x1b[?12l")
    assert modes.undo() == b""


@given(st.lists(st.integers(0, len(VIM))))
def test_a_sequence_is_seen_however_it_is_cut(cuts: list[int]) -> None:
    whole, cut = ScreenModes(), ScreenModes()
    whole.feed(VIM)
    places = [0, *sorted(cuts), len(VIM)]
    for start, end in pairwise(places):
        cut.feed(VIM[start:end])
    assert cut.undo() == whole.undo()


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_looked_at_without_an_error(pieces: list[bytes]) -> None:
    modes = ScreenModes()
    for piece in pieces:
        modes.feed(piece)
        modes.feed(b"\x1b[?" + piece)
    undone = modes.undo()
    assert undone == b"" or undone.startswith(b"\x1b[")
    assert modes.undo() == b""


@pytest.fixture
def terminal() -> Iterator[int]:
    ours, theirs = pty.openpty()
    yield theirs
    os.close(ours)
    os.close(theirs)


def test_what_is_no_terminal_is_left_alone() -> None:
    ours, theirs = os.pipe()
    with RawTerminal(ours) as raw:
        raw.again()
        assert not raw.is_raw
    os.close(ours)
    os.close(theirs)


def test_a_terminal_is_raw_inside_and_as_before_outside(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    cooked = termios.ICANON | termios.ECHO | termios.ISIG
    with suppress(ZeroDivisionError), RawTerminal(terminal) as raw:
        assert termios.tcgetattr(terminal)[3] & cooked == 0
        raw.leave()
        assert termios.tcgetattr(terminal) == before
        raw.again()
        assert termios.tcgetattr(terminal)[3] & cooked == 0
        raise ZeroDivisionError
    assert termios.tcgetattr(terminal) == before
