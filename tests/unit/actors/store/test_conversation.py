"""Clearing a conversation, its figures, and what was said in it, read backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store import texts
from roost.config.model import Retention
from roost.schemas import approval, event, session, turn
from roost.schemas.base import SessionId
from roost.schemas.unions import event_decoder
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import create_agent, delta, final, make, tool_event

if TYPE_CHECKING:
    from roost.schemas.base import TurnId


def clear(actor: Actor, at: int = 5_000) -> session.SessionCleared:
    answer = actor.book.ask(session.ClearSession(session_id=actor.session_id, at=at))
    assert isinstance(answer, session.SessionCleared), answer
    return answer


def snapshot(actor: Actor) -> session.SessionSnapshot:
    found = actor.book.read(session.GetSnapshot(session_id=actor.session_id))
    assert isinstance(found, session.SessionSnapshot), found
    return found


def page(actor: Actor, **more: object) -> session.Texts:
    request = session.ReadTexts(session_id=actor.session_id)
    found = actor.book.read(msgspec.structs.replace(request, **more))
    assert isinstance(found, session.Texts), found
    return found


def every(actor: Actor, **more: object) -> list[tuple[int, str]]:
    """Return all that is found page by page, as (sequence, type), newest first."""
    found = page(actor, **more)
    events = list(found.events)
    while found.upto:
        more.update(upto=found.upto, floor=found.floor)
        found = page(actor, **more)
        events += found.events
    return [(n, str(event_decoder.decode(body).__struct_config__.tag)) for n, body in events]


def play(actor: Actor, *, deltas: int = 1, outcome: turn.TurnOutcome = "completed") -> TurnId:
    turn_id = actor.begin()
    pieces = [delta(actor.session_id, turn_id, "x") for _ in range(deltas)]
    actor.send(*map(actor.draft, pieces))
    assert isinstance(actor.end(turn_id, outcome)[0], int)
    actor.book.desk.retention.after_commit()
    return turn_id


def test_a_clear_begins_the_conversation_behind_the_last_event(actor: Actor) -> None:
    play(actor)
    last = actor.book.row(actor.session_id).last_sequence
    cleared = clear(actor)
    assert (cleared.cleared_after, cleared.cleared_at) == (last, 5_000)
    assert actor.book.story() == ["SessionCleared"]
    (bell,) = [bell for _, bell in actor.book.effects[-1].bells]
    assert bell.items == (turn.Cleared(after=last),)
    assert not actor.book.effects[-1].starts, "an agent that is not there is not woken"
    row = actor.book.row(actor.session_id)
    assert (row.cleared_after, row.cleared_at, row.last_sequence) == (last, 5_000, last)
    assert actor.open().cleared_after == last
    inbox = actor.book.read(turn.PullInbox(session_id=actor.session_id), actor.agent_id)
    assert inbox == turn.Inbox(items=(turn.Cleared(after=last),))


def test_the_same_clear_again_is_the_same_and_an_empty_history_is_cleared_again(
    actor: Actor,
) -> None:
    play(actor)
    first = clear(actor)
    assert clear(actor) == first
    assert actor.book.story() == []
    second = clear(actor, at=6_000)
    assert (second.cleared_after, second.cleared_at) == (first.cleared_after, 6_000)
    assert actor.book.story() == ["SessionCleared"]


def test_a_clear_is_refused_while_a_turn_is_open_or_a_message_waits(actor: Actor) -> None:
    request = session.ClearSession(session_id=actor.session_id, at=1)
    accepted = actor.accept()
    assert actor.book.refused(request) == "TURN_IN_PROGRESS"
    turn_id = actor.begin(accepted)
    assert actor.book.refused(request) == "TURN_IN_PROGRESS"
    actor.end(turn_id)
    assert isinstance(actor.book.ask(request), session.SessionCleared)


def test_no_unknown_or_closed_session_is_cleared(book: Book, actor: Actor) -> None:
    request = session.ClearSession(session_id=SessionId("none"), at=1)
    assert book.refused(request) == "AGENT_NOT_FOUND"
    book.ask(session.CloseSession(session_id=actor.session_id))
    request = session.ClearSession(session_id=actor.session_id, at=1)
    assert book.refused(request) == "AGENT_NOT_FOUND"


def test_a_clear_drops_what_was_approved_for_the_session_alone(actor: Actor) -> None:
    turn_id = actor.begin()
    scopes: tuple[approval.Scope, ...] = ("session", "agent")
    for scope in scopes:
        actor.ask_approval(turn_id, scope)
        settle = approval.Settle(
            session_id=actor.session_id,
            request_id=scope,
            kind="approval",
            state="approved",
            scope=scope,
        )
        assert isinstance(actor.book.ask(settle), approval.PendingRow)
    actor.end(turn_id)
    table = "select session = 0 from grants where agent_id = ?"
    both = actor.book.connection.execute(table, (actor.agent_id,)).fetchall()
    assert sorted(both) == [(0,), (1,)]
    clear(actor)
    assert actor.book.connection.execute(table, (actor.agent_id,)).fetchall() == [(1,)]


def test_a_snapshot_counts_completed_turns_and_what_requests_have_used(actor: Actor) -> None:
    assert snapshot(actor) == session.SessionSnapshot(session_id=actor.session_id)
    turn_id = actor.begin()
    said = make(event.AgentMessageCompleted, actor.session_id, turn_id, content="x")
    first = turn.AddUsage(input_tokens=10, output_tokens=2, cost_usd=0.5)
    actor.send(actor.draft(said, first))
    second = turn.AddUsage(
        input_tokens=20, output_tokens=3, total_tokens=30, cache_read=15, cache_creation=5
    )
    end = turn.EndTurn(turn_id=turn_id, outcome="completed")
    actor.send(actor.draft(final(actor.session_id, turn_id), second, end))
    play(actor, outcome="failed")
    play(actor, outcome="interrupted")
    expected = session.SessionSnapshot(
        session_id=actor.session_id,
        completed=1,
        input_tokens=30,
        output_tokens=5,
        total_tokens=42,
        cost_usd=0.5,
        requests=2,
        cache_read=15,
        cache_creation=5,
    )
    assert snapshot(actor) == expected
    assert actor.book.row(actor.session_id).turns == 3
    clear(actor)
    assert snapshot(actor) == expected
    actor.book.ask(session.CloseSession(session_id=actor.session_id))
    assert snapshot(actor) == expected


@pytest.mark.parametrize("cost", [float("inf"), float("nan"), -1.0])
def test_a_cost_that_is_none_is_not_counted(actor: Actor, cost: float) -> None:
    turn_id = actor.begin()
    said = make(event.AgentMessageCompleted, actor.session_id, turn_id, content="x")
    used = turn.AddUsage(input_tokens=-1, output_tokens=1, cost_usd=cost, cache_read=-5)
    actor.send(actor.draft(said, used))
    found = snapshot(actor)
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (0, 1, 0.0)
    assert (found.total_tokens, found.cache_read) == (1, 0)


def test_counters_that_become_too_large_stay_what_json_can_hold(actor: Actor) -> None:
    turn_id = actor.begin()
    most = 2**53 - 1
    used = turn.AddUsage(input_tokens=most, output_tokens=0, total_tokens=2**63 - 1)
    for _ in range(2):
        said = make(event.AgentMessageCompleted, actor.session_id, turn_id, content="x")
        assert isinstance(actor.send(actor.draft(said, used))[0], int)
    found = snapshot(actor)
    assert (found.input_tokens, found.total_tokens, found.requests) == (most, most, 2)


def test_retention_changes_no_figure_and_says_that_texts_are_gone(actor: Actor) -> None:
    outcomes: tuple[turn.TurnOutcome, ...] = ("completed", "failed", "completed")
    for outcome in outcomes:
        play(actor, deltas=20, outcome=outcome)
    before = snapshot(actor)
    assert not page(actor).removed
    actor.book.desk.retention.configure(
        Retention(session_bytes=3_000, session_days=0, total_bytes=0, closed_days=0)
    )
    actor.book.desk.retention.after_commit()
    play(actor, deltas=20)
    for _ in range(1_000):
        if actor.book.desk.retention.step() is None:
            break
    assert actor.book.row(actor.session_id).first_sequence > 3
    found = snapshot(actor)
    assert found == msgspec.structs.replace(before, completed=before.completed + 1)
    assert page(actor).removed
    assert [kind for _, kind in every(actor)] == ["agent.message.completed", "user.message"]


def test_texts_are_read_backwards_through_windows_of_the_log(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "WINDOW", 7)
    for _ in range(3):
        play(actor, deltas=10)
    # 1, then per turn: the message, ten pieces, the end.
    expected = [37, 26, 25, 14, 13, 2]
    assert [sequence for sequence, _ in every(actor)] == expected
    first = page(actor)
    assert [sequence for sequence, _ in first.events] == [37]
    assert (first.upto, first.last_sequence, first.floor) == (30, 37, 0)
    assert page(actor, upto=24).events == ()
    assert page(actor, upto=24).upto == 17


def test_a_page_of_texts_is_bounded_by_bytes(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        play(actor)
    whole = every(actor)
    monkeypatch.setattr(texts, "PAGE_BYTES", 1)
    assert len(page(actor).events) == 1
    assert every(actor) == whole


def test_texts_begin_behind_the_clear_unless_another_floor_is_named(actor: Actor) -> None:
    play(actor)
    clear(actor)
    assert every(actor) == []
    assert [sequence for sequence, _ in every(actor, floor=0)] == [4, 2]
    play(actor)
    assert [sequence for sequence, _ in every(actor)] == [7, 5]


def test_the_ends_of_calls_are_found_where_they_are_wanted(actor: Actor) -> None:
    turn_id = actor.begin()
    asked = tool_event(event.ToolCallRequested, actor.session_id, turn_id, "a", tool_args={})
    failed = tool_event(event.ToolCallFailed, actor.session_id, turn_id, "a", error="no")
    actor.send(actor.draft(asked), actor.draft(failed))
    assert [kind for _, kind in every(actor)] == ["user.message"]
    assert [kind for _, kind in every(actor, outputs=True)] == ["tool.call.failed", "user.message"]


@pytest.mark.parametrize("harm", ["update events set body = x'7b7d'", "delete from events"])
def test_what_is_damaged_is_named_and_left_out(actor: Actor, harm: str) -> None:
    play(actor, deltas=3)
    play(actor, deltas=3)
    met: list[BaseException] = []
    actor.book.desk.heed(lambda error, _: met.append(error))
    actor.book.connection.execute(f"{harm} where sequence in (6, 7)")
    found = page(actor)
    assert [sequence for sequence, _ in found.events] == [11, 2]
    assert found.damaged == ((6, 7),)
    assert len(met) == 1


def test_an_unknown_session_has_no_figures_and_no_texts(book: Book) -> None:
    for request in (
        session.GetSnapshot(session_id=SessionId("none")),
        session.ReadTexts(session_id=SessionId("none")),
    ):
        answer = book.read(request)
        assert getattr(answer, "code", "") == "SESSION_NOT_FOUND"


def test_figures_are_those_of_one_session(book: Book, actor: Actor) -> None:
    other = with_actor(book)
    play(other)
    assert snapshot(actor).completed == 0
    assert snapshot(other).completed == 1
    assert book.ask(create_agent("third", "s3"))
