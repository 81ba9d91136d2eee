"""Sessions as threads: the order of their list, what their rows say, and ephemeral ones, which do not stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store.mend import mend
from roost.schemas import agent, event, session, turn
from roost.schemas.base import AgentId, Refused, SessionId, TurnId
from tests.support.desk import Actor, Book, decoded
from tests.support.store import create_agent, make, message, unique, user_message

if TYPE_CHECKING:
    from roost.actors.store.effects import Effects


def add(book: Book, session_id: str, at: int, *, ephemeral: bool = False) -> str:
    """Make a session with an agent of its own; return the agent's id."""
    request = create_agent(unique("agent"), session_id)
    spec = msgspec.structs.replace(request.session, created_at=at, ephemeral=ephemeral)
    assert isinstance(book.ask(msgspec.structs.replace(request, session=spec)), agent.AgentCreated)
    return request.spec.agent_id


def close(book: Book, session_id: str) -> session.SessionClosing:
    answer = book.ask(session.CloseSession(session_id=SessionId(session_id), reason="over"))
    assert isinstance(answer, session.SessionClosing), answer
    return answer


def threads(book: Book, **wanted: object) -> session.Threads:
    found = book.read(session.ListThreads(**{"limit": 100, **wanted}))  # type: ignore[arg-type] # checked by the names
    assert isinstance(found, session.Threads), found
    return found


def names(book: Book, **wanted: object) -> list[str]:
    return [row.spec.session_id for row in threads(book, **wanted).threads]


def upkeep(book: Book) -> list[Effects]:
    """Do all that retention has to do."""
    caused: list[Effects] = []
    while (effects := book.desk.retention.step()) is not None:
        caused.append(effects)
    return caused


def rows_of(book: Book, *tables: str) -> int:
    return sum(book.connection.execute(f"select count(*) from {t}").fetchone()[0] for t in tables)


@pytest.fixture
def shelf(book: Book) -> Book:
    """Five sessions, two of them closed."""
    for name, at in [("c", 30), ("a", 10), ("e", 20), ("d", 20), ("b", 15)]:
        add(book, name, at)
    book.time = 0.040
    close(book, "a")
    book.time = 0.035
    close(book, "d")
    return book


def test_threads_are_listed_by_their_last_change_and_their_id(shelf: Book) -> None:
    assert names(shelf) == ["c", "e", "b"]
    assert names(shelf, archived=True) == ["a", "d"]
    assert names(shelf, archived=None) == ["a", "d", "c", "e", "b"]
    shelf.time = 0.050
    shelf.ask(message("b"))
    assert names(shelf) == ["c", "e", "b"]


def test_a_page_is_a_part_of_the_list_and_knows_its_length(shelf: Book) -> None:
    whole = names(shelf, archived=None)
    for limit in (0, 1, 2, 4, 9):
        for offset in (0, 1, 3, 5, 2**62):
            page = threads(shelf, archived=None, limit=limit, offset=offset)
            got = [row.spec.session_id for row in page.threads]
            assert got == whole[offset : offset + limit]
            assert page.total == 5
    assert threads(shelf, limit=1).total == 3
    assert threads(shelf, limit=0, archived=True).total == 2


def test_threads_of_one_moment_are_listed_by_their_ids(book: Book) -> None:
    for name in ("b", "d", "a", "c"):
        add(book, name, 7)
    assert names(book) == ["d", "c", "b", "a"]
    assert names(book, limit=2, offset=1) == ["c", "b"]
    close(book, "c")
    assert names(book, archived=None) == ["c", "d", "b", "a"]


def test_a_damaged_record_is_left_out_of_the_list(shelf: Book) -> None:
    shelf.hurt("update sessions set spec = x'00' where session_id = 'e'")
    assert names(shelf) == ["c", "b"]


def test_a_thread_moves_when_a_turn_begins_and_when_it_ends(actor: Actor) -> None:
    book = actor.book
    book.time = 2.0
    waiting = actor.accept()
    assert book.row(actor.session_id).updated_at == 1
    book.time = 3.0
    turn_id = actor.begin(waiting)
    assert book.row(actor.session_id).updated_at == 3_000
    book.time = 4.0
    actor.send(actor.draft(make(event.AgentReasoningStarted, actor.session_id, turn_id)))
    assert book.row(actor.session_id).updated_at == 3_000
    actor.end(turn_id)
    assert book.row(actor.session_id).updated_at == 4_000
    book.time = 5.0
    close(book, actor.session_id)
    assert book.row(actor.session_id).updated_at == 5_000


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"text": "x" * 300}, "x" * 200),
        ({"text": "secret", "display": "shown"}, "shown"),
        ({"text": "secret", "hidden": True}, "second"),
        ({"text": ""}, "second"),
    ],
)
def test_the_first_message_that_clients_are_shown_is_the_preview(
    actor: Actor, given: dict[str, object], shown: str
) -> None:
    first = actor.book.ask(message(actor.session_id, **given))  # type: ignore[arg-type] # checked by the names
    assert isinstance(first, turn.Accepted)
    actor.end(actor.begin(first))
    actor.end(actor.begin(actor.accept("second")))
    assert actor.book.row(actor.session_id).preview == shown


def test_an_event_is_found_with_the_first_one_of_its_turn(actor: Actor) -> None:
    def find(event_id: str) -> session.EventFound:
        found = actor.book.read(session.FindEvent(session_id=actor.session_id, event_id=event_id))
        assert isinstance(found, session.EventFound), found
        return found

    actor.end(actor.begin(turn_id="A"))
    actor.end(actor.begin(turn_id="B"))
    first, second = [found.id for found in decoded(actor.book, actor.session_id)[2::2]]
    assert find(first) == session.EventFound(sequence=3, turn_id="A", turn_first=2)
    assert find(second) == session.EventFound(sequence=5, turn_id="B", turn_first=4)
    created = decoded(actor.book, actor.session_id)[0].id
    assert find(created) == session.EventFound(sequence=1, turn_first=1)
    assert find("unknown") == session.EventFound()
    # Without rows of turns, as in an imported session.
    actor.book.hurt("delete from turns")
    assert find(first).turn_first == 2
    assert find(second).turn_first == 4
    add(actor.book, "other", 1)
    other = session.FindEvent(session_id=SessionId("other"), event_id=first)
    assert actor.book.read(other) == session.EventFound()
    lost = actor.book.read(session.FindEvent(session_id=SessionId("x"), event_id=first))
    assert isinstance(lost, Refused)


def test_an_ephemeral_session_goes_as_soon_as_it_is_closed(book: Book) -> None:
    agent_id = add(book, "gone", 1, ephemeral=True)
    add(book, "stays", 1)
    found = session.GetSession(session_id=SessionId("gone"))
    assert book.row("gone").spec.ephemeral
    assert upkeep(book) == []
    assert close(book, "gone").last
    assert book.desk.retention.after_commit()
    assert book.row("gone").state == "closed"
    caused = [item for effects in upkeep(book) for item in effects.items]
    assert caused == [
        session.SessionDropped(
            session_id=SessionId("gone"), agent_id=AgentId(agent_id), reason="over"
        )
    ]
    assert isinstance(book.read(found), Refused)
    assert names(book, archived=None) == ["stays"]
    book.ask(agent.EndAgent(agent_id=AgentId(agent_id), reason="over"))
    row = book.ask(agent.FinishAgent(agent_id=AgentId(agent_id)))
    assert isinstance(row, agent.AgentRow)
    assert row.status == "stopped"
    assert isinstance(book.read(agent.GetAgent(agent_id=AgentId(agent_id))), Refused)
    assert rows_of(book, "agents", "sessions", "events") == 3


def test_an_agent_that_ended_first_goes_with_its_ephemeral_session(book: Book) -> None:
    agent_id = AgentId(add(book, "gone", 1, ephemeral=True))
    book.ask(message("gone"))
    book.ask(agent.EndAgent(agent_id=agent_id, reason="over"))
    assert isinstance(book.ask(agent.FinishAgent(agent_id=agent_id)), agent.AgentRow)
    upkeep(book)
    assert rows_of(book, "agents", "sessions", "events", "messages") == 0


def test_an_ephemeral_session_whose_closing_was_undone_stays(book: Book) -> None:
    add(book, "stays", 1, ephemeral=True)
    book.desk.retention.drop_soon("stays")
    book.desk.retention.drop_soon("nowhere")
    upkeep(book)
    assert book.row("stays").state == "open"


def test_a_store_that_is_restarted_alone_removes_what_is_closed(book: Book) -> None:
    add(book, "gone", 1, ephemeral=True)
    add(book, "stays", 1, ephemeral=True)
    close(book, "gone")
    book.close()
    book.open()
    upkeep(book)
    assert names(book, archived=None) == ["stays"]


def test_no_ephemeral_session_outlives_the_daemon_whatever_is_open_in_it(actor: Actor) -> None:
    book = actor.book
    agent_id = add(book, "gone", 1, ephemeral=True)
    other = Actor(book, agent_id, "gone")
    turn_id = other.begin(turn_id="T")
    other.ask_approval(TurnId(turn_id), "call")
    other.accept()
    book.ask(
        turn.SteerTurn(message=message("gone"), turn_id=TurnId("T")),
    )
    actor.begin(turn_id="U")
    book.close()
    book.open()
    book.desk.transact(book.desk.repairs.wipe_ephemeral)
    assert book.desk.repairs.sessions_to_repair() == [actor.session_id]
    upkeep(book)
    assert book.connection.execute("select agent_id from agents").fetchall() == [(actor.agent_id,)]
    assert rows_of(book, "pending") == 0
    assert rows_of(book, "sessions", "messages", "turns") == 3
    found = book.connection.execute("select distinct session from events").fetchall()
    assert len(found) == 1


def test_mending_gives_each_thread_a_place_in_the_list(book: Book) -> None:
    add(book, "a", 10)
    add(book, "b", 20)
    book.hurt(
        "update sessions set updated_at = 0 where session_id = 'a'",
        f"update sessions set updated_at = {2**60} where session_id = 'b'",
    )
    mend(book.connection, {})
    assert names(book) == ["b", "a"]
    assert [row.updated_at for row in threads(book).threads] == [20, 10]


def test_the_turn_of_a_watched_session_says_where_it_begins(actor: Actor) -> None:
    actor.begin(turn_id="T")
    actor.send(actor.draft(user_message(actor.session_id, "T")))
    watched = actor.book.read(session.Watch(session_id=actor.session_id))
    assert isinstance(watched, session.Watched)
    assert watched.turn is not None
    assert (watched.turn.turn_id, watched.turn.first_sequence) == ("T", 2)
