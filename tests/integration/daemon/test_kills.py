"""SIGKILL at random moments under load; a client's own record of what was acknowledged is held against the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.kills import disturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_what_was_acknowledged_is_there_once_after_20_kills_of_the_store(home: Path) -> None:
    witness, faults = disturbed(home, "store", 20, agents=6, accepted=20)
    assert faults == []
    assert witness.connections == 1
    assert witness.accepted > 20


@pytest.mark.parametrize("kind", ["root", "daemon"])
def test_what_was_acknowledged_is_there_once_after_kills_of_the_daemon(
    home: Path, kind: str
) -> None:
    kills = 5 if kind == "root" else 2
    witness, faults = disturbed(home, kind, kills, agents=4, seed=11, accepted=5)
    assert faults == []
    assert witness.accepted > 5
