from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import RunningDaemon, daemon_in
from tests.support.exec import wait_none_left

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Client


@pytest.fixture
def daemon(home: Path) -> Iterator[RunningDaemon]:
    with daemon_in(home) as running:
        yield running


@pytest.fixture(scope="module")
def shared(shared_home: Path) -> Iterator[RunningDaemon]:
    """One for the tests of a module that harm nobody."""
    with daemon_in(shared_home) as running:
        yield running


@pytest.fixture
def client(shared: RunningDaemon) -> Iterator[Client]:
    """A client whose commands leave nothing."""
    found = shared.client()
    yield found
    found.close()
    wait_none_left(shared)
