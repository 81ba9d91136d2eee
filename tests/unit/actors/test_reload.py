from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio
import trio.testing

from roost.actors.reload import LOAD_SECONDS, MAX_WAITING, Reloader
from roost.config.errors import SettingsError
from roost.config.load import default_settings
from roost.schemas.base import Refused
from roost.schemas.control import Reloaded
from roost.supervisor.reconfigure import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

    from roost.config.model import Settings
    from roost.schemas.base import Message


def with_turn(seconds: float) -> Settings:
    settings = default_settings()
    return msgspec.structs.replace(
        settings, timeouts=msgspec.structs.replace(settings.timeouts, turn=seconds)
    )


class Rig:
    """A reloader over a configuration and processes that the test plays."""

    def __init__(self) -> None:
        self.found: Settings | Exception = default_settings()
        self.applied: list[float] = []
        self.refuses: set[float] = set()
        self.gate = trio.Event()
        self.answers: list[Message] = []
        self._answered = trio.Event()
        self.reloader = Reloader(default_settings(), self._load, self._apply)

    def ask(self) -> None:
        self.reloader.ask(self._take)

    async def until(self, count: int) -> None:
        with trio.fail_after(5):
            while len(self.answers) < count:
                await self._answered.wait()

    async def applies(self, count: int) -> None:
        with trio.fail_after(5):
            while len(self.applied) < count:
                await trio.testing.wait_all_tasks_blocked()

    def _take(self, answer: Message) -> None:
        self.answers.append(answer)
        self._answered.set()
        self._answered = trio.Event()

    def _load(self) -> Settings:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def _apply(self, settings: Settings) -> Outcome:
        turn = settings.timeouts.turn
        self.applied.append(turn)
        await self.gate.wait()
        return Outcome({"store": "no"} if turn in self.refuses else {}, ())


@asynccontextmanager
async def running() -> AsyncGenerator[Rig]:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.reloader.run)
        yield rig
        nursery.cancel_scope.cancel()


async def test_one_reload_runs_at_a_time_and_those_asked_meanwhile_share_the_next() -> None:
    async with running() as rig:
        rig.found = with_turn(1)
        rig.ask()
        await rig.applies(1)
        rig.found = with_turn(2)
        rig.ask()
        rig.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert rig.applied == [1]
        assert rig.answers == []
        rig.gate.set()
        await rig.until(3)
        assert rig.applied == [1, 2]
        first, *others = rig.answers
        assert isinstance(first, Reloaded)
        assert others[0] is others[1]
        assert rig.reloader.settings.timeouts.turn == 2


async def test_a_wrong_configuration_changes_nothing_and_says_which_key() -> None:
    async with running() as rig:
        rig.found = SettingsError("config.toml line 1: no", "log.level")
        rig.ask()
        await rig.until(1)
        (answer,) = rig.answers
        assert isinstance(answer, Refused)
        assert answer.code == "CONFIG_INVALID"
        assert answer.data == b'{"key":"log.level"}'
        assert rig.applied == []


async def test_a_process_that_refuses_brings_the_old_settings_back_everywhere() -> None:
    async with running() as rig:
        rig.gate.set()
        rig.refuses = {1.0}
        rig.found = with_turn(1)
        rig.ask()
        await rig.until(1)
        (answer,) = rig.answers
        assert isinstance(answer, Refused)
        assert "store could not take over" in answer.message
        assert rig.applied == [1, 0]
        assert rig.reloader.settings == default_settings()


async def test_nobody_is_told_when_nothing_has_changed() -> None:
    async with running() as rig:
        rig.ask()
        await rig.until(1)
        assert rig.applied == []
        assert isinstance(rig.answers[0], Reloaded)


async def test_a_fault_in_the_loading_is_an_answer_and_the_next_one_is_served() -> None:
    async with running() as rig:
        rig.found = RuntimeError("boom")
        rig.ask()
        await rig.until(1)
        assert isinstance(rig.answers[0], Refused)
        assert "boom" not in rig.answers[0].message
        rig.found = default_settings()
        rig.ask()
        await rig.until(2)


async def test_a_daemon_that_stops_refuses() -> None:
    async with running() as rig:
        rig.found = with_turn(1)
        rig.ask()
        await rig.applies(1)
        rig.ask()
        rig.reloader.close()
        rig.ask()
        codes = [answer.code for answer in rig.answers if isinstance(answer, Refused)]
        assert codes == ["SHUTTING_DOWN"] * 2
        rig.gate.set()
        await rig.until(3)


async def test_a_file_that_does_not_answer_is_given_up_and_the_next_read_waits_for_its_thread(
    mock_clock: MockClock,
) -> None:
    hangs, begun = threading.Event(), trio.Event()
    reads: list[int] = []

    def load() -> Settings:
        reads.append(1)
        trio.from_thread.run_sync(begun.set)
        hangs.wait(20)
        return default_settings()

    answers: list[Message] = []
    answered = [trio.Event(), trio.Event()]

    def take(answer: Message) -> None:
        answered[len(answers)].set()
        answers.append(answer)

    reloader = Reloader(default_settings(), load, _no_apply)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reloader.run)
            for event in answered:
                reloader.ask(take)
                await begun.wait()
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(LOAD_SECONDS + 1)
                await event.wait()
            assert [getattr(answer, "code", "") for answer in answers] == ["OVERLOADED"] * 2
            assert len(reads) == 1
            hangs.set()
            nursery.cancel_scope.cancel()
    finally:
        hangs.set()


def test_no_more_than_so_many_wait_for_a_reload() -> None:
    answers: list[Message] = []
    reloader = Reloader(default_settings(), default_settings, _no_apply)
    for _ in range(MAX_WAITING + 2):
        reloader.ask(answers.append)
    assert [getattr(answer, "code", "") for answer in answers] == ["OVERLOADED"] * 2


async def test_when_the_processes_cannot_be_told_the_old_settings_are_in_force_again() -> None:
    applied: list[float] = []

    async def apply(settings: Settings) -> Outcome:
        await trio.lowlevel.checkpoint()
        applied.append(settings.timeouts.turn)
        if settings.timeouts.turn == 1:
            raise RuntimeError("boom")
        return Outcome({}, ())

    answers: list[Message] = []
    reloader = Reloader(default_settings(), lambda: with_turn(1), apply)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.run)
        reloader.ask(answers.append)
        with trio.fail_after(5):
            while not answers:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    (answer,) = answers
    assert isinstance(answer, Refused)
    assert "could not be given to every process" in answer.message
    assert applied == [1, 0]
    assert reloader.settings == default_settings()


async def _no_apply(_: Settings) -> Outcome:
    raise AssertionError
