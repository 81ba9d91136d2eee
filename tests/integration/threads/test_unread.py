"""Clients that ask for much and read nothing: each costs itself its connection, and nobody else anything (T 1.7, 8)."""

from __future__ import annotations

import select
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.daemon import eventually
from tests.support.turn_client import TurnClient

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel

    Connect = Callable[..., TurnClient]

pytestmark = pytest.mark.slow

LONG = "Z" * 1_000_000
REQUESTS = 40
"""Of each the answer has that length: more than a client may leave unread."""


def hung_up(sock: socket.socket) -> bool:
    """Return whether the daemon has closed a connection, of which nothing is read."""
    poll = select.poll()
    poll.register(sock, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


@pytest.mark.parametrize("method", ["thread/read", "thread/resume"])
def test_who_reads_no_answer_is_let_go_alone(
    daemon: RunningDaemon, connect: Connect, model: ScriptedModel, method: str
) -> None:
    model.play(script.says("ok"))
    other = connect()
    thread = other.thread()
    other.completed(other.begin(thread, LONG))
    front = daemon.pid("front")
    for _ in range(3):
        deaf = TurnClient(daemon.socket)
        for _ in range(REQUESTS):
            deaf.send(method, threadId=thread)
        eventually(partial(hung_up, deaf.sock))
        deaf.close()
    assert other.turn(other.thread(), "go on")["status"] == "completed"
    assert daemon.pid("front") == front
