from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from roost.schemas import agent, control, session, turn
from roost.schemas.approval import PendingRow, Settle
from roost.schemas.base import AgentId, CallId, Done, Refused, SessionId
from tests.support.store import (
    SECONDS,
    Agent,
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


async def test_pages_and_the_live_tail_join_without_gap_or_repetition(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        front.link.cast(session.Unwatch(session_id=session_id))
        await front.call(session.Count(), session.Counts)
        front.bodies.clear()
        seen: list[bytes] = []

        async def write() -> None:
            for number in range(300):
                peer.draft(delta(session_id, turn_id, str(number)), durable=number % 7 == 0)
                if number % 10 == 0:
                    await peer.answered()
            await peer.answered()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await peer.until(lambda: len(peer.acked) > 10)
            watched = await front.watch(session_id)
            cursor = 0
            while cursor < watched.row.last_sequence:
                read = session.ReadPage(
                    session_id=session_id,
                    after=cursor,
                    upto=watched.row.last_sequence,
                    max_events=20,
                )
                page = await front.call(read, session.Page)
                assert page.first == cursor + 1
                seen += page.bodies
                cursor += len(page.bodies)
        await front.until(lambda: front.last[session_id] == 302)
        seen += front.bodies[session_id]
        whole: list[bytes] = []
        while len(whole) < 302:
            read = session.ReadPage(session_id=session_id, after=len(whole))
            whole += (await front.call(read, session.Page)).bodies
        assert seen == whole


async def test_a_front_hears_of_what_it_watches_only(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        _, first = await front.create()
        _, second = await front.create()
        await front.watch(first)
        await front.send(first)
        await front.send(second)
        assert front.story(first) == ["message accepted"]
        assert front.story(second) == []
        front.link.cast(session.Unwatch(session_id=first))
        front.link.cast(session.WatchAll(wanted=True))
        await front.send(second)
        assert front.story(second) == ["message accepted"]
        front.link.cast(session.WatchAll(wanted=False))
        await front.send(first)
        assert front.story(first) == ["message accepted"]
        unknown = session.Watch(session_id=SessionId("nowhere"))
        refused = await front.call(unknown, Refused)
        assert refused.code == "SESSION_NOT_FOUND"


async def test_a_new_front_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        old, peer, session_id = await opened(store)
        new = store.front()
        await old.until(lambda: old.closed)
        await new.watch(session_id)
        await new.send(session_id)
        assert new.story(session_id) == ["message accepted"]
        await peer.until(lambda: bool(peer.of(turn.Bell)))


async def test_a_front_that_does_not_read_is_cut_off_and_holds_up_nobody(tmp_path: Path) -> None:
    settings = settings_with()
    limits = msgspec.structs.replace(settings.limits, link_bytes=16_777_216)
    settings = msgspec.structs.replace(settings, limits=limits)
    async with running_store(tmp_path, settings) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        store.poller.remove(front.link)
        for _ in range(400):
            peer.draft(delta(session_id, turn_id, "x" * 64_000))
        await peer.answered()
        new = store.front()
        watched = await new.watch(session_id)
        assert watched.row.last_sequence == 402
        await new.send(session_id)


async def test_the_first_of_two_decisions_wins_wherever_it_comes_from(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        answers: dict[str, str] = {}

        async def decide(call_id: str, state: str) -> None:
            request = Settle(
                session_id=session_id,
                request_id=call_id,
                kind="approval",
                state=state,  # type: ignore[arg-type]
                by=state,
            )
            answer = await front.link.call(request, timeout=SECONDS)
            if isinstance(answer, PendingRow):
                answers[call_id] = answer.by
            else:
                assert isinstance(answer, Refused)
                assert answer.code == "INVALID_ARGUMENT"

        for number in range(20):
            call_id = f"call{number}"
            await peer.ask(session_id, turn_id, call_id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(decide, call_id, "approved")
                nursery.start_soon(decide, call_id, "denied")
                late = peer.draft(
                    None,
                    turn.SettlePending(request_id=CallId(call_id), state="timeout"),
                    session_id=session_id,
                )
                tied = peer.draft(delta(session_id, turn_id, call_id), tied_to=late.event_id)
                await peer.answered()
            settled = [
                item.row.state
                for item in front.items
                if isinstance(item, session.PendingChanged)
                and item.row.request_id == call_id
                and item.row.state != "open"
            ]
            assert len(settled) == 1
            by_actor = settled == ["timeout"]
            assert (call_id in answers) is not by_actor
            assert peer.refused.get(late.event_id) == (None if by_actor else "ALREADY_SETTLED")
            assert peer.refused.get(tied.event_id) == (None if by_actor else "TIED")


async def test_one_of_many_equal_messages_is_accepted(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, _, session_id = await opened(store)
        answers: list[turn.Accepted] = []

        async def send() -> None:
            answers.append(await front.send(session_id, client_message_id="c"))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(send)
        assert len({answer.message_id for answer in answers}) == 1
        assert sorted(answer.duplicate for answer in answers) == [False, *[True] * 19]
        assert front.story(session_id) == ["message accepted"]


async def test_many_sessions_at_once_each_count_from_one(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        sessions: list[SessionId] = []

        async def live(number: int) -> None:
            agent_id, session_id = await front.create(text="go")
            sessions.append(session_id)
            await front.watch(session_id)
            peer = await store.agent(agent_id)
            opened = await peer.open(session_id)
            (queued,) = opened.inbox
            assert isinstance(queued, turn.QueuedMessage)
            turn_id = await peer.begin(session_id, queued.message_id)
            for piece in range(50):
                peer.draft(delta(session_id, turn_id, str(piece)), durable=piece % 3 == number % 3)
                if piece % 5 == number % 5:
                    await peer.answered()
            await peer.finish(session_id, turn_id)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(live, number)
        await front.until(lambda: all(front.last[s] == 53 for s in sessions))
        for session_id in sessions:
            page = await front.call(session.ReadPage(session_id=session_id, after=0), session.Page)
            assert len(page.bodies) == 53
            assert list(page.bodies[1:]) == front.bodies[session_id]
        counts = await front.call(session.Count(), session.Counts)
        assert (counts.events, counts.turns_open, counts.active) == (20 * 53, 0, 20)


async def test_text_alone_waits_a_little_and_goes_with_the_next_promise(tmp_path: Path) -> None:
    async with running_store(tmp_path, settings_with(delta_window_ms=60_000.0)) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        waiting = peer.draft(delta(session_id, turn_id, "a"), durable=False)
        await front.call(session.Count(), session.Counts)
        assert waiting.event_id in peer.unanswered
        await peer.finish(session_id, turn_id)
        assert [*peer.acked.values()] == [2, 4]


async def test_text_alone_is_written_when_its_time_has_come(tmp_path: Path) -> None:
    async with running_store(tmp_path, settings_with(delta_window_ms=20.0)) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        for number in range(3):
            peer.draft(delta(session_id, turn_id, str(number)), durable=False)
            await peer.answered()
        assert (await front.watch(session_id)).row.last_sequence == 5


async def test_an_agent_without_a_link_is_started_once(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        assert store.root.started == []
        for _ in range(3):
            await front.send(session_id)
        await store.root.until(lambda: store.root.started == [agent_id])
        peer = await store.agent(agent_id, session_id)
        await front.send(session_id)
        await peer.until(lambda: bool(peer.of(turn.Bell)))
        peer.link.close()
        await front.call(session.Count(), session.Counts)
        await front.send(session_id)
        await store.root.until(lambda: store.root.started == [agent_id] * 2)


async def test_an_agent_that_sleeps_is_started_and_not_rung(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        sleep = agent.Sleep(agent_id=peer.agent_id, generation=1)
        assert isinstance(await peer.link.call(sleep, timeout=SECONDS), Done)
        await front.send(session_id)
        await store.root.until(lambda: store.root.started == [peer.agent_id])
        assert not peer.of(turn.Bell)
        again = await store.agent(peer.agent_id)
        refused = await again.link.call(sleep, timeout=SECONDS)
        assert isinstance(refused, Refused)


async def test_an_agent_under_anothers_name_is_cut_off(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        peer.link.cast(agent.Hello(agent_id=AgentId("another"), generation=1))
        await peer.until(lambda: peer.closed)
        assert (await front.send(session_id)).message_id, "the others are served"


async def test_reports_of_root_reach_the_clients(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        await peer.begin(session_id, (await front.send(session_id)).message_id)
        peer.link.close()
        store.report(peer.agent_id, "crashed")
        store.report(peer.agent_id, "gave_up", "too many crashes")
        await front.until_story(session_id, "agent error")
        assert front.story(session_id)[-3:] == [
            "agent.turn.failed",
            "message ended failed",
            "agent error",
        ]
        await front.send(session_id)
        starts = store.root.of(control.StartChild)
        assert [(start.child_id, start.fresh) for start in starts] == [(peer.agent_id, True)]
        await front.call(agent.EndAgent(agent_id=peer.agent_id, reason="x"), agent.AgentEnding)
        store.report(peer.agent_id, "ended")
        await front.until_story(session_id, "session closed")


@pytest.mark.parametrize("work", ["queued", "parked", "none"])
async def test_a_cold_start_has_agents_started_when_the_front_is_there(
    tmp_path: Path, work: str
) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        if work == "parked":
            await peer.ask(session_id, turn_id, "a")
        elif work == "queued":
            await front.send(session_id, "next")
    async with running_store(tmp_path, cold=True) as store:
        assert store.root.started == []
        front = store.front()
        watched = await front.watch(session_id)
        assert (
            watched.row.status == {"queued": "running", "parked": "waiting", "none": "idle"}[work]
        )
        assert [row.request_id for row in watched.pending] == (["a"] if work == "parked" else [])
        expected = [peer.agent_id] if work == "queued" else []
        await front.call(session.Count(), session.Counts)
        assert store.root.started == expected


async def test_a_restart_of_the_store_alone_repairs_nothing(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front, peer, session_id = await opened(store)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
    async with running_store(tmp_path) as store:
        front = store.front()
        assert (await front.watch(session_id)).row.status == "running"
        again = await store.agent(peer.agent_id)
        again.generation = peer.generation
        await again.finish(session_id, turn_id)
        await front.until_story(session_id, "message ended completed")


async def test_what_comes_before_the_store_is_open_is_answered_after(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        front.link.cast(message("nowhere"))
        created = await front.call(create_agent("a", "s", "hi"), agent.AgentCreated)
        assert created.message is not None
