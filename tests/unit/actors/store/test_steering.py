"""Turns started, steered and interrupted by their ids: what is refused, what is kept, and what the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.schemas import agent, event, session, turn
from roost.schemas.base import Refused, TurnId
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import final, make, message, tool_event, unique

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import Message


def start(actor: Actor, turn_id: str, text: str = "go", **more: object) -> turn.StartTurn:
    values: dict[str, object] = {
        "message": message(actor.session_id, text),
        "turn_id": TurnId(turn_id),
        **more,
    }
    return turn.StartTurn(**values)  # type: ignore[arg-type] # checked when it is encoded


def steer(actor: Actor, turn_id: str, text: str = "no", **more: object) -> turn.SteerTurn:
    return turn.SteerTurn(
        message=message(actor.session_id, text, **more), turn_id=TurnId(turn_id), input=(text,)
    )


def interrupt(actor: Actor, turn_id: str) -> turn.InterruptTurn:
    return turn.InterruptTurn(
        session_id=actor.session_id, turn_id=TurnId(turn_id), reason="turn/interrupt"
    )


def refusal(book: Book, request: Message) -> tuple[str, dict[str, object]]:
    answer = book.ask(request)
    assert isinstance(answer, Refused), answer
    return answer.code, msgspec.json.decode(answer.data) if answer.data else {}


def accepted(book: Book, request: Message) -> turn.Accepted:
    answer = book.ask(request)
    assert isinstance(answer, turn.Accepted), answer
    return answer


def inbox(actor: Actor) -> list[turn.InboxItem]:
    found = actor.book.read(turn.PullInbox(session_id=actor.session_id), actor.agent_id)
    assert isinstance(found, turn.Inbox), found
    return list(found.items)


def unread(actor: Actor) -> list[str]:
    return [item.message.text for item in inbox(actor) if isinstance(item, turn.Steer)]


def read(actor: Actor, turn_id: str, one: turn.Accepted, text: str = "no") -> list[int | str]:
    """Let the actor write a steering message into its turn."""
    begin = turn.BeginTurn(turn_id=TurnId(turn_id), message_id=one.message_id)
    said = make(event.UserMessage, actor.session_id, turn_id, content=text)
    return actor.send(actor.draft(said, begin))


def said(actor: Actor) -> list[str]:
    """What users have said, and how turns have ended, in the order of the log."""
    words: list[str] = []
    for found in decoded(actor.book, actor.session_id):
        if isinstance(found, event.UserMessage):
            words.append(found.content)
        elif event.is_final(found):
            words.append(str(found.__struct_config__.tag))
    return words


def test_a_turn_is_promised_and_begins_under_its_name(actor: Actor) -> None:
    one = accepted(actor.book, start(actor, "T", model="m", input=("a", "b")))
    assert (one.planned, one.turn_id, one.state) == ("T", "", "queued")
    assert actor.book.effects[-1].starts
    row = actor.book.row(actor.session_id)
    assert (row.status, row.turn_id) == ("running", "T")
    (item,) = inbox(actor)
    assert isinstance(item, turn.QueuedMessage)
    assert (item.turn_id, item.model, item.input) == ("T", "m", ("a", "b"))
    actor.begin(one, "T")
    assert actor.book.row(actor.session_id).turn_id == "T"
    actor.end(TurnId("T"))
    row = actor.book.row(actor.session_id)
    assert (row.status, row.turn_id) == ("idle", "")


def test_one_text_is_not_kept_twice(actor: Actor) -> None:
    accepted(actor.book, start(actor, "T", input=("go",)))
    (item,) = inbox(actor)
    assert isinstance(item, turn.QueuedMessage)
    assert item.input == ()


def test_of_two_starts_one_gets_the_turn(actor: Actor) -> None:
    book = actor.book
    answers = book.write(("", start(actor, "A")), ("", start(actor, "B")))
    assert isinstance(answers[0], turn.Accepted)
    assert isinstance(answers[1], Refused)
    assert answers[1].code == "TURN_IN_PROGRESS"
    assert msgspec.json.decode(answers[1].data) == {"activeTurnId": "A"}
    actor.begin(answers[0], "A")
    assert refusal(book, start(actor, "C")) == ("TURN_IN_PROGRESS", {"activeTurnId": "A"})
    actor.end(TurnId("A"))
    accepted(book, start(actor, "C"))


def test_a_start_waits_behind_no_message(actor: Actor) -> None:
    actor.accept()
    assert refusal(actor.book, start(actor, "A")) == ("TURN_IN_PROGRESS", {})


def test_a_start_is_refused_without_a_trace(actor: Actor) -> None:
    book = actor.book
    before = book.counted()
    large = start(actor, "A", "x" * 20_000)
    assert refusal(book, large)[0] == "INPUT_TOO_LARGE"
    twice = start(actor, "A", "x" * 4_000, input=("x" * 3_000, "x" * 999))
    assert refusal(book, twice)[0] == "INPUT_TOO_LARGE"
    lost = turn.StartTurn(message=message("nowhere"), turn_id=TurnId("A"))
    assert refusal(book, lost)[0] == "SESSION_NOT_FOUND"
    unknown = start(actor, "A", model="x", model_known=False)
    assert refusal(book, unknown) == ("UNKNOWN_MODEL", {"model": "x"})
    assert book.counted() == before
    actor.begin(turn_id="B")
    assert refusal(book, unknown)[0] == "TURN_IN_PROGRESS"
    assert not book.effects[-1].items


def test_the_same_start_again_is_answered_with_what_became_of_it(actor: Actor) -> None:
    book = actor.book
    request = start(actor, "T")
    first = accepted(book, request)
    assert accepted(book, request) == first
    actor.begin(first, "T")
    again = accepted(book, request)
    assert (again.state, again.turn_id, again.planned) == ("begun", "T", "T")
    other = msgspec.structs.replace(
        request, message=msgspec.structs.replace(request.message, sha256=b"other")
    )
    assert refusal(book, other)[0] == "CLIENT_MESSAGE_ID_CONFLICT"


def test_a_closed_session_starts_no_turn_and_takes_no_message_for_one(actor: Actor) -> None:
    book = actor.book
    actor.begin(turn_id="T")
    book.ask(session.CloseSession(session_id=actor.session_id, reason="thread/archive"))
    assert refusal(book, start(actor, "A"))[0] == "SESSION_CLOSED"
    accepted(book, steer(actor, "T"))
    actor.end(TurnId("T"), "interrupted")
    assert book.row(actor.session_id).state == "closed"
    assert refusal(book, start(actor, "A"))[0] == "SESSION_CLOSED"
    for request in (steer(actor, "T"), interrupt(actor, "T")):
        code, data = refusal(book, request)
        assert (code, data["turnId"], data["outcome"]) == ("NO_ACTIVE_TURN", "T", "interrupted")


def test_a_message_steers_the_turn_that_runs(actor: Actor) -> None:
    book = actor.book
    actor.begin(turn_id="T")
    one = accepted(book, steer(actor, "T", "first"))
    assert (one.planned, one.turn_id, one.position) == ("T", "", 0)
    assert book.story() == ["message accepted"]
    (change,) = book.effects[-1].items
    assert isinstance(change, session.MessageChanged)
    assert (change.planned, change.steering, change.turn_id) == ("T", True, "")
    assert not book.effects[-1].starts
    two = accepted(book, steer(actor, "T", "second"))
    assert unread(actor) == ["first", "second"]
    read(actor, "T", one, "first")
    assert book.story() == ["message begun", "user.message"]
    assert unread(actor) == ["second"]
    read(actor, "T", two, "second")
    actor.end(TurnId("T"))
    assert said(actor) == ["hello", "first", "second", "agent.message.completed"]
    assert book.row(actor.session_id).turns == 1


def test_a_turn_is_not_completed_while_it_has_a_message_to_read(actor: Actor) -> None:
    actor.begin(turn_id="T")
    one = accepted(actor.book, steer(actor, "T"))
    assert actor.end(TurnId("T")) == ["TURN_STEERED"]
    assert actor.book.row(actor.session_id).turn_id == "T"
    read(actor, "T", one)
    assert isinstance(actor.end(TurnId("T"))[0], int)
    assert said(actor) == ["hello", "no", "agent.message.completed"]


def test_a_message_and_the_end_of_the_turn_in_one_group_are_one_or_the_other(actor: Actor) -> None:
    book = actor.book
    turn_id = actor.begin(turn_id="T")
    end = turn.EndTurn(turn_id=turn_id, outcome="completed")
    done = actor.draft(final(actor.session_id, turn_id), end)
    answers = book.write((actor.agent_id, done), ("", steer(actor, "T")))
    assert isinstance(answers[1], Refused)
    assert answers[1].code == "NO_ACTIVE_TURN"
    assert msgspec.json.decode(answers[1].data) == {"turnId": "T", "outcome": "completed"}
    turn_id = actor.begin(turn_id="U")
    end = turn.EndTurn(turn_id=turn_id, outcome="completed")
    done = actor.draft(final(actor.session_id, turn_id), end)
    answers = book.write(("", steer(actor, "U")), (actor.agent_id, done))
    assert isinstance(answers[0], turn.Accepted)
    assert book.row(actor.session_id).turn_id == "U"


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_what_a_turn_has_not_read_is_kept_for_the_next_one(
    actor: Actor, outcome: turn.TurnOutcome
) -> None:
    turn_id = actor.begin(turn_id="T")
    accepted(actor.book, steer(actor, "T", "first"))
    accepted(actor.book, steer(actor, "T", "second", display="shown", metadata=b'{"x":1}'))
    last: event.AnyEvent = make(event.AgentTurnFailed, actor.session_id, "T", error="x")
    if outcome == "interrupted":
        last = make(event.CancellationCompleted, actor.session_id, "T")
    assert isinstance(
        actor.send(actor.draft(last, turn.EndTurn(turn_id=turn_id, outcome=outcome)))[0], int
    )
    kind = str(last.__struct_config__.tag)
    assert said(actor) == ["hello", "first", "second", kind]
    assert actor.book.story() == [
        "message begun",
        "user.message",
        "message begun",
        "user.message",
        kind,
        *[f"message ended {outcome}"] * 3,
    ]
    kept = [
        found
        for found in decoded(actor.book, actor.session_id)
        if isinstance(found, event.UserMessage) and found.metadata.get("source") == "steer"
    ]
    assert [found.turn_id for found in kept] == ["T", "T"]
    assert inbox(actor) == []


def test_a_message_for_another_turn_is_refused(actor: Actor) -> None:
    book = actor.book
    assert refusal(book, steer(actor, "T")) == ("NO_ACTIVE_TURN", {"turnId": "T"})
    assert refusal(book, steer(actor, "")) == ("NO_ACTIVE_TURN", {"turnId": ""})
    actor.begin(turn_id="A")
    mismatch = ("TURN_ID_MISMATCH", {"expected": "T", "active": "A"})
    assert refusal(book, steer(actor, "T")) == mismatch
    assert refusal(book, interrupt(actor, "T")) == mismatch
    lost = turn.SteerTurn(message=message("nowhere"), turn_id=TurnId("A"))
    assert refusal(book, lost)[0] == "SESSION_NOT_FOUND"
    assert refusal(book, steer(actor, "A", "x" * 20_000))[0] == "INPUT_TOO_LARGE"


def test_the_same_steering_again_is_one_message(actor: Actor) -> None:
    actor.begin(turn_id="T")
    request = steer(actor, "T", client_message_id="mine")
    first = accepted(actor.book, request)
    assert accepted(actor.book, request) == first
    assert unread(actor) == ["no"]
    read(actor, "T", first)
    assert read(actor, "T", first) == ["ALREADY_SETTLED"]
    actor.end(TurnId("T"))
    assert accepted(actor.book, request).outcome == "completed"


def test_too_many_messages_for_one_turn_are_refused(actor: Actor) -> None:
    actor.begin(turn_id="T")
    for _ in range(3):
        accepted(actor.book, steer(actor, "T"))
    assert refusal(actor.book, steer(actor, "T"))[0] == "TOO_MANY_QUEUED_MESSAGES"


def test_a_message_for_a_turn_cannot_be_withdrawn(actor: Actor) -> None:
    actor.begin(turn_id="T")
    one = accepted(actor.book, steer(actor, "T"))
    request = turn.CancelMessage(
        session_id=actor.session_id, message_id=one.message_id, reason="request.cancel"
    )
    answer = actor.book.ask(request)
    assert isinstance(answer, turn.TurnCancelled)
    assert not answer.cancelled
    assert unread(actor) == ["no"]


def test_a_promised_turn_is_steered_before_it_begins(actor: Actor) -> None:
    book = actor.book
    one = accepted(book, start(actor, "T"))
    accepted(book, steer(actor, "T"))
    assert [type(item) for item in inbox(actor)] == [turn.QueuedMessage]
    actor.begin(one, "T")
    (_, bell) = book.effects[-1].bells[-1]
    assert bell.items == ()
    assert unread(actor) == ["no"]


def test_a_promised_turn_is_interrupted_at_once(actor: Actor) -> None:
    book = actor.book
    one = accepted(book, start(actor, "T"))
    two = accepted(book, steer(actor, "T"))
    answer = book.ask(interrupt(actor, "T"))
    assert answer == turn.TurnCancelled(cancelled=True, turn_id="T", withdrawn=True)
    changes = [item for item in book.effects[-1].items if isinstance(item, session.MessageChanged)]
    assert [(c.message_id, c.outcome, c.planned, c.turn_id) for c in changes] == [
        (one.message_id, "interrupted", "T", ""),
        (two.message_id, "interrupted", "T", ""),
    ]
    assert said(actor) == []
    assert inbox(actor) == []
    code, data = refusal(book, interrupt(actor, "T"))
    assert (code, data["outcome"]) == ("NO_ACTIVE_TURN", "interrupted")
    assert refusal(book, steer(actor, "T"))[0] == "NO_ACTIVE_TURN"
    begin = turn.BeginTurn(turn_id=TurnId("T"), message_id=one.message_id)
    late = make(event.UserMessage, actor.session_id, "T", content="go")
    assert actor.send(actor.draft(late, begin)) == ["ALREADY_SETTLED"]
    accepted(book, start(actor, "U"))


def test_a_turn_that_unwinds_is_interrupted_again_without_effect(actor: Actor) -> None:
    book = actor.book
    actor.begin(turn_id="T")
    answer = book.ask(interrupt(actor, "T"))
    assert answer == turn.TurnCancelled(cancelled=True, turn_id="T")
    assert book.row(actor.session_id).cancelling
    events = len(book.log(actor.session_id))
    assert book.ask(interrupt(actor, "T")) == answer
    assert len(book.log(actor.session_id)) == events
    actor.end(TurnId("T"))
    code, data = refusal(book, interrupt(actor, "T"))
    assert (code, data) == ("NO_ACTIVE_TURN", {"turnId": "T", "outcome": "completed"})
    assert not book.row(actor.session_id).cancelling


def test_a_new_actor_gets_what_its_turn_has_read_and_what_not(actor: Actor) -> None:
    actor.begin(turn_id="T")
    one = accepted(actor.book, steer(actor, "T", "first"))
    accepted(actor.book, steer(actor, "T", "second"))
    read(actor, "T", one, "first")
    opened = actor.open()
    assert opened.turn is not None
    assert [each.text for each in opened.turn.steers] == ["first"]
    assert [i.message.text for i in opened.inbox if isinstance(i, turn.Steer)] == ["second"]


def test_messages_outlive_the_file_being_closed(actor: Actor) -> None:
    book = actor.book
    actor.begin(turn_id="T")
    accepted(book, steer(actor, "T", "first"))
    book.close()
    book.open()
    assert unread(actor) == ["first"]
    stored = book.desk.journal.session(actor.session_id)
    assert stored is not None
    book.effects.append(book.desk.transact(lambda: _repair(book, actor)))
    assert said(actor) == ["hello", "first", "agent.turn.failed"]
    assert inbox(actor) == []


def _repair(book: Book, actor: Actor) -> None:
    stored = book.desk.journal.session(actor.session_id)
    assert stored is not None
    assert book.desk.repairs.repair(stored, may_park=True)


def test_a_parked_turn_stays_steered_through_a_cold_start(actor: Actor) -> None:
    book = actor.book
    turn_id = actor.begin(turn_id="T")
    actor.ask_approval(turn_id, "call")
    accepted(book, steer(actor, "T", "first"))
    book.close()
    book.open()
    book.desk.transact(lambda: book.desk.repairs.repair_cold(actor.session_id))
    assert book.row(actor.session_id).turn_id == "T"
    assert unread(actor) == ["first"]
    book.desk.transact(lambda: book.desk.repairs.give_up(actor.agent_id, "gave up"))
    assert unread(actor) == ["first"]


def test_a_log_that_is_full_takes_no_message_at_the_end_of_a_turn(tmp_path: Path) -> None:
    book = Book(tmp_path)
    store = msgspec.structs.replace(book.settings.store, session_events=70)
    actor = with_actor(book)
    actor.begin(turn_id="T")
    one = accepted(book, steer(actor, "T"))
    book.desk.configure(msgspec.structs.replace(book.settings, store=store))
    for _ in range(4):
        asked = tool_event(
            event.ToolCallRequested, actor.session_id, "T", unique("call"), tool_args={}
        )
        actor.send(actor.draft(asked))
    failed = make(event.AgentTurnFailed, actor.session_id, "T", error="x")
    actor.send(actor.draft(failed, turn.EndTurn(turn_id=TurnId("T"), outcome="failed")))
    assert inbox(actor) == []
    assert said(actor) == ["hello", "agent.turn.failed"]
    again = accepted(book, msgspec.structs.replace(steer(actor, "T"), message=_same(one, actor)))
    assert (again.outcome, again.error) == ("failed", "the log of the session is full")
    book.close()


def _same(one: turn.Accepted, actor: Actor) -> turn.AcceptMessage:
    return message(actor.session_id, "no", message_id=one.message_id, accepted_at=one.accepted_at)


def test_a_given_up_agent_keeps_no_message_of_its_closed_turn(actor: Actor) -> None:
    actor.begin(turn_id="T")
    accepted(actor.book, steer(actor, "T", "first"))
    actor.book.desk.transact(lambda: actor.book.desk.repairs.give_up(actor.agent_id, "gave up"))
    assert said(actor) == ["hello", "first", "agent.turn.failed"]
    assert actor.book.row(actor.session_id).queued == 0
    found = actor.book.read(agent.GetAgent(agent_id=actor.agent_id))  # type: ignore[arg-type] # an id
    assert isinstance(found, agent.AgentRow)
    assert found.status == "error"


def test_a_message_whose_turn_is_lost_gets_one_of_its_own(actor: Actor) -> None:
    book = actor.book
    actor.begin(turn_id="T")
    one = accepted(book, steer(actor, "T"))
    book.hurt("delete from turns")
    book.close()
    book.open()
    (item,) = inbox(actor)
    assert isinstance(item, turn.QueuedMessage)
    assert (item.message_id, item.turn_id) == (one.message_id, "")
    actor.open()
    actor.end(actor.begin(one, "U"))
    assert inbox(actor) == []
