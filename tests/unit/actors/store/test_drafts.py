from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store.messages import Messages
from roost.schemas import event, turn
from roost.schemas.base import CallId, MessageId, SessionId, TurnId
from roost.schemas.session import Page, ReadPage
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import delta, make, message, pending_row, tool_event, user_message

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLED = "ALREADY_SETTLED"
INCOMPATIBLE = "EVENT_SCHEMA_INCOMPATIBLE"


def text(actor: Actor, words: str = "x") -> turn.Draft:
    return actor.draft(delta(actor.session_id, "t", words))


def test_sequences_go_on_from_the_creation_of_the_session(actor: Actor) -> None:
    assert actor.send(*(text(actor) for _ in range(3))) == [2, 3, 4]
    assert actor.book.row(actor.session_id).last_sequence == 4
    assert actor.book.log(actor.session_id) == ["session.created", *["agent.message.delta"] * 3]


def test_sessions_do_not_influence_each_other(book: Book) -> None:
    first, second = with_actor(book), with_actor(book)
    answers = book.write(
        (first.agent_id, text(first)),
        (second.agent_id, text(second)),
        (first.agent_id, text(first)),
    )
    assert answers == [2, 2, 3]


def test_a_draft_sent_again_is_answered_and_not_written(actor: Actor) -> None:
    draft = text(actor)
    assert actor.send(draft) == [2]
    assert actor.send(text(actor), draft, draft) == [3, 2, 2]
    assert len(actor.book.log(actor.session_id)) == 3
    new = text(actor)
    assert actor.send(new, new) == [4, 4]


def test_a_draft_sent_again_is_known_after_a_restart(actor: Actor) -> None:
    draft = text(actor)
    actor.send(draft)
    actor.book.close()
    actor.book.open()
    assert actor.send(draft, text(actor)) == [2, 3]


def test_the_same_event_in_other_words_is_the_same_event(actor: Actor) -> None:
    draft = text(actor)
    actor.send(draft)
    fields = msgspec.json.decode(draft.body, type=dict[str, object])
    fields.pop("metadata")
    body = msgspec.json.format(msgspec.json.encode(dict(reversed(fields.items()))))
    assert actor.send(msgspec.structs.replace(draft, body=body)) == [2]


def test_an_id_is_not_used_for_another_event(book: Book) -> None:
    first, second = with_actor(book), with_actor(book)
    draft = text(first, "one")
    other = first.draft(
        msgspec.structs.replace(delta(first.session_id, "t", "two"), id=draft.event_id)
    )
    moved = second.draft(
        msgspec.structs.replace(delta(second.session_id, "t", "one"), id=draft.event_id)
    )
    assert first.send(draft, other, text(first)) == [2, "EVENT_ID_CONFLICT", 3]
    assert second.send(moved, text(second)) == ["EVENT_ID_CONFLICT", 2]


def broken(change: Callable[[turn.Draft], turn.Draft]) -> Callable[[Actor], turn.Draft]:
    return lambda actor: change(text(actor))


def fields(draft: turn.Draft, **changed: object) -> turn.Draft:
    body = {**msgspec.json.decode(draft.body, type=dict[str, object]), **changed}
    return msgspec.structs.replace(draft, body=msgspec.json.encode(body))


REPLACE = msgspec.structs.replace


def closing(actor: Actor) -> turn.Draft:
    return actor.draft(make(event.SessionClosed, actor.session_id))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (broken(lambda d: REPLACE(d, generation=d.generation - 1)), "STALE_GENERATION"),
        (broken(lambda d: REPLACE(d, generation=d.generation + 1)), "STALE_GENERATION"),
        (broken(lambda d: REPLACE(d, session_id=SessionId("nobody"))), "SESSION_CLOSED"),
        (broken(lambda d: REPLACE(d, type="no.such.type")), INCOMPATIBLE),
        (broken(lambda d: REPLACE(d, type="user.message")), INCOMPATIBLE),
        (broken(lambda d: REPLACE(d, body=b"{")), INCOMPATIBLE),
        (broken(lambda d: REPLACE(d, body=b"[]")), INCOMPATIBLE),
        (broken(lambda d: REPLACE(d, body=b"", type="")), INCOMPATIBLE),
        (broken(lambda d: fields(d, sequence=7)), INCOMPATIBLE),
        (broken(lambda d: fields(d, id="other")), INCOMPATIBLE),
        (broken(lambda d: fields(d, session_id="other")), INCOMPATIBLE),
        (broken(lambda d: fields(d, turn_id="other")), INCOMPATIBLE),
        (broken(lambda d: fields(d, delta="x" * 10_000)), "EVENT_PAYLOAD_TOO_LARGE"),
        (broken(lambda d: REPLACE(d, tied_to="nothing")), "TIED"),
        (closing, INCOMPATIBLE),
    ],
)
def test_a_refused_draft_leaves_no_gap_and_disturbs_no_other(
    actor: Actor, made: Callable[[Actor], turn.Draft], code: str
) -> None:
    actor.begin(turn_id="t")
    assert actor.send(text(actor), made(actor), text(actor)) == [3, code, 4]
    assert len(actor.book.log(actor.session_id)) == 4


def test_a_session_belongs_to_its_agent_alone(book: Book) -> None:
    first, second = with_actor(book), with_actor(book)
    (answer,) = book.write((second.agent_id, text(first)))
    assert getattr(answer, "code", "") == "SESSION_CLOSED"


def test_a_newer_actor_shuts_out_the_older_one(actor: Actor) -> None:
    old = text(actor)
    known = text(actor)
    actor.send(known)
    actor.open()
    assert actor.send(old, text(actor), known) == ["STALE_GENERATION", 3, 2]


def test_a_draft_goes_with_the_one_it_is_tied_to(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    rejected = tool_event(
        event.ToolApprovalRejected,
        actor.session_id,
        turn_id,
        "a",
        error_code="APPROVAL_TIMEOUT",
        reason="late",
    )
    settle = turn.SettlePending(request_id=CallId("a"), state="timeout")
    first = actor.draft(rejected, settle)
    second = actor.draft(delta(actor.session_id, turn_id, "x"), tied_to=first.event_id)
    third = actor.draft(delta(actor.session_id, turn_id, "y"), tied_to=second.event_id)
    assert actor.send(first, second) == [5, 6]
    assert actor.send(third) == [7]
    late = actor.draft(
        tool_event(
            event.ToolApprovalRejected,
            actor.session_id,
            turn_id,
            "a",
            error_code="TOOL_CANCELLED",
            reason="again",
        ),
        settle,
    )
    tied = actor.draft(delta(actor.session_id, turn_id, "z"), tied_to=late.event_id)
    assert actor.send(late, tied, text(actor)) == [SETTLED, "TIED", 8]


def test_a_settling_draft_without_event_is_known_when_it_comes_again(actor: Actor) -> None:
    turn_id = actor.begin()
    row = pending_row(turn_id, "q", "question")
    opened = actor.draft(None, turn.OpenPending(row=row))
    assert actor.send(opened, opened) == [2, 2]
    settle = turn.SettlePending(request_id=CallId("q"), state="timeout")
    draft = actor.draft(None, settle)
    tied = actor.draft(delta(actor.session_id, turn_id, "x"), tied_to=draft.event_id)
    assert actor.send(draft) == [2]
    assert actor.send(draft, tied) == [2, 3]
    assert actor.send(actor.draft(None, settle)) == [SETTLED]


def test_a_turn_begins_and_ends_once(actor: Actor) -> None:
    accepted = actor.accept()
    turn_id = actor.begin(accepted)
    again = turn.BeginTurn(turn_id=turn_id, message_id=accepted.message_id)
    assert actor.send(actor.draft(user_message(actor.session_id, turn_id), again)) == [SETTLED]
    other = actor.accept()
    begin = turn.BeginTurn(turn_id=TurnId("other"), message_id=other.message_id)
    draft = actor.draft(user_message(actor.session_id, "other"), begin)
    assert actor.send(draft) == [INCOMPATIBLE]
    assert actor.end(turn_id) == [3]
    assert actor.end(turn_id) == [INCOMPATIBLE]
    begin = turn.BeginTurn(turn_id=turn_id, message_id=other.message_id)
    draft = actor.draft(user_message(actor.session_id, turn_id), begin)
    assert actor.send(draft) == [INCOMPATIBLE]
    unknown = turn.BeginTurn(turn_id=TurnId("n"), message_id=MessageId("unknown"))
    draft = actor.draft(user_message(actor.session_id, "n"), unknown)
    assert actor.send(draft) == [INCOMPATIBLE]
    assert actor.begin(other)


def test_a_message_that_steers_joins_the_open_turn_and_ends_with_it(actor: Actor) -> None:
    turn_id = actor.begin()
    steer = actor.accept("more")
    actor.begin(steer, turn_id)
    assert actor.book.story() == ["message begun", "user.message"]
    actor.end(turn_id)
    assert actor.book.story() == [
        "agent.message.completed",
        "message ended completed",
        "message ended completed",
    ]
    assert actor.book.row(actor.session_id).turns == 1


def test_the_end_of_a_turn_settles_what_still_waits(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    assert actor.book.row(actor.session_id).status == "waiting"
    actor.end(turn_id)
    assert actor.book.story() == [
        "pending cancelled",
        "agent.message.completed",
        "message ended completed",
    ]
    assert actor.book.row(actor.session_id).status == "idle"


def test_an_approval_is_told_right_before_its_event_and_knows_it(actor: Actor) -> None:
    turn_id = actor.begin()
    asked = actor.ask_approval(turn_id, "a")
    assert actor.book.story() == [
        "tool.call.requested",
        "pending open",
        "tool.approval.requested",
    ]
    actor.open()
    assert actor.opened.turn is not None
    (row,) = actor.opened.turn.pending
    assert (row.event_id, row.sequence, row.state) == (asked.event_id, 4, "open")


def test_a_group_is_written_whole_even_when_one_request_of_it_fails(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = with_actor(book)

    def fail(*_: object) -> None:
        book.connection.execute("update sessions set turns = 99")
        raise RuntimeError("a bug")

    monkeypatch.setattr(Messages, "cancel_turn", fail)
    bad = turn.CancelTurn(session_id=actor.session_id, reason="x")
    answers = book.write(
        (actor.agent_id, text(actor)),
        ("", bad),
        ("", message(actor.session_id)),
        (actor.agent_id, text(actor)),
    )
    assert (answers[0], answers[3]) == (2, 3)
    assert getattr(answers[1], "code", "") == "INTERNAL"
    assert isinstance(answers[2], turn.Accepted)
    assert book.row(actor.session_id).turns == 0
    assert book.story() == ["agent.message.delta", "message accepted", "agent.message.delta"]


def test_a_page_ends_at_its_bounds(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(*(actor.draft(delta(actor.session_id, turn_id, "x" * 100)) for _ in range(10)))

    def page(**bounds: int) -> Page:
        found = actor.book.read(ReadPage(session_id=actor.session_id, **bounds))  # type: ignore[arg-type]
        assert isinstance(found, Page)
        return found

    assert len(page(after=0).bodies) == 12
    assert (page(after=4, upto=6).first, len(page(after=4, upto=6).bodies)) == (5, 2)
    assert len(page(after=2, max_events=3).bodies) == 3
    assert len(page(after=2, max_bytes=1).bodies) == 1
    assert len(page(after=2, max_bytes=600).bodies) == 2
    assert page(after=12).bodies == ()
    assert page(after=0).last_sequence == 12
    assert [ref.turn_id for ref in page(after=1).turns] == [turn_id]
    assert page(after=0, upto=1).turns == ()


def test_a_damaged_event_is_an_error_and_not_a_shorter_history(actor: Actor) -> None:
    actor.send(text(actor))
    actor.book.connection.execute("update events set body = x'7b7d' where sequence = 2")
    page = actor.book.read(ReadPage(session_id=actor.session_id, after=0))
    assert isinstance(page, Page)
    assert len(page.bodies) == 1
    answer = actor.book.read(ReadPage(session_id=actor.session_id, after=1))
    assert getattr(answer, "code", "") == INCOMPATIBLE
    assert f"event 2 of session {actor.session_id}" in getattr(answer, "message", "")


def test_what_retention_removed_is_told(actor: Actor) -> None:
    actor.send(*(text(actor) for _ in range(4)))
    db = actor.book.connection
    db.execute("delete from events where sequence <= 3")
    db.execute("update sessions set first_sequence = 4")
    actor.book.desk.journal.forget(actor.session_id)
    page = actor.book.read(ReadPage(session_id=actor.session_id, after=1))
    assert isinstance(page, Page)
    assert (page.lost_upto, page.first, len(page.bodies)) == (3, 4, 2)
    page = actor.book.read(ReadPage(session_id=actor.session_id, after=3))
    assert isinstance(page, Page)
    assert page.lost_upto == 0


def test_usage_is_added_up(actor: Actor) -> None:
    usage = turn.AddUsage(input_tokens=3, output_tokens=2, cost_usd=0.5)
    for _ in range(2):
        actor.send(actor.draft(delta(actor.session_id, "t", "x"), usage))
    assert actor.send(actor.draft(None, usage)) == [INCOMPATIBLE]
    sql = "select input_tokens, output_tokens, cost_usd from sessions"
    assert actor.book.connection.execute(sql).fetchone() == (6, 4, 1.0)


def test_a_lookup_of_many_ids_finds_them_all(actor: Actor) -> None:
    drafts = [text(actor) for _ in range(700)]
    actor.send(*drafts)
    found = actor.book.desk.journal.find([draft.event_id for draft in drafts] + ["unknown"])
    assert [found[draft.event_id].sequence for draft in drafts] == list(range(2, 702))
    assert found[drafts[0].event_id].body == drafts[0].body
