from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.store import intake
from roost.schemas import session, turn
from roost.schemas.base import Refused
from tests.support.store import (
    SECONDS,
    Front,
    Store,
    create_agent,
    delta,
    message,
    running_store,
    settings_with,
)

if TYPE_CHECKING:
    from pathlib import Path


def set_pages(store: Store, spare: int) -> None:
    connection = store.connection
    used = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count = {used + spare}")


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STALL_SECONDS", 0.05)


async def test_a_full_disk_refuses_clients_and_keeps_what_agents_sent(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        await front.watch(session_id)
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        set_pages(store, 0)
        drafts = [peer.draft(delta(session_id, turn_id, "x" * 4000)) for _ in range(40)]
        large = message(session_id, "y" * 20_000)
        refused = await front.call(large, Refused)
        assert refused.code == "DISK_FULL"
        assert "retryAfterMs" in msgspec.json.decode(refused.data)
        page = await front.call(session.ReadPage(session_id=session_id, after=0), session.Page)
        assert page.last_sequence == 2
        assert not peer.refused
        assert len(peer.unanswered) == 40
        late = peer.draft(delta(session_id, turn_id, "late"))
        set_pages(store, 1000)
        await peer.answered()
        sent = [*drafts, late]
        assert peer.acked[late.event_id] == 43
        await front.until(lambda: front.last[session_id] == 43)
        assert front.bodies[session_id][-41:] == [draft.body for draft in sent]
        accepted = await front.call(large, turn.Accepted)
        assert not accepted.duplicate


async def test_a_client_that_needs_no_room_is_served_while_the_disk_is_full(
    tmp_path: Path,
) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        set_pages(store, 0)
        for _ in range(40):
            peer.draft(delta(session_id, turn_id, "x" * 4000))
        assert (await front.call(message(session_id, "y" * 20_000), Refused)).code == "DISK_FULL"
        cancel = turn.CancelTurn(session_id=session_id, reason="r")
        answer = await front.link.call(cancel, timeout=SECONDS)
        assert isinstance(answer, turn.TurnCancelled)
        set_pages(store, 1000)
        await peer.answered()


async def test_below_the_mark_no_new_work_is_taken_and_old_work_goes_on(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create(text="hi")
    settings = settings_with()
    full = msgspec.structs.replace(settings.store, min_free_mib=2**40)
    settings = msgspec.structs.replace(settings, store=full)
    async with running_store(tmp_path, settings) as store:
        front = store.front()
        peer = await store.agent(agent_id)
        opened = await peer.open(session_id)
        (queued,) = opened.inbox
        assert isinstance(queued, turn.QueuedMessage)
        for request in (message(session_id), create_agent("new", "new")):
            assert (await front.call(request, Refused)).code == "DISK_FULL"
        turn_id = await peer.begin(session_id, queued.message_id)
        await peer.finish(session_id, turn_id)
        assert (await front.watch(session_id)).row.turns == 1


async def test_an_error_of_the_disk_is_not_told_as_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path) as store:
        front: Front = store.front()
        _, session_id = await front.create()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR

        def fail() -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(store.desk.journal, "flush", fail)
            assert (await front.call(message(session_id), Refused)).code == "INTERNAL"
        assert (await front.send(session_id)).position == 0
