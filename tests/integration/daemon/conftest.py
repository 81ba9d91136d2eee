from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import RunningDaemon, daemon_in

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path, since a socket's address is short."""
    path = Path(tempfile.mkdtemp(prefix="roost-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(home: Path) -> Iterator[RunningDaemon]:
    with daemon_in(home) as running:
        yield running
