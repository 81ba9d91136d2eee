"""Following a session of a real daemon: from any cursor, in pages of any size, while it streams; and without reading."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client
from bench.turns import script
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    create_agent,
    daemon_in,
    is_method,
    next_note,
)

if TYPE_CHECKING:
    from pathlib import Path

    from bench.daemon import Json

pytestmark = pytest.mark.slow

READERS = 12
# Of this size nothing is merged; a turn of so many pieces is as long as an answer may be.
PIECE = "y" * 4_096
PIECES = 60
TURNS = 200
MIB = 2**20


def follow(daemon: RunningDaemon, session: str, cursor: int) -> Client:
    """Return a connection that goes on after `cursor`."""
    client = Client(daemon.socket, initialize=False)
    daemon.clients.append(client)
    client.initialize(capabilities={"roost.cursors": {session: cursor}})
    return client


def keys(notes: list[Json], session: str) -> list[tuple[object, object]]:
    return [(params["sequence"], params["eventId"]) for params in carriers(notes, session)]


def read_upto(client: Client, session: str, last: int) -> list[tuple[object, object]]:
    """Read until the event `last` has come; return all that came."""
    found = keys(client.notes, session)
    while not found or found[-1][0] != last:
        client.notes.clear()
        client.take(client.read())
        found += keys(client.notes, session)
    return found


@pytest.mark.parametrize("page", [1, 64])
def test_readers_at_random_cursors_miss_and_repeat_nothing_while_the_session_streams(
    home: Path, page: int
) -> None:
    chance = random.Random(page)
    with daemon_in(home, f"store.page_events={page}", "limits.client_queue_bytes=20000") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        numbers = [
            client.send(
                "message.send", sessionId=session, content="go", metadata=script(PIECES, 4, PIECE)
            )
            for _ in range(6)
        ]
        next_note(client, is_method("event.message_chunk", session))
        starts: list[int] = []
        readers: list[Client] = []
        for index in range(READERS):
            for _ in range(chance.randint(1, 10)):
                client.take(client.read())
            seen = keys(client.notes, session)[-1][0]
            assert isinstance(seen, int)
            starts.append(chance.randint(0, seen))
            readers.append(follow(daemon, session, starts[-1]))
            readers[-1].send("session.attach", sessionId=session, clientId=f"r{index}")
        for number in numbers:
            assert client.answer(number)["outcome"] == "completed"
        log = [(sequence, event_id) for sequence, event_id, _ in check_log(home)[session]]
        last = log[-1][0]
        for start, reader in zip(starts, readers, strict=True):
            assert read_upto(reader, session, last) == log[start:]


def front_memory(daemon: RunningDaemon) -> int:
    """Return the resident memory of the front."""
    front = next(node for node in daemon.tree() if node["childId"] == "front")
    with open(f"/proc/{front['pid']}/statm") as file:
        return int(file.read().split()[1]) * 4_096


def stored_bytes(home: Path) -> int:
    database = sqlite3.connect(f"file:{home / 'store.db'}?mode=ro", uri=True)
    try:
        return int(database.execute("select sum(length(body)) from events").fetchone()[0])
    finally:
        database.close()


def test_scenario_22_a_client_that_does_not_read_costs_no_memory_and_gets_exactly_what_it_missed(
    home: Path,
) -> None:
    """100 MB of events pass by it."""
    with daemon_in(home) as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        stuck = follow(daemon, session, 0)
        attach(stuck, session, "stuck")
        before = front_memory(daemon)
        highest = 0
        for _ in range(TURNS):
            answer = client.call(
                "message.send", sessionId=session, content="go", metadata=script(PIECES, 0, PIECE)
            )
            assert answer["outcome"] == "completed"
            client.notes.clear()
            highest = max(highest, front_memory(daemon))
        assert stored_bytes(home) > 100 * 10**6
        assert highest - before < 32 * MIB
        log = [(sequence, event_id) for sequence, event_id, _ in check_log(home)[session]]
        assert read_upto(stuck, session, log[-1][0]) == log
