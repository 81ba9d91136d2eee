from __future__ import annotations

from typing import TYPE_CHECKING, cast

from roost.actors.agent.history import SessionHistory
from roost.schemas import event
from roost.schemas.base import SessionId
from roost.schemas.session import Page, ReadPage
from roost.schemas.unions import event_encoder

if TYPE_CHECKING:
    from roost.actors.session.turns import Session
    from roost.schemas.base import Message
    from roost.schemas.event import AnyEvent

NAME = SessionId("s")


class Outbox:
    async def settled(self) -> None:
        return


class Log:
    """A session whose log is answered from pages made beforehand."""

    session_id = NAME
    cleared_after = 0

    def __init__(self, *pages: Page) -> None:
        self.outbox = Outbox()
        self.pages = list(pages)
        self.asked: list[int] = []

    async def ask_store(self, message: Message) -> Message:
        assert isinstance(message, ReadPage)
        self.asked.append(message.after)
        return self.pages.pop(0)


def page(first: int, last: int, *events: AnyEvent, lost: int = 0) -> Page:
    bodies = tuple(map(event_encoder.encode, events))
    return Page(session_id=NAME, first=first, bodies=bodies, last_sequence=last, lost_upto=lost)


def said(turn: str, text: str) -> event.UserMessage:
    return event.UserMessage(id="e", timestamp=1.0, session_id=NAME, turn_id=turn, content=text)


def asked(turn: str) -> event.ToolCallRequested:
    return event.ToolCallRequested(
        id="e",
        timestamp=1.0,
        session_id=NAME,
        turn_id=turn,
        tool_name="shell",
        tool_call_id="call",
        tool_args={},
    )


async def texts(log: Log) -> list[str]:
    history = SessionHistory(cast("Session", log))
    return [message.content for message in await history.messages()]


async def test_a_conversation_begins_where_the_log_does() -> None:
    log = Log(page(8, 9, said("b", "one"), said("c", "two"), lost=7))
    assert await texts(log) == ["one", "two"]
    assert log.asked == [0]


async def test_a_turn_that_was_removed_while_it_was_read_leaves_nothing_of_it() -> None:
    log = Log(page(1, 9, said("a", "gone"), asked("a")), page(8, 9, said("c", "kept"), lost=7))
    log.pages.append(page(9, 9, said("d", "too")))
    assert await texts(log) == ["kept", "too"]
    assert log.asked == [0, 2, 8]
