"""Real commands: output, ends, and what they leave behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.command.actor import CommandActor, CommandEnded, CommandSpec
from roost.actors.command.leftovers import Leftovers
from roost.actors.command.spawn import StartFailed
from tests.integration.command.running import Collected, alive, command, descriptors, python

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_command_gives_its_output_errors_and_status() -> None:
    output = Collected()
    with trio.fail_after(5):
        ended = await command(output, "echo out; echo err >&2; exit 3").run()
    assert ended == CommandEnded(3)
    assert output.streams == {0: bytearray(b"out\n"), 1: bytearray(b"err\n")}


async def test_merged_streams_keep_the_order_of_writing(tmp_path: Path) -> None:
    output = Collected()
    with trio.fail_after(5):
        await command(output, "echo 1; echo 2 >&2; pwd", cwd=str(tmp_path), merge=True).run()
    assert output.streams == {0: bytearray(f"1\n2\n{tmp_path}\n".encode())}


async def test_a_command_has_an_empty_input_and_carries_its_mark() -> None:
    output = Collected()
    with trio.fail_after(5):
        await command(output, 'cat; echo "$ROOST_COMMAND"').run()
    assert output.streams[0].startswith(b"cmd-")


async def test_a_missing_program_cannot_be_started() -> None:
    spec = CommandSpec(command_id="x", argv=("/no/such/program",), cwd="/", env={})
    with pytest.raises(StartFailed, match="No such file"):
        await CommandActor(spec, Leftovers(), Collected()).run()


async def test_a_missing_folder_cannot_be_used() -> None:
    with pytest.raises(StartFailed, match="No such file"):
        await command(Collected(), "true", cwd="/no/such/folder").run()


async def test_a_command_over_its_time_limit_is_ended_by_sigterm() -> None:
    with trio.fail_after(5):
        ended = await command(Collected(), "sleep 60", timeout=0.05).run()
    assert ended == CommandEnded(None, signal.SIGTERM, timed_out=True)


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    output = Collected()
    actor = command(output, "trap '' TERM; echo $$; while :; do sleep 60; done", grace=0.05)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"\n")
            nursery.cancel_scope.cancel()
    assert not alive(int(output.streams[0]))


async def test_cancelling_leaves_no_process_and_the_same_leftovers_serve_again() -> None:
    output = Collected()
    leftovers = Leftovers()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            actor = command(output, "sleep 61 & echo $!; wait", leftovers=leftovers)
            nursery.start_soon(actor.run)
            await output.until(b"\n")
            nursery.cancel_scope.cancel()
    assert not alive(int(output.streams[0]))
    again = Collected()
    with trio.fail_after(5):
        assert await command(again, "true", leftovers=leftovers).run() == CommandEnded(0)


async def test_a_background_process_dies_with_its_command() -> None:
    output = Collected()
    with trio.fail_after(5):
        ended = await command(output, "sleep 62 & echo $!").run()
    assert ended == CommandEnded(0)
    assert not alive(int(output.streams[0]))


async def test_a_grandchild_that_left_the_session_dies_with_its_command() -> None:
    output = Collected()
    with trio.fail_after(5):
        ended = await command(output, "setsid sh -c 'echo $$; exec sleep 63' & sleep 0.05").run()
    assert ended == CommandEnded(0)
    assert not alive(int(output.streams[0]))


async def test_an_escaped_chain_without_the_mark_dies_with_the_last_command() -> None:
    output = Collected()
    script = "env -i setsid sh -c 'echo $$; setsid sh -c \"echo \\$\\$; exec sleep 64\" & exec sleep 64' & sleep 0.1"
    with trio.fail_after(5):
        await command(output, script).run()
    pids = [int(word) for word in output.streams[0].split()]
    assert len(pids) == 2
    assert not any(map(alive, pids))


async def test_leftovers_of_one_command_do_not_touch_another() -> None:
    leftovers = Leftovers()
    output = Collected()
    escaped = "(setsid sh -c 'echo $$ up; exec sleep 65' &) ; exec sleep 65"
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            slow = command(output, escaped, leftovers=leftovers)
            nursery.start_soon(slow.run)
            await output.until(b"up")
            pid = int(output.streams[0].split()[0])
            await command(Collected(), "setsid sleep 66 & true", leftovers=leftovers).run()
            assert alive(pid)
            nursery.cancel_scope.cancel()
    assert not alive(pid)


async def test_open_descriptors_do_not_grow() -> None:
    leftovers = Leftovers()
    before = descriptors()
    with trio.fail_after(10):
        for _ in range(5):
            await command(Collected(), "echo x", leftovers=leftovers).run()
    assert descriptors() == before


async def test_a_flood_is_read_without_keeping_it() -> None:
    total = 0

    def count(_: int, data: bytes) -> None:
        nonlocal total
        total += len(data)

    argv = python("import os\nfor _ in range(512): os.write(1, bytes(65536))")
    spec = CommandSpec(command_id="flood", argv=argv, cwd="/", env={})
    with trio.fail_after(10):
        ended = await CommandActor(spec, Leftovers(), count).run()
    assert ended == CommandEnded(0)
    assert total == 512 * 65536
