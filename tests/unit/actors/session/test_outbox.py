from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from roost.actors.session.outbox import (
    MAX_UNANSWERED_DRAFTS,
    EventTooLarge,
    Outbox,
    cut_text,
)
from roost.schemas.base import SessionId
from roost.schemas.event import AgentMessageDelta, AgentReasoningStarted, UserMessage
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.schemas.turn import Draft

SESSION = SessionId("s")


class Road:
    def __init__(self) -> None:
        self.sent: list[Draft] = []
        self.open = True
        self.retries = 0

    def send_draft(self, draft: Draft) -> bool:
        if self.open:
            self.sent.append(draft)
        return self.open

    def retry_later(self) -> None:
        self.retries += 1

    @property
    def ids(self) -> list[str]:
        return [draft.event_id for draft in self.sent]


class Deltas:
    def __init__(self) -> None:
        self.number = 0

    def __call__(self, text: str) -> AgentMessageDelta:
        self.number += 1
        return AgentMessageDelta(
            id=f"d{self.number}", timestamp=1.0, session_id=SESSION, delta=text
        )


def make() -> tuple[Road, Outbox]:
    road = Road()
    outbox = Outbox(SESSION, road)
    outbox.generation = 7
    outbox.stream_as(Deltas())
    return road, outbox


def reasoning(event_id: str) -> AgentReasoningStarted:
    return AgentReasoningStarted(id=event_id, timestamp=1.0, session_id=SESSION)


def text_of(draft: Draft) -> str:
    event = event_decoder.decode(draft.body)
    assert isinstance(event, AgentMessageDelta)
    return event.delta


def test_the_first_piece_goes_out_at_once_and_the_rest_gathers() -> None:
    road, outbox = make()
    for piece in ("a", "b", "c"):
        outbox.text(piece)
    assert [text_of(draft) for draft in road.sent] == ["a"]
    outbox.acked("d1")
    assert [text_of(draft) for draft in road.sent] == ["a", "bc"]
    assert [draft.durable for draft in road.sent] == [False, False]


def test_gathered_text_goes_out_in_pieces_of_4096_bytes() -> None:
    road, outbox = make()
    outbox.text("a")
    outbox.text("é" * 4096)
    assert [len(text_of(draft).encode()) for draft in road.sent] == [1, 4096]
    outbox.acked(road.sent[-1].event_id)
    assert "".join(text_of(draft) for draft in road.sent) == "a" + "é" * 4096


def test_text_comes_before_the_event_that_follows_it() -> None:
    road, outbox = make()
    outbox.text("a")
    outbox.text("b")
    outbox.push(reasoning("e1"))
    assert [draft.type for draft in road.sent] == ["agent.message.delta"] * 2 + [
        "agent.reasoning.started"
    ]


def test_an_answer_covers_all_drafts_before_it() -> None:
    _, outbox = make()
    answers: list[tuple[str, str]] = []
    for name in ("e1", "e2", "e3"):
        outbox.push(reasoning(name), on_answer=lambda code, name=name: answers.append((name, code)))  # type: ignore[misc]
    outbox.acked("e2")
    assert answers == [("e1", ""), ("e2", "")]
    outbox.acked("e2")
    outbox.acked("unknown")
    assert answers == [("e1", ""), ("e2", "")]


def test_a_refusal_is_told_with_the_answer_that_covers_it() -> None:
    _, outbox = make()
    answers: list[str] = []
    outbox.push(reasoning("e1"), on_answer=answers.append)
    outbox.push(reasoning("e2"), on_answer=answers.append)
    outbox.refused("e2", "ALREADY_SETTLED")
    assert answers == []
    outbox.acked("e2")
    assert answers == ["", "ALREADY_SETTLED"]
    assert outbox.is_empty


def test_unanswered_drafts_go_out_again_in_order_and_unchanged() -> None:
    road, outbox = make()
    for name in ("e1", "e2", "e3"):
        outbox.push(reasoning(name))
    outbox.acked("e1")
    before = road.sent[1:]
    road.sent = []
    outbox.resend()
    assert road.sent == before


def test_nothing_overtakes_what_could_not_be_sent() -> None:
    road, outbox = make()
    road.open = False
    outbox.push(reasoning("e1"))
    road.open = True
    outbox.push(reasoning("e2"))
    assert road.sent == []
    outbox.resume()
    assert road.ids == ["e1", "e2"]


def test_everything_is_tied_to_the_opening_draft_until_that_is_answered() -> None:
    road, outbox = make()
    opening = UserMessage(id="e1", timestamp=1.0, session_id=SESSION, content="x")
    outbox.push(opening, opens=True)
    outbox.push(reasoning("e2"))
    outbox.acked("e1")
    outbox.push(reasoning("e3"))
    assert [draft.tied_to for draft in road.sent] == ["", "e1", ""]


def test_a_failed_disk_holds_everything_until_it_is_tried_again() -> None:
    road, outbox = make()
    outbox.push(reasoning("e1"))
    outbox.push(reasoning("e2"))
    outbox.refused("e1", "EVENT_APPEND_FAILED")
    outbox.push(reasoning("e3"))
    assert (road.ids, road.retries) == (["e1", "e2"], 1)
    outbox.resend()
    assert road.ids == ["e1", "e2", "e1", "e2", "e3"]
    outbox.acked("e3")
    assert outbox.is_empty


def test_changes_without_an_event_have_an_id_of_their_own() -> None:
    road, outbox = make()
    outbox.push(None, (), event_id="x", turn_id="t")
    assert (road.sent[0].event_id, road.sent[0].type, road.sent[0].body) == ("x", "", b"")
    assert road.sent[0].generation == 7


def test_an_event_that_does_not_fit_the_log_is_not_queued() -> None:
    road, outbox = make()
    with pytest.raises(EventTooLarge):
        outbox.push(UserMessage(id="e", timestamp=1.0, session_id=SESSION, content="x" * 1_048_576))
    assert road.sent == []
    assert outbox.is_empty


async def test_a_runner_is_held_back_while_too_much_is_unanswered() -> None:
    _, outbox = make()
    for number in range(MAX_UNANSWERED_DRAFTS):
        outbox.push(reasoning(f"e{number}"))
    passed = False

    async def write() -> None:
        nonlocal passed
        await outbox.room()
        passed = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert not passed
        outbox.acked("e0")
    assert passed


async def test_gathered_text_counts_against_the_bound() -> None:
    _, outbox = make()
    outbox.text("x")
    assert not outbox.is_full
    outbox.text("x" * 1024 * 1024)
    assert outbox.is_full


async def test_waiting_until_all_is_on_disk_ends_when_it_is_dropped() -> None:
    _, outbox = make()
    outbox.push(reasoning("e1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.settled)
        await trio.testing.wait_all_tasks_blocked()
        assert not outbox.is_empty
        outbox.drop()
    assert outbox.is_empty


@given(st.text(max_size=200), st.integers(4, 40))
def test_a_text_is_cut_between_characters_and_nothing_is_lost(text: str, limit: int) -> None:
    text = text.encode(errors="ignore").decode()
    pieces = cut_text(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= limit for piece in pieces)
