"""Generated requests, right and wrong ones, against a real daemon; bench/fuzz_threads.py does the same at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import fuzz_threads
from bench.thread_company import play

if TYPE_CHECKING:
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

REQUESTS = 600


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return fuzz_threads.SETTINGS


def test_whatever_is_asked_is_answered_as_contract_and_state_say(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    play(model)
    done = fuzz_threads.fuzz(daemon.socket, REQUESTS, seed=1)

    assert done.wrong == []
    assert sum(done.sent.values()) >= REQUESTS
    assert done.codes["result"] > REQUESTS // 5
    assert {"turn/completed", "approval/requested", "item/completed"} <= done.notes.keys()
