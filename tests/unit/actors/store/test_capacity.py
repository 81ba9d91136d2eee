from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store.capacity import FULL, RESERVED_EVENTS, Capacity
from roost.schemas import agent, approval, archive, event, session, turn
from roost.schemas.base import AgentId, CallId, Refused, SessionId, TurnId
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import create_agent, delta, message, tool_event, unique

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVENTS = 200
BYTES = 4 * 1024 * 1024


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Book]:
    """A store in which everything is small."""
    book = Book(tmp_path)
    store = msgspec.structs.replace(
        book.settings.store, session_events=EVENTS, session_bytes=BYTES, sessions=3
    )
    book.close()
    book.settings = msgspec.structs.replace(book.settings, store=store)
    book.open()
    yield book
    book.close()


@pytest.fixture
def full_one(small: Book) -> Actor:
    """A session with an open turn and no room but what is kept back."""
    actor = with_actor(small)
    turn_id = actor.begin(turn_id="turn_full")
    room = EVENTS - RESERVED_EVENTS - small.row(actor.session_id).last_sequence
    texts = [actor.draft(delta(actor.session_id, turn_id, "x")) for _ in range(room)]
    assert all(isinstance(answer, int) for answer in actor.send(*texts))
    return actor


def story(actor: Actor) -> list[str]:
    return [str(found.__struct_config__.tag) for found in decoded(actor.book, actor.session_id)]


def test_as_shipped_there_is_no_bound(book: Book) -> None:
    actor = with_actor(book)
    found = book.desk.journal.session(actor.session_id)
    assert found is not None
    found.last_sequence = found.bytes = 10**12
    assert Capacity(book.settings.store).has_room(found, "user.message", 10**6)


def test_a_full_session_is_refused_with_its_own_code_and_its_turn_fails(full_one: Actor) -> None:
    extra = full_one.draft(delta(full_one.session_id, "turn_full", "x"))
    later = full_one.draft(delta(full_one.session_id, "turn_full", "y"))
    last = full_one.book.row(full_one.session_id).last_sequence
    assert full_one.send(extra, later) == [FULL, "STALE_GENERATION"]
    row = full_one.book.row(full_one.session_id)
    assert (row.last_sequence, row.status) == (last + 1, "idle")
    failed = decoded(full_one.book, full_one.session_id)[-1]
    assert isinstance(failed, event.AgentTurnFailed)
    assert (failed.error_code, failed.retryable) == (FULL, False)
    assert full_one.book.story() == ["agent.turn.failed", "message ended failed"]
    assert full_one.open().turn is None


def test_a_refused_draft_leaves_no_gap_and_disturbs_no_neighbour(full_one: Actor) -> None:
    book = full_one.book
    other = with_actor(book)
    turn_id = other.begin()
    first = other.draft(delta(other.session_id, turn_id, "1"))
    second = other.draft(delta(other.session_id, turn_id, "2"))
    extra = full_one.draft(delta(full_one.session_id, "turn_full", "x"))
    answers = book.write(
        (other.agent_id, first), (full_one.agent_id, extra), (other.agent_id, second)
    )
    assert (answers[0], answers[2]) == (3, 4)
    assert getattr(answers[1], "code", "") == FULL
    page = book.read(session.ReadPage(session_id=full_one.session_id, after=0))
    assert isinstance(page, session.Page)
    sequences = book.connection.execute(
        "select sequence from events e join sessions s on s.key = e.session"
        " where s.session_id = ? order by sequence",
        (full_one.session_id,),
    ).fetchall()
    assert [number for (number,) in sequences] == list(range(1, page.last_sequence + 1))
    assert other.end(turn_id) == [5]


def test_a_draft_that_is_known_is_answered_even_if_the_session_is_full(full_one: Actor) -> None:
    book = full_one.book
    draft = full_one.draft(delta(full_one.session_id, "turn_full", "x"))
    full_one.send(draft)
    found = book.connection.execute(
        "select event_id, body from events where type = 'agent.message.delta' and sequence = 3"
    ).fetchone()
    known = msgspec.structs.replace(draft, event_id=found[0], body=found[1])
    assert full_one.send(known) == [3]


def test_what_ends_a_turn_still_has_room(full_one: Actor) -> None:
    assert full_one.end(turn_id=TurnId("turn_full"), outcome="failed") == [FULL]
    assert story(full_one)[-1] == "agent.turn.failed"


def test_calls_that_run_are_closed_when_the_session_is_full(small: Book) -> None:
    actor = with_actor(small)
    turn_id = actor.begin()
    where = (actor.session_id, turn_id, "call_1")
    asked = tool_event(event.ToolCallRequested, *where, tool_args={})
    started = tool_event(event.ToolCallStarted, *where)
    answers = actor.send(actor.draft(asked), actor.draft(started))
    assert all(isinstance(answer, int) for answer in answers), answers
    actor.ask_approval(turn_id, "call_2")
    while True:
        (answer,) = actor.send(actor.draft(delta(actor.session_id, turn_id, "x")))
        if answer == FULL:
            break
    assert story(actor)[-4:] == [
        "tool.call.failed",
        "tool.approval.rejected",
        "tool.call.failed",
        "agent.turn.failed",
    ]
    calls = [found for found in decoded(small, actor.session_id) if found.turn_id == turn_id]
    outcomes = [found.outcome for found in calls if isinstance(found, event.ToolCallFailed)]
    assert outcomes == ["unknown", "not_started"]
    assert small.row(actor.session_id).status != "waiting"


def test_the_next_message_of_a_full_session_is_refused_when_it_comes(full_one: Actor) -> None:
    full_one.send(full_one.draft(delta(full_one.session_id, "turn_full", "x")))
    answer = full_one.book.ask(message(full_one.session_id))
    assert isinstance(answer, Refused)
    assert answer.code == FULL
    data = msgspec.json.decode(answer.data)
    assert data["sessionId"] == full_one.session_id


def test_messages_that_wait_end_with_the_turn_that_filled_the_session(full_one: Actor) -> None:
    # Accepted while there was still room: the bound is met by what has been written since.
    found = full_one.book.desk.journal.session(full_one.session_id)
    assert found is not None
    found.first_sequence = 10
    accepted = full_one.accept()
    found.first_sequence = 1
    full_one.send(full_one.draft(delta(full_one.session_id, "turn_full", "x")))
    assert "message ended failed" in full_one.book.story()
    sql = "select state, outcome from messages where message_id = ?"
    row = full_one.book.connection.execute(sql, (accepted.message_id,)).fetchone()
    assert row == ("ended", "failed")


def test_a_turn_that_finds_no_room_for_its_beginning_ends_its_message(full_one: Actor) -> None:
    book = full_one.book
    full_one.send(full_one.draft(delta(full_one.session_id, "turn_full", "x")))
    # One more event, of the kind that is always let in, and a message that slipped in before.
    found = book.desk.journal.session(full_one.session_id)
    assert found is not None
    found.first_sequence = 10
    accepted = full_one.accept()
    book.desk.journal.forget(full_one.session_id)
    full_one.open()
    begin = turn.BeginTurn(turn_id=TurnId("t2"), message_id=accepted.message_id)
    made = event.UserMessage(
        id=unique("evt"), timestamp=1.0, session_id=full_one.session_id, turn_id="t2", content="x"
    )
    assert full_one.send(full_one.draft(made, begin)) == [FULL]
    assert book.story() == ["message ended failed"]
    assert full_one.open().inbox == ()


def test_a_person_may_still_deny_but_not_approve_when_the_session_is_full(small: Book) -> None:
    actor = with_actor(small)
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "call_1")
    room = EVENTS - RESERVED_EVENTS - small.row(actor.session_id).last_sequence
    actor.send(*(actor.draft(delta(actor.session_id, turn_id, "x")) for _ in range(room)))

    def decide(state: str) -> object:
        settle = approval.Settle(
            session_id=actor.session_id,
            request_id=CallId("call_1"),
            kind="approval",
            state=state,  # type: ignore[arg-type]
        )
        return small.ask(settle)

    assert getattr(decide("approved"), "code", "") == FULL
    assert isinstance(decide("denied"), approval.PendingRow)
    assert story(actor)[-1] == "tool.approval.rejected"


def test_a_full_session_can_be_cancelled_and_closed(full_one: Actor) -> None:
    book = full_one.book
    answer = book.ask(session.CloseSession(session_id=full_one.session_id))
    assert isinstance(answer, session.SessionClosing)
    assert "cancellation.requested" not in story(full_one)
    done = event.CancellationCompleted(
        id=unique("evt"), timestamp=1.0, session_id=full_one.session_id, turn_id="turn_full"
    )
    end = turn.EndTurn(turn_id=TurnId("turn_full"), outcome="interrupted")
    (sequence,) = full_one.send(full_one.draft(done, end))
    assert isinstance(sequence, int)
    assert story(full_one)[-2:] == ["cancellation.completed", "session.closed"]


def test_a_session_is_full_by_bytes_too(small: Book) -> None:
    actor = with_actor(small)
    turn_id = actor.begin()
    answers: list[int | str] = []
    while FULL not in answers:
        answers = actor.send(actor.draft(delta(actor.session_id, turn_id, "x" * 100_000)))
    assert small.row(actor.session_id).last_sequence < 40
    (size,) = small.connection.execute("select bytes from counters").fetchone()
    assert 2_900_000 < size < BYTES


def test_retention_makes_room_again(small: Book) -> None:
    limits = msgspec.structs.replace(small.settings.retention, session_bytes=60_000)
    small.desk.retention.configure(limits)
    actor = with_actor(small)
    for _ in range(10):
        turn_id = actor.begin()
        actor.send(*(actor.draft(delta(actor.session_id, turn_id, "x" * 800)) for _ in range(30)))
        assert isinstance(actor.end(turn_id)[0], int)
        small.desk.retention.after_commit()
        while small.desk.retention.step() is not None:
            pass
    assert small.row(actor.session_id).last_sequence > EVENTS


def test_one_session_too_many_is_refused_until_one_is_removed(small: Book) -> None:
    actors = [with_actor(small) for _ in range(3)]
    refused = small.ask(create_agent("a4", "s4"))
    assert isinstance(refused, Refused)
    assert refused.code == FULL
    assert msgspec.json.decode(refused.data) == {"sessionId": "s4", "limit": 3}
    gone = small.read(agent.GetAgent(agent_id=AgentId("a4")))
    assert getattr(gone, "code", "") == "AGENT_NOT_FOUND"
    spec = session.SessionSpec(
        session_id=SessionId("s5"), agent_id=AgentId(actors[0].agent_id), created_at=1
    )
    assert getattr(small.ask(session.CreateSession(session=spec)), "code", "") == FULL
    # What is there already is no further one; a closed one counts until it is removed.
    again = msgspec.structs.replace(spec, session_id=actors[0].session_id)
    assert isinstance(small.ask(session.CreateSession(session=again)), session.SessionRow)
    small.ask(session.CloseSession(session_id=actors[1].session_id))
    assert getattr(small.ask(session.CreateSession(session=spec)), "code", "") == FULL
    small.desk.tidy(lambda: small.desk.retention.purge(actors[1].session_id))
    while small.desk.retention.step() is not None:
        pass
    assert isinstance(small.ask(session.CreateSession(session=spec)), session.SessionRow)


def test_an_import_is_refused_with_the_same_words_as_a_new_session(small: Book) -> None:
    for number in range(3):
        small.ask(create_agent(f"agent_{number}", f"s-{number}"))
    begin = archive.BeginImport(
        import_id="import-one", session_id=SessionId("s-x"), first_sequence=1
    )
    created, imported = small.ask(create_agent("agent_x", "s-x")), small.ask(begin)
    assert isinstance(created, Refused)
    assert (
        created.message == "there are 3 sessions already; closed ones count until they are removed"
    )
    assert imported == created
