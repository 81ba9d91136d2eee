"""What threads add to the store's rows, over a damaged file, an older format, and starts of the daemon."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store.rescue import rescue
from roost.schemas import agent, session, turn
from roost.schemas.base import AgentId, Refused, SessionId, TurnId
from tests.support.desk import Book, with_actor
from tests.support.store import create_agent, message, running_store, settings_with

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def ephemeral(agent_id: str, session_id: str) -> agent.CreateAgent:
    request = create_agent(agent_id, session_id)
    spec = msgspec.structs.replace(request.session, ephemeral=True)
    return msgspec.structs.replace(request, session=spec)


def test_a_file_built_anew_keeps_what_threads_need(tmp_path: Path) -> None:
    book = Book(tmp_path)
    actor = with_actor(book)
    actor.begin(turn_id="T")
    steer = turn.SteerTurn(message=message(actor.session_id, "steer"), turn_id=TurnId("T"))
    assert isinstance(book.ask(steer), turn.Accepted)
    other = with_actor(book)
    start = turn.StartTurn(
        message=message(other.session_id, "start"),
        turn_id=TurnId("U"),
        model="m",
        input=("a", "b"),
    )
    assert isinstance(book.ask(start), turn.Accepted)
    assert isinstance(book.ask(ephemeral("gone", "gone")), agent.AgentCreated)
    row = book.row(actor.session_id)
    book.close()
    rescue(book.path, "to see")
    book.open()
    assert book.row(actor.session_id) == row
    inbox = book.read(turn.PullInbox(session_id=actor.session_id), actor.agent_id)
    assert isinstance(inbox, turn.Inbox)
    (item,) = inbox.items
    assert isinstance(item, turn.Steer)
    assert (item.turn_id, item.message.text) == ("T", "steer")
    inbox = book.read(turn.PullInbox(session_id=other.session_id), other.agent_id)
    assert isinstance(inbox, turn.Inbox)
    (queued,) = inbox.items
    assert isinstance(queued, turn.QueuedMessage)
    assert (queued.turn_id, queued.model, queued.input) == ("U", "m", ("a", "b"))
    book.desk.transact(book.desk.repairs.wipe_ephemeral)
    gone = book.read(session.GetSession(session_id=SessionId("gone")))
    assert isinstance(gone, Refused)
    book.close()


async def test_ephemeral_threads_live_as_long_as_the_daemon(tmp_path: Path) -> None:
    gone = session.GetSession(session_id=SessionId("gone"))
    async with running_store(tmp_path, cold=True) as store:
        front = store.front()
        await front.call(ephemeral("agent-gone", "gone"), agent.AgentCreated)
        await front.call(ephemeral("agent-closed", "closed"), agent.AgentCreated)
        await front.create("agent-stays", "stays")
        start = turn.StartTurn(message=message("gone", "go"), turn_id=TurnId("T"))
        await front.call(start, turn.Accepted)
        await front.watch("closed")
        closing = session.CloseSession(session_id=SessionId("closed"), reason="expired")
        assert (await front.call(closing, session.SessionClosing)).last
        await front.until(lambda: any(_is_drop(item) for item in front.items))
        (drop,) = filter(_is_drop, front.items)
        assert drop == session.SessionDropped(
            session_id=SessionId("closed"), agent_id=AgentId("agent-closed"), reason="expired"
        )
        await front.call(msgspec.structs.replace(gone, session_id=SessionId("closed")), Refused)
    # The store alone is started again.
    async with running_store(tmp_path) as store:
        front = store.front()
        row = await front.call(gone, session.SessionRow)
        assert (row.status, row.turn_id) == ("running", "T")
    async with running_store(tmp_path, cold=True) as store:
        front = store.front()
        await front.call(gone, Refused)
        await front.call(agent.GetAgent(agent_id=AgentId("agent-gone")), Refused)
        assert not store.root.started
        found = await front.call(session.ListThreads(limit=10), session.Threads)
        assert [row.spec.session_id for row in found.threads] == ["stays"]
    left = sqlite3.connect(tmp_path / "store.db")
    count = "select count(*) from messages where session not in (select key from sessions)"
    assert left.execute(count).fetchone() == (0,)
    left.close()


async def test_an_ephemeral_thread_that_nobody_follows_any_more_goes(tmp_path: Path) -> None:
    async with running_store(tmp_path, settings_with(ephemeral_idle=0.05), cold=True) as store:
        front = store.front()
        front.link.cast(session.WatchAll(wanted=True))
        await front.call(ephemeral("agent", "gone"), agent.AgentCreated)
        await front.watch("gone")
        assert not any(map(_is_drop, front.items))
        front.link.cast(session.Unwatch(session_id=SessionId("gone")))
        await front.until(lambda: any(map(_is_drop, front.items)))
        await front.call(agent.GetAgent(agent_id=AgentId("agent")), Refused)


def _is_drop(item: object) -> bool:
    return isinstance(item, session.SessionDropped)
