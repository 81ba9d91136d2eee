from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from roost.actors.store import intake
from roost.actors.store.intake import NEVER, Intake, Waiting
from roost.schemas import agent, session, turn
from roost.schemas.base import AgentId, EventId, SessionId

if TYPE_CHECKING:
    from roost.supervisor.link import Link


def peer(name: str) -> Link:
    """Links are only compared here."""
    return cast("Link", name)


def text(number: int, *, durable: bool = False, size: int = 1) -> Waiting:
    draft = turn.Draft(
        session_id=SessionId("s"),
        generation=1,
        event_id=EventId(str(number)),
        type="agent.message.delta",
        turn_id="t",
        body=b"x" * size,
        durable=durable,
    )
    return Waiting("a", draft, peer("agent"), 0)


REQUEST = Waiting("", agent.GetAgent(agent_id=AgentId("a")), peer("front"), 1)
DELIVERED = Waiting("", session.Delivered(sequences={}), peer("front"), 0)


@pytest.fixture
def found() -> Intake:
    return Intake(4, 0.005)


def test_nothing_is_due_while_nothing_waits(found: Intake) -> None:
    assert found.due(1.0) == NEVER


@pytest.mark.parametrize("waiting", [REQUEST, text(1, durable=True)])
def test_a_promise_is_due_at_once(found: Intake, waiting: Waiting) -> None:
    found.written(1.0)
    found.add(waiting)
    assert found.due(1.0) == 1.0


@pytest.mark.parametrize("waiting", [DELIVERED, text(1)])
def test_text_alone_is_due_a_little_after_the_last_group(found: Intake, waiting: Waiting) -> None:
    found.written(1.0)
    found.add(waiting)
    assert found.due(1.001) == 1.005
    assert found.due(9.0) <= 9.0


def test_text_goes_with_a_promise_and_with_a_full_group(found: Intake) -> None:
    found.written(1.0)
    found.add(text(1))
    found.add(text(2, durable=True))
    assert found.take(1.0) == [text(1), text(2, durable=True)]
    for number in range(4):
        assert found.due(1.0) > 1.0
        found.add(text(number))
    assert found.due(1.0) == 1.0


def test_a_group_is_bounded_by_number_and_by_bytes(found: Intake) -> None:
    for number in range(6):
        found.add(text(number, durable=number == 5))
    assert len(found.take(1.0)) == 4
    assert found.due(1.0) == 1.0
    assert len(found.take(1.0)) == 2
    for number in range(3):
        found.add(text(number, size=intake.GROUP_BYTES * 2 // 3))
    assert [len(found.take(1.0)) for _ in range(3)] == [1, 1, 1]


def test_a_disk_that_takes_nothing_keeps_drafts_in_order_and_tries_requests(
    found: Intake,
) -> None:
    assert found.stall([text(1), REQUEST, text(2)], 1.0) == [REQUEST]
    found.add(text(3))
    assert found.due(1.0) == 1.0 + intake.STALL_SECONDS
    found.add(REQUEST)
    assert found.has_request_of(peer("front"))
    assert found.due(1.1) == 1.1
    assert found.take(1.1) == [REQUEST]
    assert found.due(1.1) == 1.0 + intake.STALL_SECONDS
    assert found.take(2.0) == [text(1), text(2), text(3)]
    assert found.written(2.0)
    assert not found.written(2.0)


def test_who_sends_more_than_can_be_kept_is_cut_off(
    found: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "KEPT_BYTES", 100)
    assert found.add(text(1, size=200))
    assert found.take(1.0)
    found.stall([text(1, size=60)], 1.0)
    assert found.add(text(2, size=40))
    assert not found.add(text(3, size=1))
    found.closed(peer("agent"))
    assert found.due(1.0) == NEVER


def test_what_came_on_a_closed_link_is_still_written_when_the_disk_is_well(
    found: Intake,
) -> None:
    found.add(text(1))
    found.closed(peer("agent"))
    assert found.take(1.0) == [text(1)]
