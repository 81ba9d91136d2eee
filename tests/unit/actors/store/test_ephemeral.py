"""When an ephemeral session is closed because nobody wants it any more."""

from __future__ import annotations

import msgspec
import trio

from roost.actors.store.ephemeral import Idlers
from roost.schemas import agent, session, turn
from roost.schemas.base import AgentId, Done, Refused, SessionId, TurnId
from roost.schemas.control import ChildReport
from tests.support.desk import Actor, Book
from tests.support.store import create_agent, message

SECONDS = 100.0


class Watched:
    """The sessions that are followed, and those that were closed."""

    def __init__(self, book: Book) -> None:
        self.followed: set[str] = set()
        self.closed: list[str] = []
        self.book = book
        self.idlers = Idlers(
            book.desk, SECONDS, is_followed=self.followed.__contains__, close=self._close
        )

    def _close(self, session_id: str, reason: str) -> None:
        self.closed.append(session_id)
        self.book.ask(session.CloseSession(session_id=SessionId(session_id), reason=reason))


def add(book: Book, name: str, *, ephemeral: bool = True) -> None:
    request = create_agent(f"agent-{name}", name)
    spec = msgspec.structs.replace(request.session, ephemeral=ephemeral)
    assert isinstance(book.ask(msgspec.structs.replace(request, session=spec)), agent.AgentCreated)


async def test_what_nobody_follows_and_nothing_happens_in_is_closed(
    book: Book, autojump_clock: trio.testing.MockClock
) -> None:
    watched = Watched(book)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.idlers.run)
        await trio.sleep(5 * SECONDS)
        add(book, "stays", ephemeral=False)
        add(book, "idle")
        add(book, "followed")
        add(book, "busy")
        watched.followed.add("followed")
        start = turn.StartTurn(message=message("busy"), turn_id=TurnId("T"))
        accepted = book.ask(start)
        assert isinstance(accepted, turn.Accepted)
        await trio.sleep(0.9 * SECONDS)
        assert watched.closed == []
        await trio.sleep(0.3 * SECONDS)
        assert watched.closed == ["idle"]
        actor = Actor(book, "agent-busy", "busy")
        actor.begin(accepted, "T")
        await trio.sleep(2 * SECONDS)
        actor.end(TurnId("T"))
        watched.followed.clear()
        await trio.sleep(0.9 * SECONDS)
        assert watched.closed == ["idle"]
        await trio.sleep(0.3 * SECONDS)
        assert sorted(watched.closed) == ["busy", "followed", "idle"]
        nursery.cancel_scope.cancel()
    while book.desk.retention.step() is not None:
        pass
    assert book.row("stays").state == "open"
    for name in ("idle", "followed", "busy"):
        gone = agent.GetAgent(agent_id=AgentId(f"agent-{name}"))
        assert isinstance(book.read(gone), Refused)


async def test_without_a_time_they_stay(book: Book, autojump_clock: trio.testing.MockClock) -> None:
    watched = Watched(book)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.idlers.run)
        watched.idlers.configure(0)
        add(book, "a")
        await trio.sleep(9 * SECONDS)
        assert watched.closed == []
        watched.idlers.configure(1.0)
        await trio.sleep(2)
        assert watched.closed == ["a"]
        nursery.cancel_scope.cancel()


def test_an_agent_that_still_ran_goes_when_its_process_has_ended(book: Book) -> None:
    add(book, "a")
    agent_id = AgentId("agent-a")
    start = turn.StartTurn(message=message("a"), turn_id=TurnId("T"))
    accepted = book.ask(start)
    assert isinstance(accepted, turn.Accepted)
    book.ask(agent.Hello(agent_id=agent_id, generation=1), agent_id)
    actor = Actor(book, agent_id, "a")
    actor.begin(accepted, "T")
    actor.end(TurnId("T"))
    book.ask(session.CloseSession(session_id=SessionId("a"), reason=session.IDLE))
    while book.desk.retention.step() is not None:
        pass
    shown = agent.GetAgent(agent_id=agent_id)
    assert isinstance(book.read(shown), agent.AgentRow)
    ended = ChildReport(child_id=agent_id, generation=1, event="ended")
    book.ask(ended)
    assert isinstance(book.read(shown), agent.AgentRow), "it may be started again"
    assert isinstance(book.ask(agent.Sleep(agent_id=agent_id, generation=1), agent_id), Done)
    book.ask(ended)
    assert isinstance(book.read(shown), Refused)
