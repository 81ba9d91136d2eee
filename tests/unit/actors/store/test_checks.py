from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roost.actors.store.checks import FullCheck
from tests.support.store import delta

if TYPE_CHECKING:
    import pytest

    from tests.support.desk import Actor, Book


def run(book: Book) -> tuple[FullCheck, list[str]]:
    met: list[str] = []
    check = FullCheck(
        book.connection,
        lambda error, writing: met.append(str(error)),
        after_crash=True,
        clock=lambda: 0.0,
    )
    slices = 0
    while check.slice(0.0001):
        slices += 1
        assert slices < 10_000
    return check, met


def filled(actor: Actor, events: int = 700) -> Book:
    turn_id = actor.begin()
    actor.send(*(actor.draft(delta(actor.session_id, turn_id, "x")) for _ in range(events)))
    return actor.book


def test_a_sound_log_is_found_sound(actor: Actor, caplog: pytest.LogCaptureFixture) -> None:
    book = filled(actor)
    with caplog.at_level(logging.ERROR):
        assert run(book)[1] == []
    assert not caplog.records


def test_damaged_and_missing_events_are_named(
    actor: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    book = filled(actor)
    book.connection.execute("update events set body = x'7b7d' where sequence = 5")
    book.connection.execute("update events set sequence = 9000 where sequence = 8")
    book.connection.execute("delete from events where sequence = 600")
    run(book)
    told = "\n".join(record.message for record in caplog.records)
    for sequence in (5, 8, 600, 9000):
        assert f"event {sequence} of session {actor.session_id} is damaged" in told


def test_an_index_that_does_not_lead_to_its_row_asks_for_a_new_file(actor: Actor) -> None:
    book = filled(actor, 20)
    db = book.connection
    db.execute("pragma writable_schema = on")
    sql = "create unique index events_id on events(event_id)"
    wrong = db.execute(
        "update sqlite_master set sql = ? where name = 'events_id'", (f"{sql} where key > 3",)
    )
    assert wrong.rowcount == 1
    db.execute("pragma writable_schema = reset")
    db.execute("reindex events_id")
    db.execute("pragma writable_schema = on")
    db.execute("update sqlite_master set sql = ? where name = 'events_id'", (sql,))
    db.execute("pragma writable_schema = reset")
    assert run(book)[1]
