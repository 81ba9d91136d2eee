from __future__ import annotations

from typing import TYPE_CHECKING

from roost.schemas import session
from tests.support.store import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.desk import Actor, Book

ADD = "insert into sessions(session_id, agent_id, created_at, spec) values(?, 'nobody', ?, x'')"
EVENT = """insert into events(session, sequence, event_id, type, turn_id, body, crc)
    values(?, 1, ?, 'x', '', x'', 0)"""


def counts(book: Book) -> session.Counts:
    found = book.read(session.Count())
    assert isinstance(found, session.Counts)
    return found


def steps(book: Book, action: Callable[[], object]) -> int:
    """Return how many instructions SQLite has carried out for an action."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    book.connection.set_progress_handler(count, 1)
    try:
        action()
    finally:
        book.connection.set_progress_handler(None, 1)
    return taken


def test_the_figures_cost_the_same_with_many_sessions_and_a_long_history(
    book: Book, actor: Actor
) -> None:
    actor.begin()
    few = steps(book, lambda: counts(book))
    db = book.connection
    db.execute("begin")
    for number in range(2_000):
        key = db.execute(ADD, (f"session_{number}", number)).lastrowid
        db.execute(EVENT, (key, f"event_{number}"))
        db.execute("update counters set last_sequence = 1 where session = ?", (key,))
    book.desk.recount()
    db.execute("commit")
    assert counts(book).active == 2_001
    assert steps(book, lambda: counts(book)) <= few + 10


def test_a_rollback_takes_the_figures_back(book: Book, actor: Actor) -> None:
    before = counts(book)
    db = book.connection
    db.execute("begin")
    db.execute(ADD, ("another", 1))
    db.execute("delete from sessions where session_id = ?", (actor.session_id,))
    db.execute("rollback")
    assert counts(book) == before


def test_a_session_counts_by_its_state_whatever_changes_with_it(book: Book) -> None:
    db = book.connection
    key = db.execute(ADD, ("one", 1)).lastrowid
    set_last = "update counters set last_sequence = ? where session = ?"
    set_both = "update sessions set state = ?, first_sequence = ? where key = ?"
    for state, last, first in (
        ("importing", 5, 1),
        ("open", 9, 3),
        ("closing", 12, 4),
        ("closed", 12, 8),
        ("purging", 12, 12),
        ("open", 2, 1),
        ("purging", 7, 1),
        ("importing", 3, 3),
    ):
        db.execute(set_last, (last, key))
        assert book.figures() == book.counted(), state
        db.execute(set_both, (state, first, key))
        assert book.figures() == book.counted(), state
    db.execute("delete from sessions where key = ?", (key,))


def test_a_store_that_is_opened_again_counts_what_is_there(book: Book, actor: Actor) -> None:
    actor.begin()
    book.ask(message(actor.session_id))
    before = counts(book)
    assert (before.queued, before.turns_open) == (1, 1)
    assert before.work == (session.AgentWork(actor.agent_id, 1, 1, 0),)
    book.close()
    book.open()
    assert counts(book) == before
