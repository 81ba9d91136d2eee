from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.schemas import agent, approval, event, session, turn
from roost.schemas.base import CallId, Refused, SessionId, TurnId
from tests.support.store import (
    Agent,
    Front,
    Store,
    base,
    delta,
    message,
    pending_row,
    running_store,
    settings_with,
    tool_event,
    unique,
    user_message,
)

if TYPE_CHECKING:
    from pathlib import Path


async def opened(store: Store) -> tuple[Front, Agent, SessionId]:
    front = store.front()
    agent_id, session_id = await front.create()
    await front.watch(session_id)
    return front, await store.agent(agent_id, session_id), session_id


async def test_a_turn_is_told_in_the_order_in_which_it_is_stored(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        accepted = await front.send(session_id)
        await peer.until(lambda: bool(peer.of(turn.Bell)))
        turn_id = await peer.begin(session_id, accepted.message_id)
        peer.draft(delta(session_id, turn_id, "do"), durable=False)
        peer.draft(delta(session_id, turn_id, "ne"), durable=False)
        await peer.finish(session_id, turn_id)
        await front.until_story(session_id, "message ended completed")
        assert front.story(session_id) == [
            "message accepted",
            "message begun",
            "user.message",
            "agent.message.delta",
            "agent.message.delta",
            "agent.message.completed",
            "message ended completed",
        ]
        row = await front.call(session.GetSession(session_id=session_id), session.SessionRow)
        assert (row.status, row.turns, row.last_sequence, row.queued) == ("idle", 1, 5, 0)
        again = await front.send(session_id, "hello", message_id=accepted.message_id)
        assert (again.duplicate, again.state, again.outcome) == (True, "ended", "completed")
