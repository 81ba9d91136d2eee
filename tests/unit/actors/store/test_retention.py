from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.errors import NotFound, WrongState
from roost.actors.store import database
from roost.actors.store.database import EVENT_BYTES
from roost.actors.store.remains import Remains
from roost.actors.store.retention import DAY
from roost.config.model import Retention as Limits
from roost.schemas import agent, session, turn
from roost.schemas.base import AgentId
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import delta, final, make, message, user_message

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.event import AnyEvent

STEPS = 3_000


def limits(
    *, session_bytes: int = 0, session_days: int = 0, total_bytes: int = 0, closed_days: int = 0
) -> Limits:
    return Limits(
        session_bytes=session_bytes,
        session_days=session_days,
        total_bytes=total_bytes,
        closed_days=closed_days,
    )


def settle(book: Book) -> int:
    """Do all that retention has to do; return in how many steps."""
    for step in range(STEPS):
        if book.desk.retention.step() is None:
            return step
    raise AssertionError("retention does not come to an end")


def play(actor: Actor, *, events: int = 3, size: int = 1000, at: float = 1.0) -> str:
    """Have a turn with its first and last event and some text in between."""
    turn_id = actor.begin()
    texts = [delta(actor.session_id, turn_id, "x" * size) for _ in range(events)]
    actor.send(*(actor.draft(msgspec.structs.replace(text, timestamp=at)) for text in texts))
    done = msgspec.structs.replace(final(actor.session_id, turn_id), timestamp=at)
    (answer,) = actor.send(actor.draft(done, turn.EndTurn(turn_id=turn_id, outcome="completed")))
    assert isinstance(answer, int)
    actor.book.desk.retention.after_commit()
    return turn_id


def close(actor: Actor) -> None:
    actor.book.ask(session.CloseSession(session_id=actor.session_id))
    actor.book.desk.retention.after_commit()


def size_of(actor: Actor) -> tuple[int, int]:
    """Return what the counter says, and what the rows say, of what a session takes."""
    sql = """select c.bytes, coalesce((select sum(length(body) + ?) from events e
        where e.session = s.key), 0) from sessions s join counters c on c.session = s.key
        where s.session_id = ?"""
    row = actor.book.connection.execute(sql, (EVENT_BYTES, actor.session_id)).fetchone()
    return row[0], row[1]


def page(actor: Actor, after: int = 0) -> session.Page:
    found = actor.book.read(session.ReadPage(session_id=actor.session_id, after=after))
    assert isinstance(found, session.Page), found
    return found


def count(book: Book, table: str) -> int:
    return int(book.connection.execute(f"select count(*) from {table}").fetchone()[0])


def test_as_shipped_nothing_is_removed_and_nothing_is_looked_at(actor: Actor) -> None:
    play(actor)
    settle(actor.book)
    assert not actor.book.desk.retention.after_commit()
    assert actor.book.row(actor.session_id).first_sequence == 1


def test_the_bytes_of_a_session_are_counted_as_it_grows(actor: Actor) -> None:
    play(actor)
    counted, real = size_of(actor)
    assert counted == real > 3000
    actor.book.close()
    actor.book.open()
    actor.open()
    play(actor)
    counted, real = size_of(actor)
    assert counted == real > 6000


def test_a_group_that_fails_is_not_counted(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    play(actor)
    before = size_of(actor)
    journal = actor.book.desk.journal
    total = journal.total_bytes
    journal.begin()
    found = journal.session(actor.session_id)
    assert found is not None
    journal.append(found, "e", "session.closed", "", b"{}")
    journal.rollback()
    assert (size_of(actor), journal.total_bytes) == (before, total)


def test_the_oldest_turns_of_a_session_go_when_it_is_too_large(actor: Actor) -> None:
    actor.book.desk.retention.configure(limits(session_bytes=10_000))
    turns = [play(actor) for _ in range(5)]
    settle(actor.book)
    row = actor.book.row(actor.session_id)
    assert row.first_sequence > 1
    counted, real = size_of(actor)
    assert counted == real <= 10_000
    found = page(actor)
    assert (found.lost_upto, found.first) == (row.first_sequence - 1, row.first_sequence)
    assert len(found.bodies) == row.last_sequence - row.first_sequence + 1
    assert actor.book.log(actor.session_id)[0] == "user.message"
    kept = actor.book.connection.execute("select turn_id from turns order by key").fetchall()
    assert [name for (name,) in kept] == turns[-len(kept) :]


def test_sequences_go_on_and_the_counts_stay_right(actor: Actor) -> None:
    actor.book.desk.retention.configure(limits(session_bytes=6_000))
    for _ in range(4):
        play(actor)
        settle(actor.book)
    row = actor.book.row(actor.session_id)
    assert row.last_sequence == 1 + 4 * 5
    actor.book.close()
    actor.book.open()
    actor.open()
    assert actor.send(actor.draft(delta(actor.session_id, "t", "x"))) == [22]


def test_the_newest_turn_stays_whatever_its_size(actor: Actor) -> None:
    actor.book.desk.retention.configure(limits(session_bytes=1_000, total_bytes=1_000))
    play(actor)
    play(actor, events=9)
    settle(actor.book)
    log = actor.book.log(actor.session_id)
    assert len(log) == 11
    assert not actor.book.desk.retention.after_commit()


def test_an_open_turn_and_what_waits_in_it_stay(actor: Actor) -> None:
    actor.book.time = 100 * DAY
    actor.book.desk.retention.configure(
        limits(session_bytes=1, session_days=1, total_bytes=1, closed_days=1)
    )
    play(actor)
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "call_1")
    actor.book.desk.retention.after_commit()
    actor.book.desk.retention.look()
    settle(actor.book)
    assert actor.book.log(actor.session_id) == [
        "user.message",
        "tool.call.requested",
        "tool.approval.requested",
    ]
    opened = actor.open()
    assert opened.turn is not None
    assert opened.turn.first_sequence == actor.book.row(actor.session_id).first_sequence
    assert [row.request_id for row in opened.turn.pending] == ["call_1"]


def test_a_message_of_a_removed_turn_is_still_known_to_its_client(actor: Actor) -> None:
    request = message(actor.session_id, client_message_id="c1")
    accepted = actor.book.ask(request)
    assert isinstance(accepted, turn.Accepted)
    turn_id = actor.begin(accepted)
    actor.end(turn_id)
    play(actor)
    actor.book.desk.retention.configure(limits(session_bytes=1))
    settle(actor.book)
    assert count(actor.book, "turns") == 1
    again = actor.book.ask(msgspec.structs.replace(request, message_id="other"))
    assert isinstance(again, turn.Accepted)
    assert (again.duplicate, again.state, again.turn_id) == (True, "ended", turn_id)


def test_settled_requests_go_with_their_turn(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "call_1")
    actor.end(turn_id)
    play(actor)
    assert count(actor.book, "pending") == 1
    actor.book.desk.retention.configure(limits(session_bytes=1))
    settle(actor.book)
    assert count(actor.book, "pending") == 0


def test_a_turn_begun_again_under_a_removed_id_is_refused(actor: Actor) -> None:
    accepted = actor.accept()
    turn_id = actor.begin(accepted)
    actor.end(turn_id)
    play(actor)
    actor.book.desk.retention.configure(limits(session_bytes=1))
    settle(actor.book)
    again = turn.BeginTurn(turn_id=turn_id, message_id=accepted.message_id)
    draft = actor.draft(user_message(actor.session_id, turn_id), again)
    assert actor.send(draft) == ["ALREADY_SETTLED"]


def test_a_long_turn_is_removed_in_short_steps(actor: Actor) -> None:
    play(actor, events=3_000, size=10)
    play(actor)
    actor.book.desk.retention.configure(limits(session_bytes=10_000))
    assert settle(actor.book) >= 3_000 // 256 + 3_000 // 1024
    assert len(actor.book.log(actor.session_id)) == 5
    counted, real = size_of(actor)
    assert counted == real


def test_what_has_been_cut_is_out_of_sight_before_it_is_deleted(actor: Actor) -> None:
    play(actor, events=2_000, size=10)
    play(actor)
    book = actor.book
    book.desk.retention.configure(limits(session_bytes=10_000))
    for _ in range(STEPS):
        book.desk.retention.step()
        if book.row(actor.session_id).first_sequence > 1:
            break
    assert count(book, "events") > 2_000
    assert page(actor).lost_upto == 2003
    assert len(page(actor).bodies) == 5
    assert book.desk.read("", session.Count()).events == 5  # type: ignore[attr-defined]
    # What is left is done by the next store, whatever its bounds.
    book.close()
    book.open()
    settle(book)
    assert count(book, "events") == 5
    assert settle(book) == 0


def test_overall_the_oldest_turn_of_all_goes_first(book: Book) -> None:
    first, second = with_actor(book), with_actor(book)
    for _ in range(3):
        play(first)
        play(second)
    total = sum(size_of(actor)[0] for actor in (first, second))
    book.desk.retention.configure(limits(total_bytes=total - 1))
    settle(book)
    assert book.row(first.session_id).first_sequence == 7
    assert book.row(second.session_id).first_sequence == 1
    total = sum(size_of(actor)[0] for actor in (first, second))
    book.desk.retention.configure(limits(total_bytes=total - 1))
    settle(book)
    assert book.row(first.session_id).first_sequence == 7
    assert book.row(second.session_id).first_sequence == 7


def test_overall_closed_sessions_go_first_and_whole(book: Book) -> None:
    old, closed = with_actor(book), with_actor(book)
    play(old)
    play(old)
    play(closed)
    close(closed)
    total = sum(size_of(actor)[0] for actor in (old, closed))
    book.desk.retention.configure(limits(total_bytes=total - size_of(closed)[0]))
    settle(book)
    assert book.row(old.session_id).first_sequence == 1
    row = book.row(closed.session_id)
    assert row.first_sequence == row.last_sequence + 1
    assert page(closed).lost_upto == row.last_sequence
    assert page(closed).bodies == ()


def test_the_whole_is_counted_through_commits_and_cuts(book: Book) -> None:
    actors = [with_actor(book) for _ in range(3)]
    book.desk.retention.configure(limits(total_bytes=20_000))
    real = 0
    for number in range(12):
        play(actors[number % 3])
        settle(book)
        real = sum(size_of(actor)[1] for actor in actors)
        assert book.desk.journal.total_bytes == real
    assert real <= 20_000


def test_turns_that_ended_long_ago_go_even_the_newest(book: Book) -> None:
    old, mixed = with_actor(book), with_actor(book)
    play(old, at=1 * DAY)
    play(mixed, at=1 * DAY)
    kept = play(mixed, at=9 * DAY)
    book.time = 10 * DAY
    book.desk.retention.configure(limits(session_days=3))
    settle(book)
    row = book.row(old.session_id)
    assert row.first_sequence == row.last_sequence + 1
    assert size_of(old) == (0, 0)
    assert book.log(mixed.session_id) == [
        "user.message",
        *["agent.message.delta"] * 3,
        "agent.message.completed",
    ]
    names = book.connection.execute("select turn_id from turns").fetchall()
    assert names == [(kept,)]
    assert play(old, at=9.5 * DAY)
    book.time = 12.1 * DAY
    book.desk.retention.look()
    settle(book)
    assert book.row(mixed.session_id).first_sequence == 12
    assert len(book.log(old.session_id)) == 5


def test_a_session_whose_log_is_gone_goes_on(actor: Actor) -> None:
    play(actor, at=1.0)
    actor.book.time = 10 * DAY
    actor.book.desk.retention.configure(limits(session_days=1))
    settle(actor.book)
    assert page(actor).bodies == ()
    assert (page(actor).first, page(actor).lost_upto) == (7, 6)
    watched = actor.book.read(session.Watch(session_id=actor.session_id))
    assert isinstance(watched, session.Watched)
    play(actor, at=10 * DAY)
    assert (page(actor).first, len(page(actor).bodies)) == (7, 5)


def test_sessions_closed_long_ago_and_agents_that_ended_are_removed(book: Book) -> None:
    gone, stays = with_actor(book), with_actor(book)
    for actor in (gone, stays):
        play(actor)
    book.time = 1 * DAY
    book.ask(agent.EndAgent(agent_id=AgentId(gone.agent_id), reason="r"))
    book.ask(agent.FinishAgent(agent_id=AgentId(gone.agent_id)))
    book.time = 3 * DAY
    close(stays)
    book.time = 4.5 * DAY
    book.desk.retention.configure(limits(closed_days=2))
    settle(book)
    answer = book.read(session.GetSession(session_id=gone.session_id))
    assert getattr(answer, "code", "") == "SESSION_NOT_FOUND"
    answer = book.read(agent.GetAgent(agent_id=AgentId(gone.agent_id)))
    assert getattr(answer, "code", "") == "AGENT_NOT_FOUND"
    assert book.row(stays.session_id).state == "closed"
    assert [count(book, table) for table in ("sessions", "turns", "messages", "agents")] == [1] * 4


def test_an_ended_agent_with_a_session_left_stays(book: Book) -> None:
    actor = with_actor(book)
    book.time = 1 * DAY
    book.ask(agent.EndAgent(agent_id=AgentId(actor.agent_id), reason="r"))
    book.ask(agent.FinishAgent(agent_id=AgentId(actor.agent_id)))
    book.connection.execute("update sessions set closed_at = ?", (4 * DAY * 1000,))
    book.time = 5 * DAY
    book.desk.retention.configure(limits(closed_days=2))
    settle(book)
    assert isinstance(book.read(agent.GetAgent(agent_id=AgentId(actor.agent_id))), agent.AgentRow)


def purge(book: Book, session_id: str) -> None:
    book.desk.tidy(lambda: book.desk.retention.purge(session_id))


def test_a_purged_session_leaves_nothing_and_frees_its_id(book: Book) -> None:
    actor = with_actor(book)
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "call_1")
    actor.end(turn_id)
    play(actor)
    close(actor)
    book.connection.execute("update pending set state = 'settled'")
    purge(book, actor.session_id)
    answer = book.read(session.ReadPage(session_id=actor.session_id, after=0))
    assert getattr(answer, "code", "") == "SESSION_NOT_FOUND"
    listed = book.read(session.ListSessions(limit=10))
    assert isinstance(listed, session.Sessions)
    assert listed.sessions == ()
    # The id is free before its rows are gone.
    spec = session.SessionSpec(
        session_id=actor.session_id, agent_id=AgentId(actor.agent_id), created_at=1
    )
    created = book.ask(session.CreateSession(session=spec))
    assert isinstance(created, session.SessionRow)
    assert created.last_sequence == 1
    settle(book)
    tables = ("sessions", "events", "turns", "messages", "pending", "grants")
    assert [count(book, table) for table in tables] == [1, 1, 0, 0, 0, 0]


def test_a_purge_that_was_cut_short_is_finished_after_a_restart(book: Book) -> None:
    actor = with_actor(book)
    play(actor, events=1_500, size=1)
    close(actor)
    purge(book, actor.session_id)
    for _ in range(10):
        book.desk.retention.step()
    book.close()
    book.open()
    settle(book)
    assert [count(book, table) for table in ("sessions", "events", "turns", "messages")] == [0] * 4


def test_a_purge_of_what_is_in_use_is_refused(book: Book) -> None:
    actor = with_actor(book)
    with pytest.raises(NotFound):
        purge(book, "unknown")
    actor.begin()
    with pytest.raises(WrongState) as caught:
        purge(book, actor.session_id)
    assert caught.value.code == "SESSION_PURGE_BUSY"
    assert book.row(actor.session_id).last_sequence == 2


def test_a_bound_changed_while_it_runs_counts_at_once(actor: Actor) -> None:
    for _ in range(4):
        play(actor)
    settle(actor.book)
    actor.book.desk.retention.configure(limits(session_bytes=8_000))
    settle(actor.book)
    assert size_of(actor)[0] <= 8_000
    actor.book.desk.retention.configure(limits())
    play(actor)
    play(actor)
    settle(actor.book)
    assert size_of(actor)[0] > 8_000


def test_a_session_that_damage_has_emptied_can_be_purged(book: Book) -> None:
    actor = with_actor(book)
    play(actor)
    close(actor)
    book.connection.execute("delete from events")
    purge(book, actor.session_id)
    settle(book)
    assert count(book, "sessions") == 0


def test_a_cut_is_told_to_who_watches(actor: Actor) -> None:
    play(actor)
    play(actor)
    actor.book.desk.retention.configure(limits(session_bytes=1))
    rows: list[session.SessionRow] = []
    for _ in range(STEPS):
        effects = actor.book.desk.retention.step()
        if effects is None:
            break
        rows += [item.row for item in effects.items if isinstance(item, session.SessionChanged)]
    assert [row.first_sequence for row in rows] == [7]


def test_events_made_by_other_programs_have_an_age_too(actor: Actor) -> None:
    found: AnyEvent = make(type(delta("s", "t", "x")), actor.session_id, "old", delta="x")
    actor.send(actor.draft(found))
    assert actor.book.desk.retention.has_ages is False
    actor.book.desk.retention.configure(limits(session_days=1))
    assert actor.book.desk.retention.has_ages is True
    actor.book.time = 3 * DAY
    actor.book.desk.retention.look()
    settle(actor.book)
    assert page(actor).bodies == ()


def test_a_file_of_the_first_format_is_measured_as_it_is_brought_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[:1])
        old = database.open_database(path, wal_autocheckpoint=1000)
    for key, name in enumerate(("a", "b", "c"), 1):
        old.execute(
            "insert into sessions(key, session_id, agent_id, created_at, spec, first_sequence,"
            " last_sequence) values(?, ?, 'x', 1, x'', ?, 5)",
            (key, name, 3 if name == "b" else 1),
        )
    rows = [(1, number, f"a{number}", b"x" * 10) for number in range(1, 6)]
    rows += [(2, number, f"b{number}", b"x" * 100) for number in range(3, 6)]
    sql = "insert into events(session, sequence, event_id, type, turn_id, body, crc)"
    old.executemany(f"{sql} values(?, ?, ?, '', '', ?, 0)", rows)
    old.close()
    new = database.open_database(path, wal_autocheckpoint=1000)
    sizes = new.execute("select bytes from counters order by session").fetchall()
    assert sizes == [(5 * (10 + EVENT_BYTES),), (3 * (100 + EVENT_BYTES),), (0,)]
    new.close()


def test_an_error_that_would_come_again_is_left_alone(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(actor)
    play(actor)
    retention = actor.book.desk.retention
    retention.configure(limits(session_bytes=1))

    def fail(_: Remains, session: int, after: int) -> list[tuple[int, str, int]]:
        raise ValueError("unreadable")

    with monkeypatch.context() as patch:
        patch.setattr(Remains, "events", fail)
        with pytest.raises(ValueError, match="unreadable"):
            settle(actor.book)
    retention.drop()
    assert settle(actor.book) == 0
    retention.configure(limits(session_bytes=1))
    settle(actor.book)
    assert actor.book.row(actor.session_id).first_sequence == 7
