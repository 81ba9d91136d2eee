"""`roost exec` whose output cannot be written, and which gets signals, before a daemon that says what the test tells it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import exec_running, read_all
from tests.support.fake_commands import FakeCommand

if TYPE_CHECKING:
    from tests.support.fake_daemon import FakeDaemon

pytestmark = pytest.mark.slow

CLOSED = "Bad file descriptor"
FULL = "No space left on device"


@pytest.fixture
def fake(daemon: FakeDaemon) -> FakeCommand:
    return FakeCommand(daemon)


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        (">&-", f"roost: standard output: {CLOSED}\n"),
        (">/dev/full", f"roost: standard output: {FULL}\n"),
        ("</dev/null >&0", f"roost: standard output: {CLOSED}\n"),
        (">&- 2>&-", ""),
    ],
)
@pytest.mark.parametrize("option", [(), ("-t",)])
async def test_output_that_cannot_be_written_ends_the_command_and_is_told(
    daemon: FakeDaemon, fake: FakeCommand, redirection: str, said: str, option: tuple[str, ...]
) -> None:
    home = daemon.home.path
    async with exec_running(home, *option, "some", redirection=redirection) as process:
        await fake.write(b"lost")
        await fake.wait(lambda: fake.terminated)
        assert (await read_all(process.stderr)).decode() == said
    assert process.returncode == 1


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
async def test_errors_that_cannot_be_written_are_no_success_either(
    daemon: FakeDaemon, fake: FakeCommand, redirection: str
) -> None:
    async with exec_running(daemon.home.path, "some", redirection=redirection) as process:
        await fake.write(b"lost", "stderr")
        await fake.wait(lambda: fake.terminated)
        assert await read_all(process.stdout) == b""
    assert process.returncode == 1


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-"])
async def test_an_output_that_is_not_needed_may_be_closed(
    daemon: FakeDaemon, fake: FakeCommand, redirection: str
) -> None:
    async with exec_running(daemon.home.path, "some", redirection=redirection) as process:
        await fake.end()
        assert await read_all(process.stderr) == b""
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    "result", [{"exitCode": -1, "signal": "SIGTERM"}, {"exitCode": 143}, {"exitCode": 137}]
)
async def test_the_status_names_the_signal_that_came_here(
    daemon: FakeDaemon, fake: FakeCommand, name: str, result: dict[str, object]
) -> None:
    fake.is_stubborn = True
    async with exec_running(daemon.home.path, "some") as process:
        await fake.wait_started()
        process.send_signal(signal.Signals[name])
        await fake.wait(lambda: fake.terminated)
        await fake.end(result)
        assert await read_all(process.stderr) == b""
    assert process.returncode == 128 + signal.Signals[name]


@pytest.mark.parametrize("name", ["SIGQUIT", "SIGUSR1"])
async def test_any_other_signal_leaves_the_command_to_the_daemon(
    daemon: FakeDaemon, fake: FakeCommand, name: str
) -> None:
    async with exec_running(daemon.home.path, "some") as process:
        await fake.wait_started()
        process.send_signal(signal.Signals[name])
        await process.wait()
    assert not fake.terminated
    assert process.returncode == -signal.Signals[name]
