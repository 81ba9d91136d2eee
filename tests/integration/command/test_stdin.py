"""What goes into a command."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

import pytest
import trio

from roost.actors.command.actor import CommandEnded
from roost.actors.command.feeding import STDIN_BYTES, StdinClosed, StdinFull
from roost.actors.command.terminal import Size
from tests.integration.command.running import Collected, command, descriptors, python

MIB = 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, 65_537, MIB])
async def test_what_is_written_before_the_start_arrives_whole(size: int) -> None:
    data = os.urandom(size)
    output = Collected()
    actor = command(output, "sha256sum", stdin=True)
    actor.write(data)
    actor.close_stdin()
    with trio.fail_after(10):
        assert await actor.run() == CommandEnded(0)
    assert output.text.split()[0].decode() == hashlib.sha256(data).hexdigest()


async def test_writes_arrive_in_order_while_it_runs_and_its_answers_come_back() -> None:
    output = Collected()
    actor = command(output, 'while read line; do echo "<$line>"; done; echo end', stdin=True)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            for number in range(20):
                actor.write(b"%d" % number)
                actor.write(b"")
                actor.write(b"\n")
                await output.until(b"<%d>" % number)
            actor.write(b"last\n")
            actor.close_stdin()
    assert output.text.endswith(b"<19>\n<last>\nend\n")


async def test_more_than_fits_is_refused_and_room_comes_as_the_program_reads() -> None:
    output = Collected()
    script = "import os, sys\nos.read(0, 1); print('go', flush=True)\nsys.stdin.buffer.read()"
    actor = command(output, python(script + "; print('all')"), stdin=True)
    actor.write(bytes(STDIN_BYTES))
    with pytest.raises(StdinFull):
        actor.write(b"x")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            for _ in range(3):
                await actor.room(STDIN_BYTES)
                actor.write(bytes(STDIN_BYTES))
            actor.close_stdin()
    assert output.text == b"go\nall\n"


async def test_more_than_ever_fits_is_an_error_of_the_caller() -> None:
    actor = command(Collected(), "true", stdin=True)
    with pytest.raises(ValueError, match="too many"):
        actor.write(bytes(STDIN_BYTES + 1))
    with pytest.raises(ValueError, match="too many"):
        await actor.room(STDIN_BYTES + 1)


async def test_two_that_wait_for_room_never_overfill() -> None:
    actor = command(Collected(), "cat >/dev/null", stdin=True)
    actor.write(bytes(STDIN_BYTES))
    left = 2

    async def fill() -> None:
        nonlocal left
        for _ in range(5):
            await actor.room(STDIN_BYTES // 2 + 1)
            actor.write(bytes(STDIN_BYTES // 2 + 1))
        left -= 1
        if not left:
            actor.close_stdin()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill)
            nursery.start_soon(fill)
            assert await actor.run() == CommandEnded(0)


async def test_a_program_that_closes_its_input_is_no_error_and_later_writes_are_dropped() -> None:
    output = Collected()
    actor = command(output, "exec <&-; echo deaf; sleep 0.2; exit 4", stdin=True)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"deaf")
            for _ in range(4):
                await actor.room(MIB)
                actor.write(bytes(MIB))
            actor.close_stdin()
    with pytest.raises(StdinClosed, match="closed already"):
        actor.write(b"x")


async def test_a_program_that_ends_without_reading_gives_its_status() -> None:
    actor = command(Collected(), "exit 7", stdin=True)
    actor.write(bytes(MIB))
    with trio.fail_after(10):
        assert await actor.run() == CommandEnded(7)


async def test_the_input_is_refused_after_closing_after_the_end_and_where_there_is_none() -> None:
    closed = command(Collected(), "cat", stdin=True)
    closed.close_stdin()
    closed.close_stdin()
    with pytest.raises(StdinClosed, match="closed already"):
        closed.write(b"")
    with trio.fail_after(10):
        assert await closed.run() == CommandEnded(0)
    ended = command(Collected(), "true", stdin=True)
    with trio.fail_after(10):
        await ended.run()
    with pytest.raises(StdinClosed, match="ended"):
        ended.write(b"x")
    none = command(Collected(), "true")
    with pytest.raises(StdinClosed, match="no input"):
        none.write(b"x")
    with pytest.raises(StdinClosed, match="no input"):
        none.close_stdin()


async def test_a_wait_for_room_ends_with_the_command() -> None:
    output = Collected()
    actor = command(output, "echo up; sleep 60", stdin=True)
    actor.write(bytes(STDIN_BYTES))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"up")
            actor.terminate()
            # It may hear first that nobody reads, and so that there is room for what will be dropped.
            with suppress(StdinClosed):
                await actor.room(STDIN_BYTES)
    with pytest.raises(StdinClosed, match="ended"):
        await actor.room(0)


async def test_a_program_that_keeps_its_input_waiting_can_be_ended_and_nothing_stays_open() -> None:
    before = descriptors()
    actor = command(Collected(), "sleep 60", stdin=True, timeout=0.05)
    actor.write(bytes(STDIN_BYTES))
    with trio.fail_after(10):
        assert (await actor.run()).timed_out
    assert descriptors() == before


async def test_a_raw_terminal_takes_one_mib_unchanged() -> None:
    script = (
        "import hashlib, os, tty\ntty.setraw(0)\nprint('raw', flush=True)\n"
        "left, seen = 1 << 20, hashlib.sha256()\n"
        "while left:\n    data = os.read(0, left); left -= len(data); seen.update(data)\n"
        "print(seen.hexdigest())"
    )
    data = os.urandom(MIB)
    output = Collected()
    actor = command(output, python(script), tty=Size(24, 80))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"raw")
            actor.write(data)
    assert hashlib.sha256(data).hexdigest().encode() in output.text
