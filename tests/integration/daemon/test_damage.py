"""A real daemon that is killed, whose files are hurt, and that is started again."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from bench.daemon import Refusal
from bench.damage import read_all
from roost.actors.store.rescue import newest_report
from tests.support.daemon import RunningDaemon, attach, create_agent, eventually, send_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Json

import pytest

SAY: Json = {"say": "some words " * 200, "chunks": 40}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    running = RunningDaemon(tmp_path / "home")
    running.start()
    yield running
    running.close_clients()
    if running.guard is not None:
        running.stop()


def kill(daemon: RunningDaemon) -> None:
    for process in daemon.processes():
        process.kill()
    daemon.close_clients()
    daemon.wait()


def two_sessions(daemon: RunningDaemon) -> tuple[str, str]:
    client = daemon.client()
    names: list[str] = []
    for number in range(2):
        _, session = create_agent(client)
        attach(client, session, f"first_{number}")
        client.answer(send_script(client, session, SAY))
        names.append(session)
    return names[0], names[1]


def test_a_session_goes_on_behind_a_damaged_event(daemon: RunningDaemon) -> None:
    hurt, other = two_sessions(daemon)
    whole = read_all(daemon, other)
    last = max(read_all(daemon, hurt)[0])
    kill(daemon)
    with sqlite3.connect(daemon.home / "store.db") as connection:
        connection.execute(
            "update events set body = zeroblob(length(body)) where sequence in (3, 4)"
            " and session = (select key from sessions where session_id = ?)",
            (hurt,),
        )
    connection.close()
    daemon.start()
    found, gaps = read_all(daemon, hurt)
    assert gaps == [(3, 4)]
    assert sorted(found) == [1, 2, *range(5, last + 1)]
    assert read_all(daemon, other) == whole
    client = daemon.client()
    attach(client, hurt, "again")
    assert client.answer(send_script(client, hurt, SAY))["outcome"] == "completed"
    assert max(read_all(daemon, hurt)[0]) > last


def test_a_file_without_its_first_page_is_set_aside_and_the_daemon_starts(
    daemon: RunningDaemon,
) -> None:
    two_sessions(daemon)
    assert daemon.stop() == 0
    path = daemon.home / "store.db"
    data = path.read_bytes()
    path.write_bytes(bytes(4096) + data[4096:])
    daemon.start()
    (folder,) = (daemon.home / "damaged").iterdir()
    assert (folder / "store.db").read_bytes()[4096:] == data[4096:]
    assert "an empty one" in (folder / "README.txt").read_text()
    log = (daemon.home / "logs" / "daemon.jsonl").read_text()
    assert "the first page of the old one is gone" in log
    create_agent(daemon.client())


def test_a_write_that_meets_damage_has_the_store_built_anew(daemon: RunningDaemon) -> None:
    """Living agents and clients go on over it."""
    _, session = two_sessions(daemon)
    client = daemon.client()
    path = daemon.home / "store.db"
    old = daemon.pid("store")
    # Folded in, and read anew from the file.
    daemon.kill("store")
    daemon.restarted("store", old)
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        root = connection.execute(
            "select rootpage from sqlite_master where name = 'messages_id'"
        ).fetchone()[0]
    connection.close()
    old = daemon.pid("store")
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    daemon.kill("store")
    daemon.restarted("store", old)
    attach(client, session, "later")
    assert client.answer(send_script(client, session, SAY))["outcome"] == "completed"
    assert (daemon.home / "damaged").is_dir()
    found, gaps = read_all(daemon, session)
    assert not gaps
    assert sorted(found) == list(range(1, len(found) + 1))


def test_a_damaged_index_that_a_read_meets_is_mended_by_itself(daemon: RunningDaemon) -> None:
    two_sessions(daemon)
    assert daemon.stop() == 0
    path = daemon.home / "store.db"
    with sqlite3.connect(path) as connection:
        sql = "select rootpage from sqlite_master where name = 'sqlite_autoindex_sessions_1'"
        (page,) = connection.execute(sql).fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    daemon.start()
    client = daemon.client()

    def ready() -> bool:
        try:
            _, session = create_agent(client)
        except Refusal:
            return False
        return client.answer(send_script(client, session, SAY))["outcome"] == "completed"

    eventually(ready)
    assert newest_report(daemon.home) is not None
