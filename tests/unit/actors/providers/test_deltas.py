from __future__ import annotations

from typing import TYPE_CHECKING, cast

import trio
import trio.testing

from roost.actors.providers.deltas import DeltaJoiner
from roost.schemas.model import ModelDelta
from roost.supervisor.errors import LinkFull

if TYPE_CHECKING:
    from roost.schemas.base import Message
    from roost.supervisor.link import Link


class RecordingLink:
    """A link that notes what is cast, and when; it may be full."""

    def __init__(self) -> None:
        self.full = False
        self.cast_at: list[tuple[float, int, str]] = []

    def cast(self, message: Message) -> None:
        assert isinstance(message, ModelDelta)
        if self.full:
            raise LinkFull("full")
        self.cast_at.append((round(trio.current_time(), 3), message.stream, message.text))


async def test_the_first_piece_leaves_at_once_and_the_next_ones_together(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    joiner, record = DeltaJoiner(window=0.005), RecordingLink()
    link = cast("Link", record)
    nursery.start_soon(joiner.run)
    for piece in ("a", "b", "c"):
        joiner.add(link, 1, piece)
    joiner.add(link, 2, "x")
    await trio.sleep(0.1)
    joiner.add(link, 1, "d")
    await trio.sleep(0.1)
    assert record.cast_at == [(0.0, 1, "a"), (0.005, 1, "bc"), (0.005, 2, "x"), (0.1, 1, "d")]


async def test_what_is_gathered_leaves_before_an_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    joiner, record = DeltaJoiner(), RecordingLink()
    link = cast("Link", record)
    joiner.add(link, 1, "a")
    joiner.add(link, 1, "b")
    assert joiner.flush(link, 1)
    assert joiner.flush(link, 1)
    assert [text for _, _, text in record.cast_at] == ["a", "b"]


async def test_a_full_link_loses_nothing(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    joiner, record = DeltaJoiner(), RecordingLink()
    link = cast("Link", record)
    nursery.start_soon(joiner.run)
    record.full = True
    joiner.add(link, 1, "a")
    joiner.add(link, 1, "b")
    assert not joiner.flush(link, 1)
    await trio.sleep(0.1)
    record.full = False
    await trio.sleep(0.1)
    assert [text for _, _, text in record.cast_at] == ["ab"]


async def test_what_nobody_waits_for_is_dropped(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    joiner, record = DeltaJoiner(), RecordingLink()
    link = cast("Link", record)
    nursery.start_soon(joiner.run)
    joiner.add(link, 1, "a")
    joiner.add(link, 1, "b")
    joiner.drop(link, 1)
    await trio.sleep(0.1)
    assert [text for _, _, text in record.cast_at] == ["a"]
