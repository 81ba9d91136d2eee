from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.store.starts import Starts
from roost.schemas import agent, control, event, session, turn
from roost.schemas.approval import Settle
from roost.schemas.base import AgentId
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import message, tool_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.schemas.base import TurnId


def report(actor: Actor, what: str, reason: str = "") -> None:
    found = control.ChildReport(
        child_id=actor.agent_id,
        generation=1,
        event=what,  # type: ignore[arg-type]
        reason=reason,
    )
    actor.book.ask(found)


def row(actor: Actor) -> agent.AgentRow:
    found = actor.book.read(agent.GetAgent(agent_id=AgentId(actor.agent_id)))
    assert isinstance(found, agent.AgentRow)
    return found


def start_call(actor: Actor, turn_id: TurnId, call_id: str) -> None:
    where = actor.session_id, turn_id, call_id
    actor.send(
        actor.draft(tool_event(event.ToolCallRequested, *where, tool_args={})),
        actor.draft(tool_event(event.ToolCallStarted, *where)),
    )


def cold(book: Book) -> None:
    repairs = book.desk.repairs
    book.desk.transact(repairs.mark_recovered)
    for session_id in repairs.sessions_to_repair():
        book.desk.transact(lambda session_id=session_id: repairs.repair_cold(session_id))  # type: ignore[misc]
    for agent_id in repairs.agents_to_finish():
        book.desk.transact(lambda agent_id=agent_id: repairs.finish(agent_id))  # type: ignore[misc]
    for session_id in repairs.sessions_to_close():
        book.desk.transact(lambda session_id=session_id: repairs.close(session_id))  # type: ignore[misc]


def test_an_agent_that_root_gave_up_ends_its_turn_and_its_queue(actor: Actor) -> None:
    turn_id = actor.begin()
    start_call(actor, turn_id, "a")
    actor.accept()
    report(actor, "gave_up", "killed by signal 9")
    assert actor.book.story() == [
        "tool.call.failed",
        "agent.turn.failed",
        "message ended failed",
        "message ended failed",
        "agent error",
    ]
    assert (row(actor).status, row(actor).error) == ("error", "killed by signal 9")
    failed = decoded(actor.book, actor.session_id)[-1]
    assert isinstance(failed, event.AgentTurnFailed)
    assert (failed.error_code, failed.retryable) == ("TURN_INTERRUPTED", False)
    report(actor, "gave_up", "again")
    assert actor.book.story() == []


def test_a_given_up_agent_is_started_afresh_by_its_next_message(actor: Actor) -> None:
    report(actor, "gave_up", "crashed")
    actor.accept()
    assert actor.book.effects[-1].starts == {actor.agent_id: True}
    actor.accept()
    assert actor.book.effects[-1].starts == {actor.agent_id: False}
    assert row(actor).status == "running"
    actor.begin(actor.accept())
    assert row(actor).status == "running"


def test_a_parked_turn_stays_when_its_agent_is_given_up(actor: Actor) -> None:
    actor.ask_approval(actor.begin(), "a")
    report(actor, "gave_up", "crashed")
    assert actor.book.story() == ["agent error"]
    assert actor.book.row(actor.session_id).status == "waiting"


def test_the_end_of_a_stopping_agents_process_finishes_it(actor: Actor) -> None:
    report(actor, "ended")
    assert row(actor).status == "idle"
    actor.book.ask(agent.EndAgent(agent_id=AgentId(actor.agent_id), reason="x"))
    report(actor, "ended")
    assert row(actor).status == "stopped"
    assert actor.book.story() == ["agent stopped", "session.closed", "session closed"]


def test_a_stopping_agent_that_root_gives_up_is_finished(actor: Actor) -> None:
    actor.book.ask(agent.EndAgent(agent_id=AgentId(actor.agent_id), reason="x"))
    report(actor, "gave_up", "it did not stop")
    assert row(actor).status == "stopped"


def test_an_agent_that_got_a_message_while_falling_asleep_is_started_again(actor: Actor) -> None:
    sleep = agent.Sleep(agent_id=AgentId(actor.agent_id), generation=1)
    actor.book.ask(sleep, actor.agent_id)
    report(actor, "ended")
    assert actor.book.effects[-1].starts == {}
    actor.accept()
    report(actor, "ended")
    assert actor.book.effects[-1].starts == {actor.agent_id: False}


def run(actor: Actor) -> None:
    start_call(actor, actor.begin(), "a")


def park(actor: Actor) -> None:
    actor.ask_approval(actor.begin(), "a")


def decide(actor: Actor) -> None:
    park(actor)
    actor.book.ask(
        Settle(
            session_id=actor.session_id, request_id="a", kind="approval", state="approved", by="x"
        )
    )


def close(actor: Actor) -> None:
    park(actor)
    actor.book.ask(session.CloseSession(session_id=actor.session_id))


def cancel(actor: Actor) -> None:
    park(actor)
    actor.book.ask(turn.CancelTurn(session_id=actor.session_id, reason="r"))


def stop(actor: Actor) -> None:
    run(actor)
    actor.book.ask(agent.EndAgent(agent_id=AgentId(actor.agent_id), reason="x"))


def queue(actor: Actor) -> None:
    actor.accept()


@pytest.mark.parametrize(
    ("before", "last", "session_status", "agent_status", "started"),
    [
        (run, "agent.turn.failed", "idle", "error", False),
        (park, "tool.approval.requested", "waiting", "running", False),
        (decide, "tool.approval.approved", "running", "running", True),
        (cancel, "cancellation.completed", "idle", "idle", False),
        (close, "session.closed", "closed", "idle", False),
        (stop, "session.closed", "closed", "stopped", False),
        (queue, "session.created", "running", "running", True),
    ],
)
def test_a_cold_start_repairs_what_cannot_go_on(
    book: Book,
    before: Callable[[Actor], None],
    last: str,
    session_status: str,
    agent_status: str,
    started: bool,
) -> None:
    actor = with_actor(book)
    before(actor)
    book.close()
    book.open()
    cold(book)
    assert book.log(actor.session_id)[-1] == last
    assert book.row(actor.session_id).status == session_status
    assert row(actor).status == agent_status
    assert book.desk.repairs.agents_to_start() == ([actor.agent_id] if started else [])
    assert row(actor).recovered is (agent_status != "stopped")
    log = book.log(actor.session_id)
    cold(book)
    assert book.log(actor.session_id) == log


def test_a_session_that_cannot_be_read_is_closed_all_the_same(actor: Actor) -> None:
    run(actor)
    actor.book.connection.execute("update events set body = x'00' where sequence >= 3")
    actor.book.close()
    actor.book.open()
    cold(actor.book)
    assert actor.book.row(actor.session_id).status == "idle"
    actor.book.ask(message(actor.session_id))
    assert actor.book.row(actor.session_id).queued == 1


class Asked:
    def __init__(self) -> None:
        self.got: list[tuple[str, bool]] = []

    def __call__(self, request: control.StartChild) -> None:
        self.got.append((request.child_id, request.fresh))


def heard(agent_id: str, what: str) -> control.ChildReport:
    return control.ChildReport(child_id=agent_id, generation=1, event=what)  # type: ignore[arg-type]


def test_after_a_cold_start_a_few_agents_are_started_at_once() -> None:
    asked = Asked()
    starts = Starts(asked, 2)
    starts.queue(["a", "b", "c", "d"])
    assert [name for name, _ in asked.got] == ["a", "b"]
    starts.report(heard("a", "started"))
    assert len(asked.got) == 2
    starts.report(heard("a", "ready"))
    starts.report(heard("x", "ready"))
    assert [name for name, _ in asked.got] == ["a", "b", "c"]
    starts.report(heard("b", "gave_up"))
    assert len(asked.got) == 4


def test_an_agent_that_was_asked_for_is_not_asked_for_again() -> None:
    asked = Asked()
    starts = Starts(asked, 2)
    starts.start("a", fresh=False)
    starts.start("a", fresh=False)
    assert asked.got == [("a", False)]
    starts.start("a", fresh=True)
    starts.linked("a")
    starts.start("a", fresh=False)
    starts.report(heard("a", "ended"))
    starts.start("a", fresh=False)
    assert asked.got == [("a", False), ("a", True), ("a", False), ("a", False)]
