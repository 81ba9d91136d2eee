from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.thread_races import decide_at_once, resume_at_random

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow


def test_a_snapshot_and_what_follows_make_the_final_state(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    assert resume_at_random(daemon.socket, model, 20) > 0


def test_an_approval_is_settled_once_and_both_doors_learn_the_same(
    daemon: RunningDaemon, model: ScriptedModel, tmp_path: Path
) -> None:
    first = decide_at_once(daemon.socket, model, tmp_path, 15)

    assert sum(first.values()) == 15
