"""Clients that do not read: they alone come later, and miss nothing (T 1.7, design 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.thread_races import final_state
from tests.support import scripted_model as script
from tests.support.turn_client import TurnClient, id_in, inside

if TYPE_CHECKING:
    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

PIECES = [f"piece {number:04d} of a long text; " for number in range(5_000)]
TURNS = 3
"""More than the buffers between daemon and client hold."""


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    """Little is kept for a client."""
    return ("limits.client_queue_bytes=65536",)


def test_who_does_not_read_misses_nothing_and_delays_nobody(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    model.play(script.says(*PIECES))
    client, slow = TurnClient(daemon.socket), TurnClient(daemon.socket)
    thread = client.thread()
    snapshot = slow.call("thread/resume", threadId=thread)
    turn = ""
    for _ in range(TURNS):
        turn = client.begin(thread)
        assert client.completed(turn)["status"] == "completed"
    assert client.call("thread/list", limit=0)["threads"] == []
    slow.wait("turn/completed", lambda p: id_in(p) == turn)
    final = client.items(thread)

    assert inside(final[-1], "content")["text"] == "".join(PIECES)
    assert final_state(snapshot, slow.heard) == final
    deltas = [m for m in slow.heard if m["method"] == "item/agentMessage/delta"]
    assert "".join(str(inside(m, "params")["delta"]) for m in deltas) == "".join(PIECES) * TURNS
    (warned,) = [m for m in slow.heard if m["method"] == "error/warning"]
    assert inside(warned, "params")["code"] == "slow_consumer"
    assert inside(warned, "params")["threadId"] == thread
    assert "error/warning" not in client.methods()
    client.close()
    slow.close()
