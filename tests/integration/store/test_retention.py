"""Retention in a running store: real files, real loops, and a real process that is killed."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.lowlevel

from roost.actors.store import upkeep
from roost.schemas import session, turn
from tests.support.store import (
    Agent,
    Front,
    Store,
    delta,
    event_kind,
    running_store,
    settings_with,
)
from tests.support.store_process import store_process

if TYPE_CHECKING:
    from pathlib import Path

    from roost.config.model import Settings
    from roost.schemas.base import SessionId

KILLS = 6


def bounded(**limits: int) -> Settings:
    settings = settings_with(reserve_mib=0)
    return msgspec.structs.replace(
        settings, retention=msgspec.structs.replace(settings.retention, **limits)
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "QUIET_SECONDS", 0.02)


async def play(front: Front, peer: Agent, session_id: str, *, events: int, size: int) -> None:
    turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
    for _ in range(events):
        peer.draft(delta(session_id, turn_id, "x" * size))
    await peer.finish(session_id, turn_id)


async def read(front: Front, session_id: SessionId, after: int, most: int = 200) -> session.Page:
    request = session.ReadPage(session_id=session_id, after=after, max_events=most)
    return await front.call(request, session.Page)


async def until(
    store: Store, front: Front, claim: str, session_id: SessionId
) -> session.SessionRow:
    """Wait until retention has moved the log of a watched session, and the round is over."""
    rows: list[session.SessionRow] = []

    def moved() -> bool:
        found = [item for item in front.items if isinstance(item, session.SessionChanged)]
        rows[:] = [item.row for item in found if item.row.spec.session_id == session_id]
        return bool(rows) and rows[-1].first_sequence > 1

    await front.until(moved)
    assert claim
    return rows[-1]


def kept_upkeep(store: Store) -> upkeep.Upkeep:
    found = store.actor._upkeep  # pyright: ignore[reportPrivateUsage] # to wait for it
    assert found is not None
    return found


async def round_of(store: Store) -> None:
    """Have retention look, and wait until it has nothing left to do."""
    found = kept_upkeep(store)
    before = found.rounds
    found.wake()
    await round_after(found, before)


async def round_after(found: upkeep.Upkeep, rounds: int) -> None:
    with trio.fail_after(20):
        while found.rounds == rounds:  # noqa: ASYNC110 # it tells nobody
            await trio.sleep(0.005)


async def test_the_file_gets_smaller_while_the_store_runs(tmp_path: Path) -> None:
    async with running_store(tmp_path, bounded()) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        await front.watch(session_id)
        peer = await store.agent(agent_id, session_id)
        for _ in range(6):
            await play(front, peer, session_id, events=100, size=10_000)
        await round_of(store)
        store.connection.execute("pragma wal_checkpoint(truncate)")
        before = (tmp_path / "store.db").stat().st_size
        assert before > 6_000_000
        found = kept_upkeep(store)
        rounds = found.rounds
        found.configure(bounded(session_bytes=2_000_000).retention)
        await round_after(found, rounds)
        after = (tmp_path / "store.db").stat().st_size
        assert after < before - 3_000_000
        assert (tmp_path / "store.db-wal").stat().st_size <= upkeep.LOG_BYTES
        assert store.connection.execute("pragma integrity_check").fetchone() == ("ok",)
        row = await until(store, front, "the log begins later", session_id)
        page = await read(front, session_id, 0)
        assert (page.lost_upto, page.first) == (row.first_sequence - 1, row.first_sequence)
        await play(front, peer, session_id, events=1, size=10)
        assert (await front.watch(session_id)).row.last_sequence == row.last_sequence + 3


async def test_the_bound_holds_while_sessions_are_written_and_read(tmp_path: Path) -> None:
    limit = 300_000
    async with running_store(tmp_path, bounded(session_bytes=limit)) as store:
        front = store.front()
        found = [await front.create() for _ in range(4)]
        peers = [await store.agent(agent_id, session_id) for agent_id, session_id in found]
        done = trio.Event()
        gaps = 0

        async def follow(session_id: SessionId, stops: bool) -> None:
            """Page through the log as a client does: nothing may be missing without a gap that says so."""
            nonlocal gaps
            cursor = 0
            finishing = False
            while True:
                if stops and cursor > 20:
                    await done.wait()
                page = await read(front, session_id, cursor, most=7)
                if page.lost_upto:
                    assert page.lost_upto > cursor
                    gaps += 1
                    cursor = page.lost_upto
                if page.bodies:
                    assert page.first == cursor + 1
                    if page.lost_upto:
                        # What is left begins with a whole turn.
                        assert event_kind(page.bodies[0]) == "user.message"
                    cursor += len(page.bodies)
                elif finishing:
                    assert cursor == page.last_sequence
                    return
                else:
                    finishing = done.is_set()
                await trio.lowlevel.checkpoint()

        async def write(peer: Agent, session_id: SessionId) -> None:
            for _ in range(15):
                await play(front, peer, session_id, events=30, size=1_000)

        async with trio.open_nursery() as readers:
            for number, (_, session_id) in enumerate(found):
                readers.start_soon(follow, session_id, number % 2 == 0)
            async with trio.open_nursery() as writers:
                for peer, (_, session_id) in zip(peers, found, strict=True):
                    writers.start_soon(write, peer, session_id)
            await round_of(store)
            done.set()
        assert gaps >= 2
        for _, session_id in found:
            watched = await front.watch(session_id)
            assert watched.row.last_sequence == 1 + 15 * 32
            assert watched.row.first_sequence > 200
        sizes = store.connection.execute("select bytes from counters").fetchall()
        assert all(0 < size <= limit for (size,) in sizes)


async def test_nothing_is_done_while_nothing_is_due(tmp_path: Path) -> None:
    async with running_store(tmp_path, bounded(session_bytes=10_000_000)) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        await trio.testing.wait_all_tasks_blocked()
        found = kept_upkeep(store)
        rounds = found.rounds
        await play(front, peer, session_id, events=50, size=100)
        await trio.testing.wait_all_tasks_blocked()
        assert found.rounds == rounds


async def test_a_closed_session_is_purged_under_those_who_page_through_it(tmp_path: Path) -> None:
    async with running_store(tmp_path, bounded()) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        await front.watch(session_id)
        peer = await store.agent(agent_id, session_id)
        await play(front, peer, session_id, events=300, size=10)
        page = await read(front, session_id, 0, most=100)
        assert page.first == 1
        await front.call(session.CloseSession(session_id=session_id), session.SessionClosing)
        store.desk.tidy(lambda: store.desk.retention.purge(session_id))
        kept_upkeep(store).wake()
        request = session.ReadPage(session_id=session_id, after=100)
        answer = await front.link.call(request, timeout=20)
        assert getattr(answer, "code", "") == "SESSION_NOT_FOUND"
        await round_of(store)
        assert store.connection.execute("select count(*) from events").fetchone() == (0,)


async def check(front: Front, session_id: SessionId) -> session.Page:
    """Read the whole log: without a hole, from the beginning of a turn; it may be cut meanwhile."""
    first = page = await read(front, session_id, 0)
    cursor = 0
    while page.bodies:
        cursor = max(cursor, page.lost_upto)
        assert page.first == cursor + 1
        cursor += len(page.bodies)
        page = await read(front, session_id, cursor)
    assert cursor == page.last_sequence
    if first.lost_upto:
        assert event_kind(first.bodies[0]) == "user.message"
    return first


async def test_a_store_killed_in_the_middle_of_it_leaves_a_correct_log(tmp_path: Path) -> None:
    chance = random.Random(7)
    settings = bounded(session_bytes=400_000, total_bytes=900_000)
    async with store_process(tmp_path, settings) as store:
        front = Front()
        store.join(front)
        agent_id, session_id = await front.create()
        written = 1
        moved = 0
        for _ in range(KILLS):
            peer = Agent(agent_id)
            store.join(peer)
            await peer.hello()
            opened = await peer.open(session_id)
            assert opened.turn is None
            for _ in range(2):
                await play(front, peer, session_id, events=400, size=500)
                written += 402
            await trio.sleep(chance.random() * 0.05)
            await store.kill()
            await store.start()
            front = Front()
            store.join(front)
            page = await check(front, session_id)
            assert page.last_sequence == written
            moved = max(moved, page.lost_upto)
        assert moved > 402
    database = sqlite3.connect(tmp_path / "store.db")
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    counted, real, first, lowest = database.execute(
        "select c.bytes, sum(length(e.body) + 200), s.first_sequence, min(e.sequence)"
        " from sessions s join counters c on c.session = s.key"
        " join events e on e.session = s.key and e.sequence >= s.first_sequence"
    ).fetchone()
    assert (counted, first) == (real, lowest)
    turns = (
        "select count(*) from turns where first_sequence < (select first_sequence from sessions)"
    )
    assert database.execute(turns).fetchone() == (0,)
    database.close()


async def test_unanswered_drafts_of_the_newest_turn_are_known_after_a_cut(tmp_path: Path) -> None:
    async with running_store(tmp_path, bounded(session_bytes=1, total_bytes=1)) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        await play(front, peer, session_id, events=2, size=10)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        draft = peer.draft(delta(session_id, turn_id, "x"))
        await peer.finish(session_id, turn_id)
        await round_of(store)
        # Its answer was lost, so it is sent again.
        peer.cast(draft)
        await peer.answered()
        assert peer.acked[draft.event_id] == 7
        assert not peer.refused
        page = await read(front, session_id, 0)
        assert (page.lost_upto, page.last_sequence) == (5, 8)
        assert isinstance(await front.send(session_id), turn.Accepted)
