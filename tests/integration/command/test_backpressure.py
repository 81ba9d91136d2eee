"""Commands whose output nobody takes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from roost.actors.command.actor import CommandEnded
from roost.actors.command.reading import READ_BYTES
from roost.actors.command.terminal import Size
from tests.integration.command.running import Collected, command, python, state
from tests.support.processes import until

FLOOD = "import os\nwhile True: os.write(1, bytes(65536))"
MIB = 1 << 20


async def until_blocked(pid: int) -> None:
    """Wait until a process sleeps, without having used processor time, for some looks."""
    seen: list[str] = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1 or state(pid) != "S":
        seen.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(" ", 15)[12])
        await trio.sleep(0.02)


@pytest.mark.parametrize("tty", [None, Size(24, 80)])
async def test_a_paused_command_stops_at_its_full_pipe_and_goes_on(tty: Size | None) -> None:
    output = Collected()
    actor = command(output, python(FLOOD), tty=tty)
    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"\0" * 10_000)
            actor.pause()
            actor.pause()
            count = len(output.text)
            await until_blocked(actor.pid)
            assert len(output.text) == count
            actor.resume()
            await output.until(b"\0", count + 10_000)
            actor.pause()
            actor.terminate()
            await until(lambda: actor.pid == 0)
            actor.resume()


async def test_a_paused_command_gives_all_it_has_printed_before_its_answer() -> None:
    output = Collected()
    actor = command(output, "printf %060000d 7; printf %01000d 8 >&2; exit 3")
    actor.pause()
    ended: list[CommandEnded] = []

    async def run() -> None:
        ended.append(await actor.run())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: actor.pid != 0)
            await until(lambda: actor.pid == 0)
            await wait_all_tasks_blocked()
            assert not ended
            assert output.streams == {}
            actor.resume()
    assert ended == [CommandEnded(3)]
    assert len(output.streams[0]) == 60_000
    assert len(output.streams[1]) == 1_000


async def test_the_time_limit_holds_while_nobody_reads() -> None:
    output = Collected()
    actor = command(output, python(FLOOD), timeout=0.3)
    actor.pause()
    ended: list[CommandEnded] = []

    async def run() -> None:
        ended.append(await actor.run())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: actor.pid != 0)
            await until(lambda: actor.pid == 0)
            actor.resume()
    assert ended == [CommandEnded(None, signal.SIGTERM, timed_out=True)]


async def test_a_paused_command_whose_owner_goes_is_ended() -> None:
    actor = command(Collected(), python(FLOOD))
    actor.pause()
    with trio.move_on_after(0.3) as scope:
        await actor.run()
    assert scope.cancelled_caught
    assert actor.pid == 0


async def test_output_is_merged_under_load_and_comes_byte_by_byte_when_idle() -> None:
    output = Collected()
    script = (
        "import os\n"
        "for _ in range(40): os.write(1, b'.'); os.read(0, 1)\n"
        "for _ in range(2048): os.write(1, bytes(4096))"
    )
    actor = command(output, python(script), stdin=True)
    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            for number in range(1, 41):
                await output.until(b".", number)
                assert len(output.order) == number
                if number == 40:
                    actor.pause()
                actor.write(b"x")
            await until_blocked(actor.pid)
            actor.resume()
    assert len(output.text) == 40 + 8 * MIB
    assert 4096 < output.largest <= READ_BYTES


async def test_the_order_of_the_two_streams_is_that_of_reading() -> None:
    output = Collected()
    script = "import os\nfor n in range(50): os.write(1 + n % 2, b'x'); os.read(0, 1)"
    actor = command(output, python(script), stdin=True)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            for number in range(1, 51):
                await output.until(b"x", number)
                actor.write(b"g")
    assert output.order == [number % 2 for number in range(50)]


async def test_memory_is_flat_while_256_mib_go_through() -> None:
    total = 0
    before = peak = _resident()

    class Counting(Collected):
        def __call__(self, number: int, data: bytes) -> None:
            nonlocal total, peak
            total += len(data)
            if total % (8 * MIB) < len(data):
                peak = max(peak, _resident())

    script = "import os\nfor _ in range(4096): os.write(1, bytes(65536))"
    with trio.fail_after(20):
        assert await command(Counting(), python(script)).run() == CommandEnded(0)
    assert total == 256 * MIB
    assert peak - before < 8 * MIB


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
