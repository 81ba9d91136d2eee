"""Much at once: everything is answered, and nobody else waits for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Json, Refusal
from tests.support.daemon import RunningDaemon, carriers, check_log, create_agent

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

CLIENTS = 60
LARGE = "m" * 900_000


def reader(daemon: RunningDaemon, session: str) -> Client:
    client = Client(daemon.socket, initialize=False)
    daemon.clients.append(client)
    capabilities = {"roost.cursors": {session: 0}}
    client.call("initialize", protocolVersion="1.0.0", capabilities=capabilities)
    return client


def test_many_clients_that_catch_up_on_a_large_log_hold_up_nobody(
    home: Path, daemon: RunningDaemon
) -> None:
    """Their pages together are several times what the link between store and front may hold."""
    client = daemon.client()
    _, session = create_agent(client)
    for _ in range(6):
        answer = client.call(
            "message.send", sessionId=session, content=LARGE, metadata={"script": [{"say": "ok"}]}
        )
        assert answer["outcome"] == "completed"
    everything = list(range(1, len(check_log(home)[session]) + 1))
    readers = [reader(daemon, session) for _ in range(CLIENTS)]
    numbers = [
        one.send("session.attach", sessionId=session, clientId=f"c{index}")
        for index, one in enumerate(readers)
    ]
    seen: list[list[object]] = []

    def read(one: Client, number: int) -> None:
        one.answer(number)
        seen.append([params["sequence"] for params in carriers(one.notes, session)])

    threads = [
        threading.Thread(target=read, args=pair) for pair in zip(readers, numbers, strict=True)
    ]
    for thread in threads:
        thread.start()
    other = daemon.client()
    began = time.monotonic()
    _, elsewhere = create_agent(other)
    assert (
        other.call("message.send", sessionId=elsewhere, content="hello")["outcome"] == "completed"
    )
    assert time.monotonic() - began < 10
    for thread in threads:
        thread.join()
    assert seen == [everything] * CLIENTS


def test_a_list_of_large_records_is_read_in_shorter_pages(daemon: RunningDaemon) -> None:
    client = daemon.client()
    made = {create_agent(client)[0] for _ in range(2)}
    for _ in range(5):
        created = client.call(
            "agent.create",
            objective="x",
            initialContent=[],
            metadata={"sandbox": "dangerFullAccess", "notes": "n" * 600_000},
        )
        made.add(str(created["agentId"]))
    listed: set[str] = set()
    cursor: Json = {}
    pages = 0
    while True:
        page = client.call("agent.list", **cursor)
        agents: list[Json] = page["agents"]  # type: ignore[assignment]
        listed |= {str(entry["agentId"]) for entry in agents}
        pages += 1
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert listed == made
    assert pages > 1


def test_metadata_larger_than_an_event_is_refused(daemon: RunningDaemon) -> None:
    client = daemon.client()
    with pytest.raises(Refusal) as refusal:
        client.call("agent.create", objective="x", metadata={"notes": "n" * 1_100_000})
    error: Json = refusal.value.args[0]
    assert error["data"]["code"] == "INPUT_TOO_LARGE"  # type: ignore[index]
    assert client.call("agent.list")["agents"] == []
