"""The ledger of tool calls: no call is started twice, and the ledger stays bounded."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from roost.actors.store.database import MIGRATIONS
from roost.actors.store.journal import Journal
from roost.actors.store.ledger import ALREADY_STARTED, CONFLICT, FULL, KEPT_MS, Ledger
from roost.actors.store.recovery import plan_recovery, repair_drafts
from roost.schemas import event, turn
from roost.schemas.base import CallId
from roost.schemas.unions import event_decoder
from tests.support.desk import decoded
from tests.support.store import tool_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roost.schemas.base import TurnId
    from tests.support.desk import Actor

PRINT = b"f" * 32
CALL = CallId("call")


def start(actor: Actor, turn_id: TurnId, call_id: str = CALL, print_: bytes = PRINT) -> turn.Draft:
    found = tool_event(event.ToolCallStarted, actor.session_id, turn_id, call_id)
    return actor.draft(found, turn.ClaimCall(call_id=CallId(call_id), fingerprint=print_))


def request(actor: Actor, turn_id: TurnId, call_id: str = CALL) -> turn.Draft:
    made = tool_event(event.ToolCallRequested, actor.session_id, turn_id, call_id, tool_args={})
    return actor.draft(made)


def complete(actor: Actor, turn_id: TurnId, call_id: str = CALL) -> turn.Draft:
    found = tool_event(event.ToolCallCompleted, actor.session_id, turn_id, call_id, result="done")
    return actor.draft(found, turn.SettleCall(call_id=CallId(call_id), state="completed"))


def fail(actor: Actor, turn_id: TurnId, outcome: event.Outcome) -> turn.Draft:
    found = tool_event(
        event.ToolCallFailed,
        actor.session_id,
        turn_id,
        CALL,
        error="it failed",
        error_code="TOOL_TIMEOUT",
        outcome=outcome,
    )
    state = "unknown" if outcome == "unknown" else "released"
    return actor.draft(found, turn.SettleCall(call_id=CALL, state=state))  # type: ignore[arg-type]


def recall(actor: Actor, call_id: str = CALL) -> event.AnyEvent | None:
    answer = actor.book.read(
        turn.RecallCall(session_id=actor.session_id, call_id=CallId(call_id)), actor.agent_id
    )
    assert isinstance(answer, turn.CallRecalled), answer
    return event_decoder.decode(answer.body) if answer.body else None


def test_a_running_call_is_not_started_again(actor: Actor) -> None:
    turn_id = actor.begin()
    first = start(actor, turn_id)
    sequence = actor.send(request(actor, turn_id), first)[1]
    assert actor.send(start(actor, turn_id)) == [ALREADY_STARTED]
    assert actor.send(first) == [sequence]
    assert recall(actor) is None


def test_two_starts_in_one_group_are_one_start(actor: Actor) -> None:
    turn_id = actor.begin()
    answers = actor.send(start(actor, turn_id), start(actor, turn_id), complete(actor, turn_id))
    assert [answer if isinstance(answer, str) else "" for answer in answers] == [
        "",
        ALREADY_STARTED,
        "",
    ]


def test_a_completed_call_is_answered_from_the_log(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(start(actor, turn_id), complete(actor, turn_id))
    assert actor.send(start(actor, turn_id)) == [ALREADY_STARTED]
    found = recall(actor)
    assert isinstance(found, event.ToolCallCompleted)
    assert found.result == "done"


def test_a_call_of_unknown_effect_keeps_its_tombstone(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(start(actor, turn_id), fail(actor, turn_id, "unknown"))
    actor.end(turn_id)
    second = actor.begin()
    assert actor.send(start(actor, second)) == [ALREADY_STARTED]
    found = recall(actor)
    assert isinstance(found, event.ToolCallFailed)
    assert (found.error_code, found.outcome) == ("TOOL_TIMEOUT", "unknown")


def test_the_id_of_a_call_is_for_one_tool_with_its_arguments(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(start(actor, turn_id))
    assert actor.send(start(actor, turn_id, print_=b"g" * 32)) == [CONFLICT]


def test_a_call_without_effect_may_be_started_again(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(start(actor, turn_id), fail(actor, turn_id, "failed"))
    (answer,) = actor.send(start(actor, turn_id))
    assert isinstance(answer, int)


def test_a_refused_start_leaves_no_gap_and_disturbs_no_other(actor: Actor) -> None:
    turn_id = actor.begin()
    (first,) = actor.send(start(actor, turn_id))
    assert isinstance(first, int)
    answers = actor.send(
        request(actor, turn_id, "a"), start(actor, turn_id), request(actor, turn_id, "b")
    )
    assert answers == [first + 1, ALREADY_STARTED, first + 2]


def test_the_ledger_survives_a_restart_of_the_store(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(start(actor, turn_id))
    actor.book.close()
    actor.book.open()
    assert actor.send(start(actor, turn_id)) == [ALREADY_STARTED]


def test_a_crash_makes_a_running_call_unknown(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(request(actor, turn_id), start(actor, turn_id))
    repairs = actor.book.desk.repairs
    actor.book.desk.transact(lambda: repairs.repair_cold(actor.session_id))
    states = actor.book.desk.journal.db.execute("select state from tool_ledger").fetchall()
    assert states == [("unknown",)]
    found = recall(actor)
    assert isinstance(found, event.ToolCallFailed)
    assert found.outcome == "unknown"


def test_a_claim_comes_with_a_start_and_a_settlement_with_an_end(actor: Actor) -> None:
    turn_id = actor.begin()
    asked = tool_event(event.ToolCallRequested, actor.session_id, turn_id, CALL, tool_args={})
    started = tool_event(event.ToolCallStarted, actor.session_id, turn_id, CALL)
    claim = turn.ClaimCall(call_id=CALL, fingerprint=PRINT)
    settle = turn.SettleCall(call_id=CALL, state="completed")
    other = turn.ClaimCall(call_id=CallId("other"), fingerprint=PRINT)
    drafts = (
        actor.draft(asked, claim),
        actor.draft(asked, settle),
        actor.draft(started, settle),
        actor.draft(started, other),
    )
    assert actor.send(*drafts) == ["EVENT_SCHEMA_INCOMPATIBLE"] * 4


def test_the_repair_of_a_turn_by_its_session_makes_a_running_call_unknown(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.send(request(actor, turn_id), start(actor, turn_id))
    opened = actor.open()
    assert opened.turn is not None
    plan = plan_recovery(
        actor.session_id,
        turn_id,
        decoded(actor.book, actor.session_id),
        opened.turn.pending,
        cancelled=False,
        timestamp=1.0,
    )
    assert actor.send(
        *repair_drafts(plan, actor.session_id, turn_id, opened.generation, opened.turn.pending)
    )
    states = actor.book.desk.journal.db.execute("select state from tool_ledger").fetchall()
    assert states == [("unknown",)]
    second = actor.begin()
    assert actor.send(start(actor, second)) == [ALREADY_STARTED]


@pytest.fixture
def journal() -> Iterator[Journal]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statements in MIGRATIONS:
        for statement in statements:
            connection.execute(statement)
    yield Journal(connection, lambda: 1_000_000.0)
    connection.close()


def put(ledger: Ledger, *names: str, state: str = "") -> None:
    for name in names:
        assert ledger.refusal(1, name, PRINT) == ""
        ledger.claim(1, name, PRINT)
        if state:
            ledger.settle(1, name, state, 1)  # type: ignore[arg-type]


def names(journal: Journal) -> list[str]:
    sql = "select call_id from tool_ledger order by call_id"
    return [row[0] for row in journal.db.execute(sql)]


def test_completed_calls_make_room_the_oldest_first(journal: Journal) -> None:
    times = iter(range(1_000_000, 1_000_100))
    journal.clock = lambda: next(times)
    ledger = Ledger(journal, 3)
    put(ledger, "a", "b", "c", state="completed")
    put(ledger, "d")
    assert names(journal) == ["b", "c", "d"]


def test_what_runs_or_is_unknown_never_makes_room(journal: Journal) -> None:
    ledger = Ledger(journal, 2)
    put(ledger, "a", state="unknown")
    put(ledger, "b")
    assert ledger.refusal(1, "c", PRINT) == FULL
    ledger.settle(1, "b", "completed", 1)
    put(ledger, "c")
    assert names(journal) == ["a", "c"]
    ledger.settle(1, "c", "released", 0)
    put(ledger, "d")
    assert names(journal) == ["a", "d"]


def test_completed_calls_go_after_a_day(journal: Journal) -> None:
    now = 1_000_000.0
    journal.clock = lambda: now
    ledger = Ledger(journal, 100)
    put(ledger, "a", state="completed")
    put(ledger, "b", state="unknown")
    now += KEPT_MS / 1000 + 1
    put(ledger, "c")
    assert names(journal) == ["b", "c"]


def test_what_was_undone_is_not_counted(journal: Journal) -> None:
    ledger = Ledger(journal, 2)
    put(ledger, "a", state="unknown")
    journal.begin()
    put(ledger, "b")
    journal.rollback()
    assert ledger.refusal(1, "b", PRINT) == ""
    put(ledger, "b")
    assert ledger.refusal(1, "c", PRINT) == FULL


def test_a_session_that_lost_its_process_has_no_running_call(journal: Journal) -> None:
    ledger = Ledger(journal, 9)
    put(ledger, "a")
    put(ledger, "b", state="completed")
    ledger.abandon(1)
    rows = journal.db.execute("select call_id, state from tool_ledger order by call_id").fetchall()
    assert rows == [("a", "unknown"), ("b", "completed")]
