"""A store of an older format with a log whose end is lost: migrated, read as it is, and built anew after damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store import database
from roost.actors.store.copies import copy_store
from roost.actors.store.database import EVENT_BYTES, open_database
from roost.actors.store.rescue import rescue
from roost.actors.store.sealing import seal
from roost.actors.store.snapshot import Snapshot
from roost.schemas import session
from roost.schemas.base import SessionId
from roost.schemas.unions import event_encoder
from tests.support.desk import Book
from tests.support.store import create_agent, delta

if TYPE_CHECKING:
    from pathlib import Path

EVENTS, LAST = 8, 10
FORMATS = range(1, len(database.MIGRATIONS))


@pytest.fixture(params=FORMATS)
def older(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of an older format whose session has lost its last two events."""
    path = tmp_path / "store.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[: request.param])
        old = open_database(path, wal_autocheckpoint=4000)
    made = create_agent("a", "s")
    old.execute(
        "insert into agents(agent_id, created_at, spec) values('a', 7, ?)",
        (msgspec.msgpack.encode(made.spec),),
    )
    old.execute(
        "insert into sessions(session_id, agent_id, created_at, spec, last_sequence)"
        " values('s', 'a', 7, ?, ?)",
        (msgspec.msgpack.encode(made.session), LAST),
    )
    for number in range(1, EVENTS + 1):
        one = delta("s", "t", "x" * number)
        body = event_encoder.encode(one)
        old.execute(
            "insert into events(session, sequence, event_id, type, turn_id, body, crc)"
            " values(1, ?, ?, 'agent.message.delta', 't', ?, ?)",
            (number, one.id, body, seal(1, number, body)),
        )
    if request.param > 1:
        sql = f"update sessions set bytes = (select sum(length(body) + {EVENT_BYTES}) from events)"
        old.execute(sql)
    old.close()
    return path


def known(book: Book) -> tuple[int, int, int]:
    """The last sequence and the size that the store goes on from, and how many events it has."""
    row = book.row(SessionId("s"))
    ((size,),) = book.connection.execute("select bytes from counters").fetchall()
    page = book.read(session.ReadPage(session_id=SessionId("s"), after=0))
    assert isinstance(page, session.Page)
    return row.last_sequence, size, len(page.bodies)


def size(path: Path) -> int:
    with Snapshot(path) as snapshot:
        (found,) = snapshot.sessions()
        assert (found.session_id, found.last_sequence) == ("s", LAST)
        return snapshot.size(found)


def test_a_file_of_an_older_format_keeps_its_counters(older: Path, tmp_path: Path) -> None:
    taken = size(older)
    book = Book(tmp_path)
    assert known(book) == (LAST, taken, EVENTS)
    book.close()
    assert size(older) == taken


def test_a_copy_of_an_older_format_says_what_it_holds(older: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.touch()
    with Snapshot(older) as snapshot:
        holds = copy_store(snapshot, copy)
    assert (holds.sessions, holds.events) == (1, LAST)


def test_a_damaged_file_of_an_older_format_is_built_anew_and_its_loss_is_named(
    older: Path, tmp_path: Path
) -> None:
    taken = size(older)
    rescue(older, "to see")
    report = next((tmp_path / "damaged").glob("*/report.txt")).read_text()
    assert f"{LAST - EVENTS} events of 1 sessions are lost" in report
    book = Book(tmp_path)
    assert known(book) == (LAST, taken, EVENTS)
    threads = book.read(session.ListThreads(limit=10))
    assert isinstance(threads, session.Threads)
    assert [(row.spec.session_id, row.updated_at) for row in threads.threads] == [("s", 7)]
    book.close()


def test_a_session_that_goes_takes_its_counters_with_it(tmp_path: Path) -> None:
    book = Book(tmp_path)
    db = book.connection
    db.execute("delete from sessions")
    assert db.execute("select count(*) from counters").fetchone() == (0,)
    # Whatever is left of another one, a new session begins with its first event.
    db.execute("insert into counters values(1, 7, 7)")
    db.execute(
        "insert into sessions(session_id, agent_id, created_at, spec) values('t', 'a', 1, x'')"
    )
    assert db.execute("select * from counters").fetchall() == [(1, 0, 0)]
    book.close()


def test_counters_that_are_lost_are_found_again(older: Path, tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.connection.execute("delete from counters")
    book.close()
    book.open()
    assert book.desk.journal.session("s") is not None
    assert known(book)[::2] == (EVENTS, EVENTS)
    book.close()
