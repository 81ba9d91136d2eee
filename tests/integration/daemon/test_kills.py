"""SIGKILL at random moments under load; a client's own record of what was acknowledged is held against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.kills import disturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_what_was_acknowledged_is_there_once_after_20_kills_of_the_store(home: Path) -> None:
    witness, faults = disturbed(home, "store", 20, agents=6)
    assert faults == []
    assert witness.connections == 1
    assert witness.accepted >= 4


@pytest.mark.parametrize("kind", ["root", "daemon"])
def test_what_was_acknowledged_is_there_once_after_kills_of_the_daemon(
    home: Path, kind: str
) -> None:
    witness, faults = disturbed(home, kind, 5 if kind == "root" else 2, agents=4, seed=11)
    assert faults == []
    assert witness.accepted >= 4
