from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.schemas import agent, event, session, turn
from roost.schemas.approval import ListPermissions, PendingRow, Permissions, Settle
from roost.schemas.base import AgentId, Done, Message, MessageId, Refused, SessionId, TurnId
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import create_agent, delta, make, message, pending_row, tool_event, unique

if TYPE_CHECKING:
    from pathlib import Path


def bells(book: Book) -> list[turn.Bell]:
    return [bell for _, bell in book.effects[-1].bells]


def settle(actor: Actor, request_id: str, state: str = "approved", **more: object) -> Settle:
    values: dict[str, object] = {
        "session_id": actor.session_id,
        "request_id": request_id,
        "kind": "approval",
        "state": state,
        "by": "someone",
        **more,
    }
    return Settle(**values)  # type: ignore[arg-type]


def agent_row(book: Book, agent_id: str) -> agent.AgentRow:
    row = book.read(agent.GetAgent(agent_id=AgentId(agent_id)))
    assert isinstance(row, agent.AgentRow), row
    return row


# Messages


def test_an_accepted_message_is_told_rung_and_starts_its_agent(actor: Actor) -> None:
    accepted = actor.accept()
    assert (accepted.state, accepted.position, accepted.duplicate) == ("queued", 0, False)
    assert actor.book.story() == ["message accepted"]
    (bell,) = bells(actor.book)
    (item,) = bell.items
    assert isinstance(item, turn.QueuedMessage)
    assert item.message_id == accepted.message_id
    assert actor.book.effects[-1].starts == {actor.agent_id: False}
    assert actor.accept().position == 1


def test_a_long_message_is_pulled_and_not_rung(tmp_path: Path) -> None:
    book = Book(tmp_path)
    actor = with_actor(book)
    actor.accept("x" * 100_000)
    assert bells(book)[0].items == ()
    inbox = book.read(turn.PullInbox(session_id=actor.session_id), actor.agent_id)
    assert isinstance(inbox, turn.Inbox)
    assert len(inbox.items) == 1
    book.close()


def test_the_same_client_message_is_accepted_once(actor: Actor) -> None:
    first = actor.accept(client_message_id="c1")
    again = actor.accept(client_message_id="c1")
    assert (again.message_id, again.duplicate, again.state) == (first.message_id, True, "queued")
    turn_id = actor.begin(first)
    assert actor.accept(client_message_id="c1").turn_id == turn_id
    actor.end(turn_id, "interrupted")
    last = actor.accept(client_message_id="c1")
    assert (last.state, last.outcome) == ("ended", "interrupted")
    assert actor.book.row(actor.session_id).queued == 0
    other = message(actor.session_id, "other", client_message_id="c1")
    assert actor.book.refused(other) == "CLIENT_MESSAGE_ID_CONFLICT"


def test_client_message_ids_of_two_sessions_are_apart(book: Book) -> None:
    first, second = with_actor(book), with_actor(book)
    assert not first.accept(client_message_id="c").duplicate
    assert not second.accept(client_message_id="c").duplicate


def test_a_call_that_the_front_repeats_is_no_duplicate_of_the_client(actor: Actor) -> None:
    request = message(actor.session_id, client_message_id="c1")
    answers = actor.book.write(("", request), ("", request))
    assert answers[0] == answers[1]


def test_messages_past_the_bound_are_refused_and_earlier_ones_stay(actor: Actor) -> None:
    for _ in range(3):
        actor.accept()
    answer = actor.book.ask(message(actor.session_id))
    assert isinstance(answer, Refused)
    assert answer.code == "TOO_MANY_QUEUED_MESSAGES"
    assert msgspec.json.decode(answer.data)["maxQueuedMessages"] == 3
    assert actor.book.row(actor.session_id).queued == 3


@pytest.mark.parametrize("text", ["x" * 9_000, "\x00" * 2_000])
def test_a_message_must_fit_one_event(actor: Actor, text: str) -> None:
    answer = actor.book.ask(message(actor.session_id, text, content=b""))
    assert isinstance(answer, Refused)
    assert answer.code == "INPUT_TOO_LARGE"
    assert msgspec.json.decode(answer.data)["limit"] == 10_000


def test_a_full_disk_refuses_new_work_only(actor: Actor) -> None:
    turn_id = actor.begin(actor.accept(client_message_id="c"))
    actor.ask_approval(turn_id, "a")
    actor.book.full = True
    assert actor.book.refused(message(actor.session_id)) == "DISK_FULL"
    assert actor.book.refused(create_agent("new", "new")) == "DISK_FULL"
    assert actor.accept(client_message_id="c").duplicate
    assert isinstance(actor.book.ask(settle(actor, "a")), PendingRow)
    assert actor.end(turn_id) == [6]
    assert actor.book.row(actor.session_id).turns == 1


def test_nobody_takes_a_message_for_what_is_not_there(book: Book, actor: Actor) -> None:
    answer = book.ask(message("nowhere"))
    assert isinstance(answer, Refused)
    assert answer.message == "AgenC daemon session not found or closed: nowhere"
    assert answer.code == "AGENT_NOT_FOUND"
    book.ask(session.CloseSession(session_id=actor.session_id))
    assert book.refused(message(actor.session_id)) == "AGENT_NOT_FOUND"


def test_a_message_that_waits_can_be_withdrawn(actor: Actor) -> None:
    accepted = actor.accept()
    cancel = turn.CancelMessage(
        session_id=actor.session_id, message_id=accepted.message_id, reason="r"
    )
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=True)
    assert actor.book.story() == ["message ended interrupted"]
    assert isinstance(bells(actor.book)[0].items[0], turn.Withdrawn)
    assert actor.book.log(actor.session_id) == ["session.created"]
    begin = turn.BeginTurn(turn_id=TurnId("t"), message_id=accepted.message_id)
    draft = actor.draft(delta(actor.session_id, "t", ""), begin)
    assert actor.send(draft) == ["ALREADY_SETTLED"]
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=False)


def test_cancelling_a_message_whose_turn_runs_cancels_the_turn_once(actor: Actor) -> None:
    accepted = actor.accept()
    turn_id = actor.begin(accepted)
    cancel = turn.CancelMessage(
        session_id=actor.session_id, message_id=accepted.message_id, reason="enough"
    )
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=True, turn_id=turn_id)
    assert actor.book.story() == ["cancellation.requested"]
    again = turn.CancelTurn(session_id=actor.session_id, reason="more", turn_id=turn_id)
    assert actor.book.ask(again) == turn.TurnCancelled(cancelled=True, turn_id=turn_id)
    assert actor.book.story() == []
    (item,) = bells(actor.book)[0].items
    assert item == turn.Cancelled(turn_id=turn_id, reason="enough")
    requested = decoded(actor.book, actor.session_id)[-1]
    assert isinstance(requested, event.CancellationRequested)
    assert (requested.turn_id, requested.reason) == (turn_id, "enough")


def test_a_turn_is_found_by_its_id_alone(actor: Actor) -> None:
    turn_id = actor.begin()
    cancel = turn.CancelTurn(session_id=SessionId(""), reason="r", turn_id=turn_id)
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=True, turn_id=turn_id)
    unknown = turn.CancelTurn(session_id=SessionId(""), reason="r", turn_id="none")
    assert actor.book.ask(unknown) == turn.TurnCancelled(cancelled=False)


@pytest.mark.parametrize("which", ["", "another"])
def test_cancelling_where_no_such_turn_runs_changes_nothing(actor: Actor, which: str) -> None:
    if which:
        actor.begin()
    cancel = turn.CancelTurn(session_id=actor.session_id, reason="r", turn_id=which)
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=False)
    cancel = turn.CancelTurn(session_id=SessionId("nowhere"), reason="r")
    assert actor.book.ask(cancel) == turn.TurnCancelled(cancelled=False)


# Decisions


@pytest.mark.parametrize(
    ("state", "kind", "code"),
    [
        ("approved", "tool.approval.approved", ""),
        ("denied", "tool.approval.rejected", "APPROVAL_REJECTED"),
        ("cancelled", "tool.approval.rejected", "TOOL_CANCELLED"),
    ],
)
def test_a_decision_is_a_row_an_event_and_a_bell(
    actor: Actor, state: str, kind: str, code: str
) -> None:
    actor.ask_approval(actor.begin(), "a")
    row = actor.book.ask(settle(actor, "a", state))
    assert isinstance(row, PendingRow)
    assert (row.state, row.by) == (state, "someone")
    assert actor.book.story() == [f"pending {state}", kind]
    assert bells(actor.book)[0].items == (turn.Decision(row=row),)
    written = decoded(actor.book, actor.session_id)[-1]
    assert getattr(written, "error_code", "") == code
    assert getattr(written, "tool_call_id", "") == "a"


def test_only_the_first_decision_counts(actor: Actor) -> None:
    actor.ask_approval(actor.begin(), "a")
    answers = actor.book.write(("", settle(actor, "a")), ("", settle(actor, "a", "denied")))
    assert isinstance(answers[0], PendingRow)
    assert isinstance(answers[1], Refused)
    assert answers[1].code == "INVALID_ARGUMENT"
    assert answers[1].message == "AgenC daemon tool request is not pending: a"


def test_an_approval_is_also_known_by_its_event(actor: Actor) -> None:
    asked = actor.ask_approval(actor.begin(), "a")
    row = actor.book.ask(settle(actor, f"apr_{asked.event_id}"))
    assert isinstance(row, PendingRow)
    assert row.request_id == "a"


def test_a_question_is_answered_without_an_event(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(actor.draft(None, turn.OpenPending(row=pending_row(turn_id, "q", "question"))))
    assert actor.book.story() == ["pending open"]
    assert actor.book.refused(settle(actor, "q")) == "INVALID_ARGUMENT"
    assert actor.book.refused(settle(actor, "q", kind="question")) == "INVALID_ARGUMENT"
    row = actor.book.ask(settle(actor, "q", "answered", kind="question", answer=b"{}"))
    assert isinstance(row, PendingRow)
    assert row.answer == b"{}"
    assert actor.book.story() == ["pending answered"]
    answer = actor.book.ask(settle(actor, "q", "answered", kind="question"))
    assert isinstance(answer, Refused)
    assert answer.message == "AgenC daemon elicitation request is not pending: q"


def test_nothing_is_settled_after_the_end_of_its_turn(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    actor.end(turn_id)
    assert actor.book.refused(settle(actor, "a")) == "INVALID_ARGUMENT"
    assert actor.book.refused(settle(actor, "b")) == "INVALID_ARGUMENT"
    actor.book.ask(session.CloseSession(session_id=actor.session_id))
    assert actor.book.refused(settle(actor, "a")) == "AGENT_NOT_FOUND"


@pytest.mark.parametrize("scope", ["once", "session", "agent"])
def test_a_wider_decision_is_remembered_where_it_holds(book: Book, scope: str) -> None:
    actor = with_actor(book)
    other = SessionId(unique("session"))
    spec = session.SessionSpec(session_id=other, agent_id=AgentId(actor.agent_id), created_at=2)
    assert isinstance(book.ask(session.CreateSession(session=spec)), session.SessionRow)
    actor.ask_approval(actor.begin(), "a")
    book.ask(settle(actor, "a", scope=scope))
    rung = bells(book)[0].grants
    granted = actor.open().grants
    elsewhere = Actor(book, actor.agent_id, other).opened.grants
    key = ("shell:ls",)
    assert (granted, elsewhere) == {
        "once": ((), ()),
        "session": (key, ()),
        "agent": (key, key),
    }[scope]
    assert rung == (key if scope == "agent" else ())
    permissions = book.read(ListPermissions(session_id=other))
    assert isinstance(permissions, Permissions)
    assert [found.permission_id for found in permissions.permissions] == [
        "mode:default",
        *(["approval:agent:shell:ls"] if scope == "agent" else []),
    ]


# Sessions and agents


def test_creating_again_gives_the_same_agent(book: Book) -> None:
    request = create_agent("a", "s", "hello")
    first, second = book.ask(request), book.ask(request)
    assert isinstance(first, agent.AgentCreated)
    assert first == second
    assert first.message is not None
    assert not first.message.duplicate
    assert first.session.queued == 1
    assert book.log("s") == ["session.created"]
    created = decoded(book, "s")[0]
    assert created.metadata == {
        "title": "",
        "cwd": "/w",
        "model": "",
        "agent_id": "a",
        "ephemeral": False,
    }


def test_a_create_that_is_refused_leaves_nothing(book: Book) -> None:
    assert book.refused(create_agent("a", "s", "x" * 20_000)) == "INPUT_TOO_LARGE"
    assert isinstance(book.read(agent.GetAgent(agent_id=AgentId("a"))), Refused)
    with_actor(book)
    spec = session.SessionSpec(session_id=SessionId("s"), agent_id=AgentId("gone"), created_at=1)
    assert book.refused(session.CreateSession(session=spec)) == "AGENT_NOT_FOUND"


def test_closing_an_idle_session_closes_it_at_once(actor: Actor) -> None:
    accepted = actor.accept()
    close = session.CloseSession(session_id=actor.session_id, reason="done")
    answer = actor.book.ask(close)
    assert isinstance(answer, session.SessionClosing)
    assert (answer.terminated, answer.last, answer.reason) == (True, True, "done")
    assert actor.book.story() == [
        "message ended interrupted",
        "session closing",
        "session.closed",
        "session closed",
    ]
    assert actor.book.effects[-1].starts == {}
    actor.book.time += 5
    again = actor.book.ask(close)
    assert isinstance(again, session.SessionClosing)
    assert not again.terminated
    assert again.closed_at == answer.closed_at
    assert actor.accept(message_id=accepted.message_id).outcome == "interrupted"
    closed = actor.book.refused(turn.OpenSession(session_id=actor.session_id), actor.agent_id)
    assert closed == "SESSION_CLOSED"
    assert actor.send(actor.draft(delta(actor.session_id, "t", ""))) == ["SESSION_CLOSED"]


def test_closing_waits_for_the_open_turn(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.book.ask(session.CloseSession(session_id=actor.session_id))
    assert actor.book.story() == ["session closing", "cancellation.requested"]
    inbox = actor.book.read(turn.PullInbox(session_id=actor.session_id), actor.agent_id)
    assert isinstance(inbox, turn.Inbox)
    assert [type(item) for item in inbox.items] == [turn.Cancelled, turn.Closing]
    actor.end(turn_id, "interrupted")
    assert actor.book.story()[-3:] == [
        "message ended interrupted",
        "session.closed",
        "session closed",
    ]


def test_an_unknown_session_cannot_be_closed(book: Book) -> None:
    answer = book.ask(session.CloseSession(session_id=SessionId("nowhere")))
    assert isinstance(answer, Refused)
    assert answer.code == "SESSION_NOT_FOUND"
    assert answer.message == "AgenC daemon session not found: nowhere"


def test_an_agent_that_ends_is_stopped_before_its_sessions_are_closed(actor: Actor) -> None:
    book, agent_id = actor.book, AgentId(actor.agent_id)
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    actor.accept()
    end = agent.EndAgent(agent_id=agent_id, reason="agent.stop")
    assert book.ask(end) == agent.AgentEnding(already=False)
    assert book.story() == [
        "message ended interrupted",
        "session closing",
        "cancellation.requested",
    ]
    assert agent_row(book, agent_id).status == "stopping"
    assert book.ask(end) == agent.AgentEnding(already=True)
    finish = agent.FinishAgent(agent_id=agent_id)
    row = book.ask(finish)
    assert isinstance(row, agent.AgentRow)
    assert (row.status, row.sessions) == ("stopped", ())
    assert book.story() == [
        "pending cancelled",
        "tool.approval.rejected",
        "tool.call.failed",
        "cancellation.completed",
        "message ended interrupted",
        "agent stopped",
        "session.closed",
        "session closed",
    ]
    assert book.ask(finish) == row
    assert book.story() == []
    assert book.refused(message(actor.session_id)) == "AGENT_NOT_FOUND"


def test_a_cancelled_agent_stays_cancelled(book: Book, actor: Actor) -> None:
    agent_id = AgentId(actor.agent_id)
    book.ask(agent.EndAgent(agent_id=agent_id, reason="run.cancel", cancel=True))
    book.ask(agent.FinishAgent(agent_id=agent_id))
    assert agent_row(book, agent_id).cancelled
    for request in (
        agent.EndAgent(agent_id=AgentId("nobody"), reason=""),
        agent.FinishAgent(agent_id=AgentId("nobody")),
    ):
        assert book.refused(request) == "AGENT_NOT_FOUND"


def test_what_comes_from_a_process_of_the_past_changes_nothing(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.book.ask(agent.EndAgent(agent_id=AgentId(actor.agent_id), reason="x"))
    actor.book.ask(agent.FinishAgent(agent_id=AgentId(actor.agent_id)))
    assert actor.end(turn_id) == ["STALE_GENERATION"]


# Agents' calls


def test_an_agent_sleeps_only_with_an_empty_inbox(actor: Actor) -> None:
    book = actor.book
    sleep = agent.Sleep(agent_id=AgentId(actor.agent_id), generation=1)
    accepted = actor.accept()
    assert book.refused(sleep, actor.agent_id) == "TURN_IN_PROGRESS"
    turn_id = actor.begin(accepted)
    assert book.refused(sleep, actor.agent_id) == "TURN_IN_PROGRESS"
    actor.end(turn_id)
    assert isinstance(book.ask(sleep, actor.agent_id), Done)
    assert agent_row(book, actor.agent_id).asleep
    hello = agent.Hello(agent_id=AgentId(actor.agent_id), generation=2)
    welcome = book.ask(hello, actor.agent_id)
    assert isinstance(welcome, agent.Welcome)
    assert not welcome.agent.asleep


def test_an_agent_is_told_which_sessions_have_work(book: Book) -> None:
    actor = with_actor(book)
    hello = agent.Hello(agent_id=AgentId(actor.agent_id), generation=1)
    welcome = book.ask(hello, actor.agent_id)
    assert isinstance(welcome, agent.Welcome)
    assert welcome.sessions == ()
    actor.accept()
    welcome = book.ask(hello, actor.agent_id)
    assert isinstance(welcome, agent.Welcome)
    assert welcome.sessions == (actor.session_id,)
    assert welcome.agent.started_at == 1_000_000


def test_a_session_actor_starts_with_all_that_is_open(actor: Actor) -> None:
    first = actor.opened.generation
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    actor.book.ask(settle(actor, "a"))
    waiting = actor.accept("next")
    opened = actor.open()
    assert opened.generation == first + 1
    assert opened.turn is not None
    assert (opened.turn.turn_id, opened.turn.first_sequence) == (turn_id, 2)
    assert opened.turn.message.text == "hello"
    assert [row.state for row in opened.turn.pending] == ["approved"]
    queued, decision = opened.inbox
    assert isinstance(queued, turn.QueuedMessage)
    assert queued.message_id == waiting.message_id
    assert isinstance(decision, turn.Decision)
    state = turn.SetRunnerState(turn_id=turn_id, state=b"step 3")
    actor.send(actor.draft(None, state))
    again = actor.open().turn
    assert again is not None
    assert again.runner_state == b"step 3"


def test_another_agents_sessions_are_not_there(book: Book) -> None:
    mine, other = with_actor(book), with_actor(book)
    requests: list[Message] = [turn.OpenSession(session_id=mine.session_id)]
    assert [book.refused(r, other.agent_id) for r in requests] == ["SESSION_NOT_FOUND"]
    for read in (
        turn.PullInbox(session_id=mine.session_id),
        session.ReadPage(session_id=mine.session_id, after=0),
    ):
        answer = book.read(read, other.agent_id)
        assert isinstance(answer, Refused)
        assert answer.code == "SESSION_NOT_FOUND"


# Reading


def test_status_follows_the_rows(actor: Actor) -> None:
    book = actor.book

    def statuses() -> tuple[str, str]:
        return book.row(actor.session_id).status, agent_row(book, actor.agent_id).status

    assert statuses() == ("idle", "idle")
    turn_id = actor.begin()
    assert statuses() == ("running", "running")
    actor.ask_approval(turn_id, "a")
    assert statuses() == ("waiting", "running")
    book.ask(settle(actor, "a"))
    assert statuses() == ("running", "running")
    crash = make(
        event.AgentTurnFailed,
        actor.session_id,
        turn_id,
        error="x",
        error_code="TURN_INTERRUPTED",
    )
    actor.send(actor.draft(crash, turn.EndTurn(turn_id=turn_id, outcome="failed")))
    assert statuses() == ("idle", "error")
    actor.end(actor.begin())
    assert statuses() == ("idle", "idle")


def test_lists_are_walked_page_by_page(book: Book) -> None:
    for number in range(5):
        book.ask(create_agent(f"a{number}", f"s{number}"))
    book.ask(agent.EndAgent(agent_id=AgentId("a1"), reason="x"))
    seen: list[str] = []
    after = ("", "")
    while True:
        page = book.read(agent.ListAgents(limit=2, after=after))
        assert isinstance(page, agent.Agents)
        seen += [row.spec.agent_id for row in page.agents]
        if not page.more:
            break
        last = page.agents[-1].spec
        after = (str(last.created_at), last.agent_id)
    assert seen == ["a0", "a2", "a3", "a4"]
    page = book.read(agent.ListAgents(limit=9, after=("", "a2"), ended=True))
    assert isinstance(page, agent.Agents)
    assert [row.spec.agent_id for row in page.agents] == ["a3", "a4"]
    sessions = book.read(session.ListSessions(limit=3, after=(1, "s0")))
    assert isinstance(sessions, session.Sessions)
    assert [row.spec.session_id for row in sessions.sessions] == ["s1", "s2", "s3"]
    assert sessions.more
    sessions = book.read(session.ListSessions(limit=3, agent_id="a4"))
    assert isinstance(sessions, session.Sessions)
    assert [row.spec.session_id for row in sessions.sessions] == ["s4"]


def test_the_sessions_of_an_agent_are_listed_backwards(book: Book) -> None:
    book.ask(create_agent("a", "s0"))
    book.ask(create_agent("b", "other"))
    for number in range(1, 5):
        spec = session.SessionSpec(
            session_id=SessionId(f"s{number}"), agent_id=AgentId("a"), created_at=1
        )
        book.ask(session.CreateSession(session=spec))
    seen: list[str] = []
    before = (0, "")
    while True:
        page = book.read(session.ListSessions(limit=2, agent_id="a", after=before, newest=True))
        assert isinstance(page, session.Sessions)
        seen += [row.spec.session_id for row in page.sessions]
        if not page.more:
            break
        before = (page.sessions[-1].spec.created_at, page.sessions[-1].spec.session_id)
    assert seen == ["s4", "s3", "s2", "s1", "s0"]


def test_the_figures_count_what_is_there(book: Book) -> None:
    actor = with_actor(book)
    other = with_actor(book)
    book.ask(session.CloseSession(session_id=other.session_id))
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "a")
    started = tool_event(event.ToolCallStarted, actor.session_id, turn_id, "b")
    actor.send(actor.draft(started))
    counts = book.read(session.Count())
    work = session.AgentWork(actor.agent_id, 1, 0, 1)
    assert counts == session.Counts(
        active=1, closed=1, agents=2, turns_open=1, calls_open=1, pending=1, events=7, work=(work,)
    )
    book.close()
    book.open()
    assert book.read(session.Count()) == counts


def test_delivered_only_grows(actor: Actor) -> None:
    for sequence in (3, 2):
        actor.book.ask(session.Delivered(sequences={actor.session_id: sequence, "nowhere": 9}))
    assert actor.book.row(actor.session_id).delivered == 3


def test_a_watch_starts_from_the_state_of_the_last_commit(actor: Actor) -> None:
    accepted = actor.accept()
    turn_id = actor.begin(accepted)
    actor.ask_approval(turn_id, "a")
    watched = actor.book.read(session.Watch(session_id=actor.session_id))
    assert isinstance(watched, session.Watched)
    assert (watched.row.last_sequence, watched.agent_status) == (4, "running")
    assert watched.turn is not None
    assert watched.turn.message_id == MessageId(accepted.message_id)
    assert [row.request_id for row in watched.pending] == ["a"]
    assert watched.epoch
    unknown = actor.book.read(session.Watch(session_id=SessionId("nowhere")))
    assert isinstance(unknown, Refused)
