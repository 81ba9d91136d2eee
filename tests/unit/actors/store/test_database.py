from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.store import database
from roost.actors.store.database import (
    APPLICATION_ID,
    lock_database,
    open_database,
    read_meta,
    write_meta,
)
from roost.supervisor.errors import StartError, StartRefused

if TYPE_CHECKING:
    from pathlib import Path


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"pragma {name}").fetchone()[0]


def test_a_new_database_is_set_up_before_its_first_table(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = open_database(path, wal_autocheckpoint=4000)
    assert pragma(connection, "auto_vacuum") == 2
    assert pragma(connection, "application_id") == APPLICATION_ID
    assert pragma(connection, "user_version") == len(database.MIGRATIONS)
    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "synchronous") == 2
    assert pragma(connection, "wal_autocheckpoint") == 4000
    assert path.stat().st_mode & 0o777 == 0o600
    connection.close()


def test_a_write_ahead_log_that_grew_under_a_reader_gets_short_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    log = tmp_path / "store.db-wal"
    connection = open_database(path, wal_autocheckpoint=50)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from meta").fetchone()
    for number in range(20):
        write_meta(connection, "k", "x" * 100_000 + str(number))
    assert log.stat().st_size > 1_000_000
    reader.execute("commit")
    for number in range(3):
        write_meta(connection, "k", str(number))
    assert log.stat().st_size <= 2 * 50 * database.PAGE_BYTES + 100
    reader.close()
    connection.close()


def test_opening_again_keeps_the_epoch(tmp_path: Path) -> None:
    epochs: set[str] = set()
    for _ in range(2):
        connection = open_database(tmp_path / "store.db", wal_autocheckpoint=4000)
        epochs.add(read_meta(connection, "epoch"))
        connection.close()
    assert len(epochs) == 1
    assert epochs.pop()


def test_a_file_that_is_no_database_is_refused_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("not a database, but long enough to look like one" * 20)
    with pytest.raises(StartRefused, match="not a database"):
        open_database(path, wal_autocheckpoint=4000)
    assert path.read_text().startswith("not a database")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute("create table t(x)")
    other.commit()
    other.close()
    with pytest.raises(StartRefused, match="another program"):
        open_database(path, wal_autocheckpoint=4000)


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = open_database(path, wal_autocheckpoint=4000)
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(StartRefused, match="newer version"):
        open_database(path, wal_autocheckpoint=4000)


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StartRefused, match="cannot be opened"):
        open_database(tmp_path / "store.db", wal_autocheckpoint=4000)
    assert not (tmp_path / "elsewhere.db").exists()


async def test_a_new_store_waits_for_the_old_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    old = await lock_database(tmp_path / "store.db")
    got: list[int] = []

    async def wait() -> None:
        got.append(await lock_database(tmp_path / "store.db"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not got
        os.close(old)
    os.close(got[0])


async def test_a_lock_that_is_never_given_up_ends_the_wait(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    held = await lock_database(tmp_path / "store.db")
    with pytest.raises(StartError, match="another store"):
        await lock_database(tmp_path / "store.db")
    with trio.move_on_after(1) as scope:
        await lock_database(tmp_path / "store.db")
    assert scope.cancelled_caught
    os.close(held)
    os.close(await lock_database(tmp_path / "store.db"))


def test_a_file_of_the_second_format_is_brought_up_with_what_can_be_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    newest = database.MIGRATIONS
    monkeypatch.setattr(database, "MIGRATIONS", newest[:2])
    old = open_database(path, wal_autocheckpoint=4000)
    sessions = [(1, 5, 30, 4), (2, 2, 0, 0), (3, 3, 7, 1)]
    for key, turns, tokens_in, tokens_out in sessions:
        old.execute(
            "insert into sessions(key, session_id, agent_id, created_at, spec, turns, input_tokens,"
            " output_tokens, cleared_after) values(?, ?, 'a', 0, x'', ?, ?, ?, 9)",
            (key, f"s{key}", turns, tokens_in, tokens_out),
        )
    # Of the first one's five turns two are gone; of the others one failed and one was interrupted.
    for turn_id, session, outcome in [
        ("t1", 1, "completed"),
        ("t2", 1, "failed"),
        ("t3", 1, "interrupted"),
        ("t4", 2, "completed"),
        ("t5", 2, "completed"),
    ]:
        old.execute(
            "insert into turns(turn_id, session, message_id, generation, state, outcome,"
            " first_sequence) values(?, ?, 'm', 1, 'ended', ?, 1)",
            (turn_id, session, outcome),
        )
    # An imported session has events only.
    old.execute(
        "insert into events(session, sequence, event_id, type, turn_id, body, crc)"
        " values(3, 1, 'e', 'agent.turn.failed', 't', x'', 0)"
    )
    old.execute(
        "insert into tool_ledger(session, call_id, fingerprint, state, at)"
        " values(1, 'c', x'', 'running', 0)"
    )
    old.close()
    monkeypatch.setattr(database, "MIGRATIONS", newest)
    new = open_database(path, wal_autocheckpoint=4000)
    assert pragma(new, "user_version") == len(newest)
    found = new.execute(
        "select completed, total_tokens, requests, cache_read, cache_creation, cleared_after,"
        " cleared_at from sessions order by key"
    ).fetchall()
    assert found == [(3, 34, 0, 0, 0, 9, 0), (2, 0, 0, 0, 0, 9, 0), (2, 8, 0, 0, 0, 9, 0)]
    assert new.execute("select cancel_reason from tool_ledger").fetchone() == (None,)
    new.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_sessions_of_older_formats_get_their_place_among_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = tmp_path / "store.db"
    newest = database.MIGRATIONS
    monkeypatch.setattr(database, "MIGRATIONS", newest[:version])
    old = open_database(path, wal_autocheckpoint=4000)
    old.execute(
        "insert into agents(agent_id, created_at, spec, last_active_at) values('a', 1, x'', 50)"
    )
    sessions = [
        ("s1", "a", 10, "open", 0),
        ("s2", "a", 10, "closed", 30),
        ("s3", "b", 20, "open", 0),
    ]
    for session_id, agent_id, created_at, state, closed_at in sessions:
        old.execute(
            "insert into sessions(session_id, agent_id, created_at, spec, state, closed_at)"
            " values(?, ?, ?, x'', ?, ?)",
            (session_id, agent_id, created_at, state, closed_at),
        )
    old.execute(
        "insert into messages(session, message_id, client_message_id, sha256, stream_id,"
        " accepted_at, content, text, hidden, metadata)"
        " values(1, 'm', '', x'', '', 0, x'', 'hello', 0, x'7b7d')"
    )
    old.close()
    monkeypatch.setattr(database, "MIGRATIONS", newest)
    new = open_database(path, wal_autocheckpoint=4000)
    assert pragma(new, "user_version") == len(newest)
    assert read_meta(new, "format") == str(len(newest))
    found = new.execute(
        "select session_id, updated_at, preview, ephemeral from sessions order by key"
    ).fetchall()
    assert found == [("s1", 50, "", 0), ("s2", 30, "", 0), ("s3", 20, "", 0)]
    waiting = new.execute("select text, planned, steering, model, input from messages").fetchall()
    assert waiting == [("hello", "", 0, "", b"")]
    new.close()
