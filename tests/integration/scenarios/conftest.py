"""The acceptance scenarios of the daemon protocol over a real daemon: `test_scenario_NN_…`, NN as in its section 27.

A scenario that harms nobody shares its module's daemon; one that kills or stops has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import RunningDaemon, daemon_in
from tests.support.left_behind import none_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Looked at once a module: the agents of its daemon go on from test to test."""
    with none_left_behind():
        yield


@pytest.fixture(autouse=True)
def no_client_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the clients that a test has opened, and free their names."""
    if "shared" not in request.fixturenames:
        yield
        return
    shared: RunningDaemon = request.getfixturevalue("shared")
    before = list(shared.clients)
    yield
    for client in shared.clients:
        if client not in before:
            client.close()
    shared.clients[:] = before


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    """What the module's daemon is started with; a module may have its own."""
    return ()


@pytest.fixture(scope="module")
def shared(shared_home: Path, settings: tuple[str, ...]) -> Iterator[RunningDaemon]:
    with daemon_in(shared_home, *settings) as running:
        yield running


@pytest.fixture
def daemon(home: Path) -> Iterator[RunningDaemon]:
    with daemon_in(home) as running:
        yield running
