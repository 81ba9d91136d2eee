"""Kill processes of a daemon, and look at threads afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, cast

from bench.thread_races import final_state
from tests.support.daemon import eventually
from tests.support.turn_client import TurnClient, inside

if TYPE_CHECKING:
    from tests.support.daemon import RunningDaemon
    from tests.support.thread_client import Json


def by_id(items: list[Json]) -> dict[object, tuple[object, object]]:
    """Return type and text of items by their ids."""
    return {i["id"]: (i["type"], inside(i, "content").get("text")) for i in items}


def kill_root(daemon: RunningDaemon) -> None:
    """Kill root, and with it everything; start the daemon again."""
    os.kill(daemon.root_pid, signal.SIGKILL)
    assert daemon.wait() == 128 + signal.SIGKILL
    daemon.start()


def kill(daemon: RunningDaemon, victim: str) -> None:
    """Kill a process of the daemon; root is started again by hand."""
    if victim == "root":
        kill_root(daemon)
    else:
        daemon.kill(victim)


def opened(daemon: RunningDaemon) -> TurnClient:
    """Return a new connection as soon as there is somebody to greet."""
    found: list[TurnClient] = []

    def open_one() -> bool:
        with contextlib.suppress(ConnectionError, FileNotFoundError):
            found.append(TurnClient(daemon.socket))
        return bool(found)

    eventually(open_one)
    return found[0]


def agent_of(daemon: RunningDaemon, thread: str) -> str:
    """Return the id of the agent that a thread has."""
    sessions = cast("list[Json]", daemon.client().call("session.list", limit=1000)["sessions"])
    return next(str(one["agentId"]) for one in sessions if one["sessionId"] == thread)


def resumed(client: TurnClient, thread: str) -> Json:
    """Follow a thread until no turn is open; see that the page and what was told are what is read then."""
    page = client.call("thread/resume", threadId=thread)
    while (row := inside(client.call("thread/read", threadId=thread), "thread"))[
        "status"
    ] != "idle":
        client.completed(str(row["activeTurnId"]))
    assert final_state(page, of_thread(client, thread)) == client.items(thread)
    return page


def of_thread(client: TurnClient, thread: str) -> list[Json]:
    """Return what was told of a thread but what was asked again, which has the sequence that it had."""
    return [
        note
        for note in client.heard
        if inside(note, "params").get("threadId") == thread
        and note["method"] != "approval/requested"
    ]
