from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest
import uuid_utils

from roost.actors.store import items as module
from roost.schemas import event, session, turn
from roost.schemas.base import Refused, SessionId, TurnId
from roost.schemas.thread_log import (
    FindPending,
    FindTurn,
    FoundPending,
    FoundTurn,
    ItemEvents,
    ReadItems,
)
from roost.schemas.unions import event_decoder
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import final, message, tool_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


@pytest.fixture
def actor(book: Book) -> Actor:
    return with_actor(book)


def said(actor: Actor, turn_id: TurnId, *pieces: str, last: bool = False) -> None:
    """Write deltas and the message that they make; the last one ends the turn."""
    base = {"timestamp": time.time(), "session_id": actor.session_id, "turn_id": turn_id}
    for piece in pieces:
        delta = event.AgentMessageDelta(id=str(uuid_utils.uuid7()), delta=piece, **base)  # type: ignore[arg-type]
        actor.send(actor.draft(delta))
    done = msgspec.structs.replace(final(actor.session_id, turn_id), content="".join(pieces))
    if last:
        actor.send(actor.draft(done, turn.EndTurn(turn_id=turn_id, outcome="completed")))
    else:
        actor.send(actor.draft(msgspec.structs.replace(done, metadata={})))


def read(actor: Actor, **more: object) -> ItemEvents:
    found = actor.book.read(ReadItems(session_id=actor.session_id, **more))  # type: ignore[arg-type]
    assert isinstance(found, ItemEvents), found
    return found


def told(page: ItemEvents) -> list[tuple[int, str]]:
    kinds = [(at, event_decoder.decode(body)) for at, body in page.events]
    return [(at, str(one.__struct_config__.tag).rpartition(".")[2]) for at, one in kinds]


def test_of_a_run_of_deltas_only_the_first_is_read(actor: Actor) -> None:
    turn_id = actor.begin()
    said(actor, turn_id, "a", "b", "c")
    said(actor, turn_id, "d", last=True)
    page = read(actor)

    assert told(page) == [
        (1, "created"),
        (2, "message"),
        (3, "delta"),
        (6, "completed"),
        (7, "delta"),
        (8, "completed"),
    ]
    assert (page.upto, page.next, page.turn_id) == (8, 0, "")


def test_a_page_begins_with_the_turn_of_the_event_that_is_named(actor: Actor) -> None:
    for _ in range(3):
        turn_id = actor.begin()
        said(actor, turn_id, "a", "b", last=True)
    whole = read(actor)
    named = event_decoder.decode(dict(whole.events)[7])
    page = read(actor, after_event=named.id)

    assert page.found == 7
    assert told(page)[0] == (6, "message")
    assert read(actor, after_event="unknown").found == 0
    assert told(read(actor, after_event="unknown")) == told(whole)


def test_the_open_turn_alone_is_read(actor: Actor) -> None:
    said(actor, actor.begin(), "a", last=True)
    assert told(read(actor, open_turn=True)) == []
    turn_id = actor.begin()
    page = read(actor, open_turn=True)

    assert (page.turn_id, told(page)) == (turn_id, [(5, "message")])


def test_what_was_cleared_is_not_read(actor: Actor) -> None:
    said(actor, actor.begin(), "a", last=True)
    old = event_decoder.decode(dict(read(actor).events)[2])
    actor.book.ask(session.ClearSession(session_id=actor.session_id, at=1))
    said(actor, actor.begin(), "b", last=True)

    assert told(read(actor))[0] == (5, "message")
    assert read(actor, after_event=old.id).found == 0


def test_pages_go_on_where_the_last_one_ended(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        said(actor, actor.begin(), "a", "b", "c", last=True)
    whole = read(actor)
    monkeypatch.setattr(module, "WINDOW", 5)
    found: list[tuple[int, str]] = []
    page = read(actor)
    while True:
        found += told(page)
        if not page.next:
            break
        page = read(actor, after=page.next, upto=page.upto)

    # Where a page begins within a run, one delta more is read.
    assert set(told(whole)) <= set(found)
    assert {kind for _, kind in set(found) - set(told(whole))} <= {"delta"}


def test_a_page_ends_behind_so_many_items(actor: Actor) -> None:
    for _ in range(5):
        said(actor, actor.begin(), "a", "b", last=True)
    page = read(actor, max_items=3)

    opened = [kind for _, kind in told(page) if kind in ("message", "delta")]
    assert len(opened) == 4
    assert page.next


def test_what_cannot_be_read_is_left_out(book: Book, actor: Actor) -> None:
    said(actor, actor.begin(), "a", "b", last=True)
    said(actor, actor.begin(), "c", last=True)
    book.hurt(
        "update events set body = x'00' where sequence = 3", "delete from events where sequence = 6"
    )

    assert [at for at, _ in told(read(actor))] == [1, 2, 4, 5, 7, 8]


def test_an_approval_is_found_by_its_call_and_by_its_event_also_when_settled(actor: Actor) -> None:
    turn_id = actor.begin()
    asked = tool_event(event.ToolCallRequested, actor.session_id, turn_id, "call_1", tool_args={})
    actor.send(actor.draft(asked))
    actor.ask_approval(turn_id, "call_2")

    def find(**named: str) -> object:
        request = FindPending(session_id=SessionId(actor.session_id), **named)
        found = actor.book.read(request)
        assert isinstance(found, FoundPending)
        return found.row.request_id if found.row is not None else None

    assert find(request_id="call_2") == "call_2"
    assert find(request_id="call_1") is None
    assert find(event_id="unknown") is None
    row = actor.book.read(FindPending(session_id=actor.session_id, request_id="call_2"))
    assert isinstance(row, FoundPending)
    assert row.row is not None
    assert find(event_id=row.row.event_id) == ("call_2" if row.row.event_id else None)


def test_a_turn_is_found_before_it_begins_while_it_runs_and_when_it_has_ended(
    actor: Actor,
) -> None:
    def find(turn_id: str) -> object:
        return actor.book.read(FindTurn(session_id=actor.session_id, turn_id=turn_id))

    said(actor, actor.begin(), "before", last=True)
    assert find("T") == FoundTurn()
    start = turn.StartTurn(
        message=message(actor.session_id), turn_id=TurnId("T"), model="m", input=("a", "b")
    )
    accepted = actor.book.ask(start)
    assert isinstance(accepted, turn.Accepted)
    assert find("T") == FoundTurn(input=("a", "b"), model="m")
    actor.begin(accepted, "T")
    begun = find("T")
    assert isinstance(begun, FoundTurn)
    assert begun.first_sequence == 5
    said(actor, TurnId("T"), "done", last=True)
    assert find("T") == begun
    clear = session.ClearSession(session_id=SessionId(actor.session_id), at=1)
    assert isinstance(actor.book.ask(clear), session.SessionCleared)
    assert find("T") == FoundTurn(), "it does not count any more"
    lost = actor.book.read(FindTurn(session_id=SessionId("x"), turn_id="T"))
    assert isinstance(lost, Refused)


def test_a_turn_that_was_withdrawn_has_no_input_any_more(actor: Actor) -> None:
    start = turn.StartTurn(message=message(actor.session_id), turn_id=TurnId("T"))
    actor.book.ask(start)
    interrupt = turn.InterruptTurn(
        session_id=SessionId(actor.session_id), turn_id=TurnId("T"), reason="x"
    )
    assert isinstance(actor.book.ask(interrupt), turn.TurnCancelled)
    found = actor.book.read(FindTurn(session_id=actor.session_id, turn_id="T"))
    assert found == FoundTurn()
