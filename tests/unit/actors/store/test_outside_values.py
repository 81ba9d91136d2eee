"""What people and clients say goes into events that the store writes itself; all of them are events of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.schemas import event, session, turn
from roost.schemas.approval import Settle
from roost.schemas.base import Refused
from roost.schemas.unions import event_encoder
from roost.schemas.validation import judge
from tests.support.desk import Actor, Book, decoded, with_actor
from tests.support.store import delta, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = 3_000_000


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


@pytest.fixture
def actor(book: Book) -> Iterator[Actor]:
    made = with_actor(book)
    yield made
    for found in decoded(book, made.session_id):
        verdict = judge(event_encoder.encode(found), stored=False)
        assert verdict.ok, (found, verdict)


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("no\n", "no"),
        ("", "Denied by the user"),
        (" \t\u3000", "Denied by the user"),
        ("\ufeff", "Denied by the user"),
        ("\ufeff" * 300 + "x", "Denied by the user"),
        ("x" * LONG, "x" * 200),
        ("😀" * 300, "😀" * 200),
        ("\x85\u200b", "\u200b"),
    ],
)
def test_a_denial_has_1_to_200_characters_with_ink(actor: Actor, reason: str, written: str) -> None:
    turn_id = actor.begin()
    actor.ask_approval(turn_id, "c")
    actor.book.ask(
        Settle(
            session_id=actor.session_id,
            request_id="c",
            kind="approval",
            state="denied",
            reason=reason,
            by="n" * LONG,
        )
    )
    rejected = decoded(actor.book, actor.session_id)[-1]
    assert isinstance(rejected, event.ToolApprovalRejected)
    assert rejected.reason == written


def test_a_reason_to_cancel_or_to_close_is_bounded(actor: Actor) -> None:
    turn_id = actor.begin()
    actor.book.ask(turn.CancelTurn(session_id=actor.session_id, reason="\x01" * LONG))
    actor.end(turn_id, "interrupted")
    actor.book.ask(session.CloseSession(session_id=actor.session_id, reason="ü" * LONG))
    requested, _, closed = decoded(actor.book, actor.session_id)[-3:]
    assert isinstance(requested, event.CancellationRequested)
    assert isinstance(closed, event.SessionClosed)
    assert requested.reason == "\x01" * event.MAX_REASON
    assert closed.reason == "ü" * event.MAX_REASON


@pytest.mark.parametrize("field", ["message_id", "stream_id", "client_message_id"])
def test_the_ids_of_a_message_count_as_a_part_of_it(actor: Actor, field: str) -> None:
    answer = actor.book.ask(message(actor.session_id, **{field: "m" * LONG}))
    assert isinstance(answer, Refused)
    assert answer.code == "INPUT_TOO_LARGE"


@pytest.mark.parametrize(("value", "same"), [(1.0, True), (True, False), ("1", False), (2, False)])
def test_two_drafts_are_the_same_by_their_canonical_form(
    actor: Actor, value: object, same: bool
) -> None:
    first = msgspec.structs.replace(delta(actor.session_id, "t", "x"), metadata={"n": 1})
    assert actor.send(actor.draft(first)) == [2]
    again = actor.draft(msgspec.structs.replace(first, metadata={"n": value}))
    assert actor.send(again) == [2 if same else "EVENT_ID_CONFLICT"]
