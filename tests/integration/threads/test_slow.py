"""Clients that do not read: they alone come later, and miss nothing (T 1.7, design 5)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.thread_races import CONFIG, final_state
from tests.support import scripted_model as script
from tests.support.daemon import RunningDaemon
from tests.support.turn_client import TurnClient, id_in, inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

PIECES = [f"piece {number:04d} of a long text; " for number in range(5_000)]


@pytest.fixture(scope="module")
def daemon(model: ScriptedModel) -> Iterator[RunningDaemon]:
    """A daemon that keeps little for a client."""
    home = Path(tempfile.mkdtemp(prefix="roost-"))
    running = RunningDaemon(home, "limits.client_queue_bytes=65536")
    running.configure(CONFIG.format(base_url=model.base_url))
    try:
        running.start()
        yield running
    finally:
        running.close_clients()
        if running.guard is not None:
            running.stop()
        shutil.rmtree(home, ignore_errors=True)


def test_who_does_not_read_misses_nothing_and_delays_nobody(
    daemon: RunningDaemon, model: ScriptedModel
) -> None:
    model.play(script.says(*PIECES))
    client, slow = TurnClient(daemon.socket), TurnClient(daemon.socket)
    thread = client.thread()
    snapshot = slow.call("thread/resume", threadId=thread)
    turn = client.begin(thread)
    ended = client.completed(turn)
    assert ended["status"] == "completed"
    assert client.call("thread/list", limit=0)["threads"] == []
    slow.wait("turn/completed", lambda p: id_in(p) == turn)
    final = client.items(thread)

    assert inside(final[-1], "content")["text"] == "".join(PIECES)
    assert final_state(snapshot, slow.heard) == final
    deltas = [m for m in slow.heard if m["method"] == "item/agentMessage/delta"]
    assert "".join(str(inside(m, "params")["delta"]) for m in deltas) == "".join(PIECES)
    client.close()
    slow.close()
