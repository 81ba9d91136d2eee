"""Each way in which a command can behave, on pipes and on a terminal: the right answer, and no process left."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.command.actor import CommandActor, CommandEnded
from roost.actors.command.leftovers import Leftovers
from roost.actors.command.terminal import Size
from tests.integration.command.running import Collected, alive, command, descriptors, python, state
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

TERMINAL = Size(24, 80)

both = pytest.mark.parametrize("tty", [None, TERMINAL], ids=["pipes", "terminal"])


async def run(actor: CommandActor, limit: float = 10.0) -> CommandEnded:
    with trio.fail_after(limit):
        return await actor.run()


async def run_until(
    actor: CommandActor, output: Collected, text: bytes, then: Callable[[], None], count: int = 1
) -> CommandEnded:
    """Run a command, and do something once it has printed a text."""

    async def act() -> None:
        await output.until(text, count)
        then()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(act)
            ended = await actor.run()
            nursery.cancel_scope.cancel()
    return ended


@both
@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("exit 0", CommandEnded(0)),
        ("exit 1", CommandEnded(1)),
        ("exit 255", CommandEnded(255)),
        ("kill -SEGV $$", CommandEnded(None, signal.SIGSEGV)),
        ("kill -KILL $$", CommandEnded(None, signal.SIGKILL)),
        ("kill -TERM $$", CommandEnded(None, signal.SIGTERM)),
    ],
)
async def test_an_end_by_itself(script: str, ended: CommandEnded, tty: Size | None) -> None:
    assert await run(command(Collected(), script, tty=tty)) == ended


@both
async def test_a_command_that_prints_nothing_hands_nothing_on(tty: Size | None) -> None:
    output = Collected()
    assert await run(command(output, "true", tty=tty)) == CommandEnded(0)
    assert output.streams == {}


@both
async def test_a_terminated_command_gives_its_signal_and_what_it_has_printed(
    tty: Size | None,
) -> None:
    output = Collected()
    actor = command(output, "echo up; exec sleep 60", tty=tty)
    ended = await run_until(actor, output, b"up", actor.terminate)
    assert ended == CommandEnded(None, signal.SIGTERM)
    assert output.text.split() == [b"up"]
    actor.terminate()


@both
async def test_a_terminated_command_may_choose_its_status_and_say_something(
    tty: Size | None,
) -> None:
    output = Collected()
    script = "trap 'echo bye; exit 8' TERM; echo up; while :; do sleep 0.01; done"
    actor = command(output, script, tty=tty, grace=5)
    assert await run_until(actor, output, b"up", actor.terminate) == CommandEnded(8)
    assert output.text.split()[-1] == b"bye"


@both
async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(tty: Size | None) -> None:
    output = Collected()
    actor = command(
        output, "trap '' TERM; echo up; while :; do sleep 60; done", tty=tty, grace=0.05
    )
    ended = await run_until(actor, output, b"up", actor.terminate)
    assert ended == CommandEnded(None, signal.SIGKILL)


@both
async def test_a_stopped_command_hears_of_its_end(tty: Size | None) -> None:
    output = Collected()
    script = "import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"
    actor = command(output, python(script), tty=tty, grace=5)
    ended = await run_until(actor, output, b"up", actor.terminate)
    assert ended == CommandEnded(None, signal.SIGTERM)


@both
async def test_the_time_limit_ends_it_and_keeps_what_it_printed(tty: Size | None) -> None:
    output = Collected()
    ended = await run(command(output, "echo up; exec sleep 60", tty=tty, timeout=0.3))
    assert ended == CommandEnded(None, signal.SIGTERM, timed_out=True)
    assert output.text.split() == [b"up"]


async def test_a_command_terminated_before_it_runs_ends_at_once() -> None:
    actor = command(Collected(), "exec sleep 60")
    actor.terminate()
    assert await run(actor) == CommandEnded(None, signal.SIGTERM)


SLOW = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.2)
    os.write(1, b"saved ")
    os._exit(0)
signal.signal(signal.SIGTERM, save)
if os.fork() == 0:
    os.setsid()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.write(1, b"up ")
time.sleep(60)
"""


async def test_everything_of_it_gets_the_grace_and_not_only_its_first_process() -> None:
    output = Collected()
    actor = command(output, f"{sys.executable} -IS -c '{SLOW}' & exec sleep 60", grace=5)
    ended = await run_until(actor, output, b"up ", actor.terminate, count=4)
    assert ended == CommandEnded(None, signal.SIGTERM)
    assert output.text.count(b"saved") == 2


@both
@pytest.mark.parametrize("clean", ["", "env -i "])
async def test_a_daemon_that_left_the_group_dies_with_its_own_command_and_no_other(
    tty: Size | None, clean: str
) -> None:
    leftovers = Leftovers()
    other, output = Collected(), Collected()
    daemon = f"{clean}/usr/bin/setsid /bin/sh -c 'trap \"\" TERM HUP; echo $$; exec /bin/sleep 71'"
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            actor = command(other, f"({daemon} &) ; echo up; exec sleep 72", leftovers=leftovers)
            nursery.start_soon(actor.run)
            await other.until(b"\n", 2)
            ended = await command(
                output, f"({daemon} &) ; sleep 0.1", leftovers=leftovers, tty=tty
            ).run()
            assert ended == CommandEnded(0)
            assert len(output.words()) == 1
            assert not any(map(alive, output.words()))
            assert all(map(alive, other.words()))
            actor.terminate()
    assert not any(map(alive, other.words()))


async def test_a_command_that_closes_its_output_and_lives_is_waited_for() -> None:
    output = Collected()
    actor = command(output, "echo last; exec >&- 2>&-; sleep 0.1; exit 9")
    assert await run(actor) == CommandEnded(9)
    assert output.text == b"last\n"


async def test_a_command_that_closed_its_output_can_be_terminated() -> None:
    output = Collected()
    actor = command(output, "echo last; exec >&- 2>&- sleep 60")
    ended = await run_until(actor, output, b"last", actor.terminate)
    assert ended == CommandEnded(None, signal.SIGTERM)


async def test_a_program_that_needs_a_terminal_has_one_only_with_one() -> None:
    assert await run(command(Collected(), "test -t 0 && test -t 1")) == CommandEnded(1)
    actor = command(Collected(), "test -t 0 && test -t 1", tty=TERMINAL)
    assert await run(actor) == CommandEnded(0)


@both
async def test_bytes_that_are_not_text_come_unchanged(tty: Size | None) -> None:
    data = bytes(value for value in range(256) if value != 10)
    output = Collected()
    script = f"import os; os.write(1, {data!r}); os.write(1, b'\\xc3')"
    assert await run(command(output, python(script), tty=tty)) == CommandEnded(0)
    assert output.text == data + b"\xc3"


@pytest.mark.parametrize("cancelled", [True, False])
async def test_64_at_once_each_get_their_own_answer(cancelled: bool) -> None:
    leftovers = Leftovers()
    before = descriptors()
    outputs = [Collected() for _ in range(64)]
    ends: dict[int, CommandEnded] = {}

    async def one(number: int) -> None:
        script = f"(setsid sleep 73 &) ; echo $$; read line; echo {number}; exit {number}"
        tty = TERMINAL if number % 8 == 0 else None
        actor = command(outputs[number], script, leftovers=leftovers, tty=tty, stdin=True)
        nursery.start_soon(answer, number, actor)
        ends[number] = await actor.run()

    async def answer(number: int, actor: CommandActor) -> None:
        await outputs[number].until(b"\n")
        await outputs[(number + 1) % 64].until(b"\n")  # so that all of them run at once
        if not cancelled:
            actor.write(b"go\n")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for number in range(64):
                nursery.start_soon(one, number)
            if cancelled:
                for output in outputs:
                    await output.until(b"\n")
                nursery.cancel_scope.cancel()
    assert ends == ({} if cancelled else {number: CommandEnded(number) for number in range(64)})
    assert not any(alive(output.words()[0]) for output in outputs)
    assert descriptors() == before


async def test_the_owner_s_cancellation_ends_the_command_before_it_goes_on() -> None:
    for tty in (None, TERMINAL):
        output = Collected()
        actor = command(output, "(setsid sleep 74 &) ; echo $$; exec sleep 75", tty=tty, stdin=True)
        if tty is None:  # a terminal would echo it
            actor.write(bytes(1 << 20))
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(actor.run)
                await output.until(b"\n")
                nursery.cancel_scope.cancel()
        assert actor.pid == 0
        assert not alive(output.words()[0])


async def test_orphans_that_end_are_reaped_while_their_command_runs() -> None:
    output = Collected()
    script = "for i in 1 2 3; do (setsid sh -c 'echo $$' &) ; done; sleep 1.3; (setsid sh -c 'echo $$' &) ; echo up; exec sleep 60"
    actor = command(output, script)

    async def act() -> None:
        await output.until(b"\n", 5)
        while any(os.path.exists(f"/proc/{pid}") for pid in output.words()):  # noqa: ASYNC110
            await trio.sleep(0.01)
        actor.terminate()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(act)
            assert await actor.run() == CommandEnded(None, signal.SIGTERM)


async def test_last_words_of_what_outlives_the_program_are_heard() -> None:
    output = Collected()
    script = "(sleep 0.05; echo late) & echo early"
    with trio.fail_after(10):
        assert await command(output, script, linger=5).run() == CommandEnded(0)
    assert output.text == b"early\nlate\n"


@pytest.mark.parametrize("how", ["terminated", "cancelled"])
async def test_nobody_waits_for_last_words_of_a_command_that_is_to_end(how: str) -> None:
    output = Collected()
    actor = command(output, "(echo $$; exec sleep 76) & exit 3", linger=60)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await output.until(b"\n")
            pid = actor.pid
            await until(lambda: state(pid) == "Z")
            if how == "cancelled":
                nursery.cancel_scope.cancel()
            actor.terminate()
    assert actor.pid == 0


RUNAWAY = """
import os, time
os.write(1, b"up")
if os.fork():
    time.sleep(60)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def test_a_process_that_never_stays_the_same_is_caught() -> None:
    output = Collected()
    actor = command(output, python(RUNAWAY), grace=0.05)
    ended = await run_until(actor, output, b"up", actor.terminate)
    assert ended == CommandEnded(None, signal.SIGTERM)
