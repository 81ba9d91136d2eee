from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import pytest
import trio

from roost.schemas import session, turn
from tests.support.store import Agent, Front, delta, event_kind
from tests.support.store_process import StoreProcess, store_process

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import SessionId

AGENTS = 12
KILLS = 20
UNANSWERED = 32


class Load:
    """Agents that stream without pause, and one front that watches them all."""

    def __init__(self, store: StoreProcess) -> None:
        self.store = store
        self.front = Front()
        self.agents: list[tuple[Agent, SessionId, str]] = []
        self.sent: dict[str, list[turn.Draft]] = {}
        self.up = trio.Event()
        self.done = False

    async def prepare(self) -> None:
        self.store.join(self.front)
        for _ in range(AGENTS):
            agent_id, session_id = await self.front.create()
            await self.front.watch(session_id)
            self.front.last[session_id] = 0
            page = session.ReadPage(session_id=session_id, after=0)
            found = await self.front.call(page, session.Page)
            self.front.bodies[session_id] = list(found.bodies)
            self.front.last[session_id] = len(found.bodies)
            peer = Agent(agent_id)
            self.store.join(peer)
            await peer.hello()
            await peer.open(session_id)
            accepted = await self.front.send(session_id)
            turn_id = await peer.begin(session_id, accepted.message_id)
            self.agents.append((peer, session_id, turn_id))
            self.sent[session_id] = []
        self.up.set()

    async def stream(self, peer: Agent, session_id: SessionId, turn_id: str) -> None:
        number = 0
        while not self.done:
            await self.up.wait()
            while len(peer.unanswered) < UNANSWERED and not (peer.closed or self.done):
                number += 1
                made = delta(session_id, turn_id, str(number))
                draft = peer.draft(made, durable=number % 5 == 0)
                self.sent[session_id].append(draft)
            await peer.until(lambda: len(peer.unanswered) < UNANSWERED or peer.closed or self.done)
            await trio.lowlevel.checkpoint()
            if peer.closed:
                await self.up.wait()

    async def rejoin(self) -> None:
        """What front and agents do on their new links: resend in order, watch again and read what they missed."""
        self.store.join(self.front)
        for peer, session_id, _ in self.agents:
            self.store.join(peer)
            await peer.hello()
            for draft in list(peer.unanswered.values()):
                peer.link.cast(draft)
            seen = self.front.last[session_id]
            watched = await self.front.watch(session_id)
            missed: list[bytes] = []
            while seen + len(missed) < watched.row.last_sequence:
                page = session.ReadPage(
                    session_id=session_id,
                    after=seen + len(missed),
                    upto=watched.row.last_sequence,
                )
                missed += (await self.front.call(page, session.Page)).bodies
            at = seen
            self.front.bodies[session_id][at:at] = missed

    async def finish(self) -> None:
        self.done = True
        for peer, session_id, turn_id in self.agents:
            peer.tell()
            await peer.answered()
            await peer.finish(session_id, turn_id)
        await self.front.until(
            lambda: all(
                event_kind(self.front.bodies[session_id][-1]) == "agent.message.completed"
                for _, session_id, _ in self.agents
            )
        )


@pytest.mark.slow
async def test_a_store_killed_again_and_again_loses_doubles_and_reorders_nothing(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    async with store_process(tmp_path) as store:
        load = Load(store)
        async with trio.open_nursery() as nursery:
            await load.prepare()
            for peer, session_id, turn_id in load.agents:
                nursery.start_soon(load.stream, peer, session_id, turn_id)
            for _ in range(KILLS):
                await trio.sleep(chance.uniform(0.0, 0.08))
                load.up = trio.Event()
                await store.kill()
                await load.front.until(lambda: load.front.closed)
                for peer, _, _ in load.agents:
                    await peer.until(lambda peer=peer: peer.closed)  # type: ignore[misc]
                await store.start()
                await load.rejoin()
                load.up.set()
            await load.finish()
            nursery.cancel_scope.cancel()
    expect_nothing_lost(tmp_path, load)


def expect_nothing_lost(home: Path, load: Load) -> None:
    db = sqlite3.connect(home / "store.db")
    ids = [row[0] for row in db.execute("select event_id from events")]
    assert len(set(ids)) == len(ids)
    for peer, session_id, _ in load.agents:
        rows = db.execute(
            "select e.sequence, e.event_id, e.body from events e join sessions s on s.key = e.session"
            " where s.session_id = ? order by e.sequence",
            (session_id,),
        ).fetchall()
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        assert [row[2] for row in rows] == load.front.bodies[session_id]
        sent = [draft.event_id for draft in load.sent[session_id]]
        assert [row[1] for row in rows][2:-1] == sent
        sequences = {event_id: sequence for sequence, event_id, _ in rows}
        assert all(sequences[event_id] == at for event_id, at in peer.acked.items())
        assert not peer.refused
    assert sum(map(len, load.sent.values())) > KILLS * AGENTS
    db.close()
