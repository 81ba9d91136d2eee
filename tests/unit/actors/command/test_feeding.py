from __future__ import annotations

import pytest
import trio
import trio.testing

from roost.actors.command.feeding import STDIN_BYTES, Feed, StdinClosed, StdinFull


def open_feed() -> Feed:
    return Feed(is_open=True, is_terminal=False)


def test_the_queue_takes_its_bound_in_pieces_and_not_a_byte_more() -> None:
    feed = open_feed()
    feed.write(bytes(STDIN_BYTES - 2))
    feed.write(b"ab")
    feed.write(b"")
    with pytest.raises(StdinFull, match="1048576 bytes"):
        feed.write(b"c")


def test_a_refused_write_leaves_nothing_in_the_queue() -> None:
    feed = open_feed()
    feed.write(bytes(STDIN_BYTES - 1))
    with pytest.raises(StdinFull):
        feed.write(b"ab")
    feed.write(b"c")


def test_closing_is_final_and_may_be_repeated() -> None:
    feed = open_feed()
    feed.close()
    feed.close()
    with pytest.raises(StdinClosed, match="closed already"):
        feed.write(b"x")


def test_a_closed_input_says_so_even_after_the_end() -> None:
    feed = open_feed()
    feed.close()
    feed.end()
    feed.close()
    with pytest.raises(StdinClosed, match="closed already"):
        feed.write(b"x")


def test_after_the_end_nothing_is_taken() -> None:
    feed = open_feed()
    feed.write(b"x")
    feed.end()
    with pytest.raises(StdinClosed, match="has ended"):
        feed.write(b"x")


def test_without_an_input_nothing_can_be_written_or_closed() -> None:
    feed = Feed(is_open=False, is_terminal=False)
    with pytest.raises(StdinClosed, match="no input"):
        feed.write(b"")
    with pytest.raises(StdinClosed, match="no input"):
        feed.close()


async def test_room_that_is_there_is_given_after_one_pass_of_the_scheduler() -> None:
    feed = open_feed()
    feed.write(bytes(STDIN_BYTES // 2))
    with trio.testing.assert_checkpoints():
        await feed.room(STDIN_BYTES // 2)
    feed.write(bytes(STDIN_BYTES // 2))
    with pytest.raises(StdinFull):
        feed.write(b"x")


async def test_every_wait_for_room_ends_with_the_command() -> None:
    feed = open_feed()
    feed.write(bytes(STDIN_BYTES))
    refused = 0

    async def wait() -> None:
        nonlocal refused
        with pytest.raises(StdinClosed):
            await feed.room(1)
        refused += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        feed.end()
    assert refused == 2
