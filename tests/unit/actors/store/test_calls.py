"""A client cancels one call: it is settled once, and durably, whoever comes second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.schemas import approval, event, session, turn
from roost.schemas.base import CallId, Refused, SessionId
from tests.support.desk import decoded
from tests.support.store import pending_row, tool_event

if TYPE_CHECKING:
    from roost.schemas.base import TurnId
    from tests.support.desk import Actor, Book


def cancel(actor: Actor, request_id: str, reason: str = "r") -> turn.CancelCall:
    return turn.CancelCall(
        session_id=actor.session_id, request_id=request_id, reason=reason, by="me"
    )


def items(book: Book) -> list[turn.InboxItem]:
    return [item for _, bell in book.effects[-1].bells for item in bell.items]


def run(actor: Actor, turn_id: TurnId, call_id: str) -> None:
    """Let a call start."""
    asked = tool_event(event.ToolCallRequested, actor.session_id, turn_id, call_id, tool_args={})
    started = tool_event(event.ToolCallStarted, actor.session_id, turn_id, call_id)
    assert all(isinstance(n, int) for n in actor.send(actor.draft(asked), actor.draft(started)))


def test_a_call_that_waits_is_settled_as_cancelled_and_its_turn_goes_on(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    answer = actor.book.ask(cancel(actor, "a"))
    assert answer == turn.CallCancelled(call_id=CallId("a"), reason="r")
    assert actor.book.story() == ["pending cancelled", "tool.approval.rejected"]
    rejected = decoded(actor.book, actor.session_id)[-1]
    assert isinstance(rejected, event.ToolApprovalRejected)
    assert (rejected.error_code, rejected.reason) == ("TOOL_CANCELLED", "r")
    (item,) = items(actor.book)
    assert isinstance(item, turn.Decision)
    assert (item.row.state, item.row.by) == ("cancelled", "me")
    assert actor.book.refused(cancel(actor, "a")) == "INVALID_ARGUMENT"


def test_a_question_that_waits_is_cancelled_too(actor: Actor) -> None:
    turn_id = actor.begin()
    row = pending_row(turn_id, "q", kind="question")
    assert actor.send(actor.draft(None, turn.OpenPending(row=row))) == [2]
    assert isinstance(actor.book.ask(cancel(actor, "q")), turn.CallCancelled)
    assert actor.book.story() == ["pending cancelled"]


def test_a_call_that_runs_is_asked_to_stop_once(actor: Actor) -> None:
    turn_id = actor.begin()
    run(actor, turn_id, "a")
    stopped = turn.CallCancelled(call_id=CallId("a"), reason="r")
    first, second = actor.book.write(("", cancel(actor, "a")), ("", cancel(actor, "a", "late")))
    assert first == stopped
    assert isinstance(second, Refused)
    assert second.message == "AgenC daemon tool request is not pending: a"
    assert items(actor.book) == [stopped]
    assert actor.book.story() == []


def test_an_agent_that_missed_the_bell_finds_the_call_in_its_inbox_until_it_has_ended(
    actor: Actor,
) -> None:
    turn_id = actor.begin()
    run(actor, turn_id, "a")
    run(actor, turn_id, "b")
    actor.book.ask(cancel(actor, "b"))
    pull = turn.PullInbox(session_id=actor.session_id)
    wanted = turn.Inbox(items=(turn.CallCancelled(call_id=CallId("b"), reason="r"),))
    assert actor.book.read(pull, actor.agent_id) == wanted
    actor.book.close()
    actor.book.open()
    assert actor.book.read(pull, actor.agent_id) == wanted
    ended = tool_event(event.ToolCallFailed, actor.session_id, turn_id, "b", error="stopped")
    settle = turn.SettleCall(call_id=CallId("b"), state="unknown")
    actor.send(actor.draft(ended, settle))
    assert actor.book.read(pull, actor.agent_id) == turn.Inbox(items=())
    assert actor.book.refused(cancel(actor, "b")) == "INVALID_ARGUMENT"


def test_a_call_whose_handler_has_ended_cannot_be_cancelled_though_its_event_is_to_come(
    actor: Actor,
) -> None:
    turn_id = actor.begin()
    run(actor, turn_id, "a")
    actor.send(actor.draft(None, turn.EndCall(call_id=CallId("a"))))
    assert actor.book.refused(cancel(actor, "a")) == "INVALID_ARGUMENT"
    pull = turn.PullInbox(session_id=actor.session_id)
    assert actor.book.read(pull, actor.agent_id) == turn.Inbox(items=())
    ended = tool_event(event.ToolCallFailed, actor.session_id, turn_id, "a", error="stopped")
    settle = turn.SettleCall(call_id=CallId("a"), state="unknown")
    assert all(isinstance(n, int) for n in actor.send(actor.draft(ended, settle)))


@pytest.mark.parametrize("which", ["none", "asked only", "decided"])
def test_a_call_that_neither_waits_nor_runs_cannot_be_cancelled(actor: Actor, which: str) -> None:
    turn_id = actor.begin()
    asked = tool_event(
        event.ToolCallRequested, actor.session_id, turn_id, "asked only", tool_args={}
    )
    actor.send(actor.draft(asked))
    actor.ask_approval(turn_id, "decided")
    approve = approval.Settle(
        session_id=actor.session_id, request_id="decided", kind="approval", state="approved"
    )
    actor.book.ask(approve)
    assert actor.book.refused(cancel(actor, which)) == "INVALID_ARGUMENT"


def test_no_call_of_an_unknown_or_closed_session_is_cancelled(book: Book, actor: Actor) -> None:
    unknown = turn.CancelCall(session_id=SessionId("none"), request_id="a")
    assert book.refused(unknown) == "AGENT_NOT_FOUND"
    book.ask(session.CloseSession(session_id=actor.session_id))
    assert book.refused(cancel(actor, "a")) == "AGENT_NOT_FOUND"
