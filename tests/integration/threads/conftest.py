"""One daemon for a module's tests, whose agents think with a scripted model; a test plays its answers."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.thread_schema import Check
from tests.support.daemon import RunningDaemon
from tests.support.left_behind import none_left_behind
from tests.support.scripted_model import ScriptedModel, scripted_model_in_thread
from tests.support.thread_client import ThreadClient
from tests.support.thread_walk import Names, SocketWalk, Walk
from tests.support.turn_client import TurnClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG = """
[agents]
provider = "local"

[providers.local]
base_url = "{base_url}"
model = "m"
max_retries = 0
"""


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Looked at once a module: the agents of its daemon go on from test to test."""
    with none_left_behind():
        yield


@pytest.fixture(scope="module", autouse=True)
def checked() -> Iterator[None]:
    """Hold every message of the daemon against the schema that it exports."""
    ThreadClient.check = Walk.check = Check()
    yield
    ThreadClient.check = Walk.check = None


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    """What the module's daemon is started with; a module may have its own."""
    return ()


@pytest.fixture(scope="module")
def daemon(model: ScriptedModel, settings: tuple[str, ...]) -> Iterator[RunningDaemon]:
    home = Path(tempfile.mkdtemp(prefix="roost-"))
    running = RunningDaemon(home, *settings)
    running.configure(CONFIG.format(base_url=model.base_url))
    try:
        running.start()
        yield running
    finally:
        running.close_clients()
        if running.guard is not None:
            running.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def connect(daemon: RunningDaemon) -> Iterator[Callable[..., TurnClient]]:
    """Return what opens connections of thread clients; they are closed after the test."""
    opened: list[TurnClient] = []

    def connect(**capabilities: object) -> TurnClient:
        opened.append(TurnClient(daemon.socket, capabilities=capabilities))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., TurnClient]) -> TurnClient:
    return connect()


@pytest.fixture
def walks(daemon: RunningDaemon) -> Iterator[Callable[..., SocketWalk]]:
    """Return what opens connections that are walked through; they are closed after the test."""
    opened: list[SocketWalk] = []

    def connect(names: Names | None = None, **further: object) -> SocketWalk:
        opened.append(SocketWalk(daemon.socket, names, **further))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def walk(walks: Callable[..., SocketWalk]) -> SocketWalk:
    return walks()
