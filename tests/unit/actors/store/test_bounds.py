from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from roost.actors.store.bounds import put_right
from roost.actors.store.checks import FullCheck
from roost.actors.store.mend import mend_counters
from roost.actors.store.snapshot import Snapshot
from roost.config.model import Retention as Limits
from roost.schemas.session import Page, ReadPage
from tests.support.store import delta

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.desk import Actor, Book

TURNS = 4
EVENTS = 1 + TURNS * 12
LOWER_LAST = "update counters set last_sequence = 20"
HIDE_TURNS = "update sessions set first_sequence = 27"
HIDE_FIRST = "update sessions set first_sequence = 2"
# As in an imported log.
NO_TURNS = "delete from turns"


@pytest.fixture
def filled(actor: Actor) -> Actor:
    for _ in range(TURNS):
        turn_id = actor.begin()
        actor.send(*(actor.draft(delta(actor.session_id, turn_id, "x")) for _ in range(10)))
        actor.end(turn_id)
    assert counters(actor.book) == (1, EVENTS)
    return actor


def counters(book: Book) -> tuple[int, int]:
    sql = "select first_sequence, last_sequence from sessions join counters on session = key"
    first, last = book.connection.execute(sql).fetchone()
    return first, last


def damaged(actor: Actor, *statements: str) -> Book:
    """The store of a session after a clean stop, damage, and a start."""
    book = actor.book
    book.close()
    book.open()
    for sql in statements:
        book.connection.execute(sql)
    # As a start does, with nothing in memory.
    book.close()
    book.open()
    return book


def told(caplog: pytest.LogCaptureFixture, actor: Actor) -> list[str]:
    found = [one.message for one in caplog.records if one.levelno >= logging.ERROR]
    return [one for one in found if f"session {actor.session_id}" in one]


def read(actor: Actor) -> Page:
    page = actor.book.read(ReadPage(session_id=actor.session_id, after=0))
    assert isinstance(page, Page), page
    return page


DAMAGE = pytest.mark.parametrize(
    "statements",
    [
        (LOWER_LAST,),
        (HIDE_TURNS,),
        (HIDE_FIRST,),
        (HIDE_TURNS, NO_TURNS),
        (NO_TURNS, "update sessions set first_sequence = 26"),
        ("update sessions set first_sequence = 1000",),
        (HIDE_TURNS, "update sessions set removed = 26"),
        (LOWER_LAST, HIDE_TURNS),
    ],
)


@DAMAGE
def test_a_session_with_damaged_counters_is_read_whole_and_goes_on(
    filled: Actor, caplog: pytest.LogCaptureFixture, statements: tuple[str, ...]
) -> None:
    book = damaged(filled, *statements)
    page = read(filled)
    assert (page.first, len(page.bodies), page.lost_upto) == (1, EVENTS, 0)
    assert counters(book) == (1, EVENTS)
    assert told(caplog, filled)
    filled.open()
    turn_id = filled.begin()
    assert filled.end(turn_id) == [EVENTS + 2]


@DAMAGE
def test_retention_removes_nothing_that_a_damaged_row_hides(
    filled: Actor, statements: tuple[str, ...]
) -> None:
    book = damaged(filled, *statements)
    steps = 0
    while book.desk.retention.step() is not None:
        steps += 1
        assert steps < 100
    assert len(read(filled).bodies) == EVENTS


@DAMAGE
@pytest.mark.parametrize("how", ["mend", "check"])
def test_the_checks_after_a_crash_put_damaged_counters_right(
    filled: Actor, caplog: pytest.LogCaptureFixture, statements: tuple[str, ...], how: str
) -> None:
    book = filled.book
    book.hurt(*statements)
    if how == "mend":
        assert filled.session_id in mend_counters(book.connection, {})[0]
        book.desk.recount()
    else:
        check = FullCheck(
            book.connection, lambda error, writing: None, after_crash=True, clock=lambda: 0.0
        )
        slices = 0
        while check.slice():
            slices += 1
            assert slices < 1_000
        assert told(caplog, filled)
    assert counters(book) == (1, EVENTS)


@DAMAGE
def test_another_process_reads_a_session_with_damaged_counters_whole(
    filled: Actor, statements: tuple[str, ...]
) -> None:
    filled.book.hurt(*statements)
    with Snapshot(filled.book.path) as snapshot:
        (found,) = snapshot.sessions()
        assert found == snapshot.session(filled.session_id)
        events = list(snapshot.events(found, found.first_sequence - 1, found.last_sequence))
    assert [sequence for sequence, _ in events] == list(range(1, EVENTS + 1))


def cut(actor: Actor) -> None:
    """Have retention cut the log, and delete nothing of it yet."""
    retention = actor.book.desk.retention
    retention.configure(Limits(session_bytes=5_000, session_days=0, total_bytes=0, closed_days=0))
    while counters(actor.book)[0] == 1:
        assert retention.step() is not None


def delete_some(actor: Actor) -> None:
    cut(actor)
    actor.book.connection.execute("delete from events where sequence <= 5")
    actor.book.connection.execute("update sessions set removed = 5")


def purge(actor: Actor) -> None:
    actor.book.connection.execute("update sessions set state = 'purging', first_sequence = 50")


def fill_an_import(actor: Actor) -> None:
    sql = "update sessions set state = 'importing', first_sequence = 5"
    actor.book.connection.execute(sql)
    actor.book.connection.execute("update counters set last_sequence = 30")


def empty(actor: Actor) -> None:
    actor.book.connection.execute("delete from events")
    actor.book.connection.execute("update sessions set first_sequence = 50, removed = 49")


def misplace_an_event(actor: Actor) -> None:
    actor.book.connection.execute("update events set sequence = 9000 where sequence = 8")


@pytest.mark.parametrize(
    "change", [cut, delete_some, purge, fill_an_import, empty, misplace_an_event]
)
def test_counters_that_may_be_so_are_left_alone(
    filled: Actor, caplog: pytest.LogCaptureFixture, change: Callable[[Actor], None]
) -> None:
    change(filled)
    before = counters(filled.book)
    book = damaged(filled)
    (key,) = book.connection.execute("select key from sessions").fetchone()
    assert put_right(book.connection, key)[1] == []
    with Snapshot(book.path) as snapshot:
        for found in snapshot.sessions():
            assert (found.first_sequence, found.last_sequence) == before
    assert counters(book) == before
    assert not told(caplog, filled)


def test_a_cut_of_a_log_without_rows_of_turns_is_left_alone(filled: Actor) -> None:
    filled.book.connection.execute(NO_TURNS)
    cut(filled)
    before = counters(filled.book)
    assert counters(damaged(filled)) == before


def test_sequences_of_a_log_that_is_all_removed_are_not_given_again(filled: Actor) -> None:
    empty(filled)
    book = damaged(filled, LOWER_LAST)
    filled.open()
    assert counters(book)[0] == EVENTS + 1
    assert filled.send(filled.draft(delta(filled.session_id, "t", "x"))) == [EVENTS + 1]
