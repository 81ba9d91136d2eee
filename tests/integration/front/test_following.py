"""Attaching, replay, the live tail, slow readers, and a store that goes away and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio
import trio.testing

from roost.schemas import agent, session
from tests.support.front import Client, Json, open_client, open_front

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.support.front import FrontHouse

S: Json = {"sessionId": "session_1"}


def _params(event: Json) -> dict[str, Any]:
    return cast("dict[str, Any]", event["params"])


def carriers(events: list[Json]) -> list[int]:
    """Return the sequences that clients count."""
    return [
        _params(event)["sequence"]
        for event in events
        if "sequence" in _params(event)
        and not {"derived", "redelivered"} & set(_params(event).get("metadata", {}))
    ]


async def _begin(house: FrontHouse, client: Client, message_id: str = "m1") -> int:
    """Send a message and let its turn begin; return the request's id."""
    params: Json = {**S, "content": "hi", "clientMessageId": message_id}
    request = await client.send("message.send", params)
    await client.call("health.stats")
    house.store.begin("session_1", message_id)
    return request


async def test_the_end_of_an_attach_is_the_state_and_all_that_waits(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await _begin(house, client)
            house.store.ask_approval("session_1", "call_1")
            house.store.ask_question("session_1", "call_2")
            await client.call("session.attach", S)
            status, approval, question = (_params(e) for e in client.events[-3:])
            assert (status["status"], status["runStatus"]) == ("running", "blocked")
            assert status["metadata"] == {"derived": True}
            assert approval["requestId"] == "call_1"
            assert approval["metadata"]["redelivered"] is True
            assert approval["reason"] == "because"
            assert question["questions"][0]["id"] == "q"


async def test_the_state_is_not_idle_while_a_message_waits(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.send("message.send", {**S, "content": "hi"})
            await client.call("session.attach", S)
            last = _params(client.events[-1])
            assert (last["status"], last["runStatus"]) == ("running", "pending")


async def test_a_decision_resolves_what_waits_for_all_and_only_once(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with (
            open_front(tmp_path) as house,
            open_client(house) as one,
            open_client(house) as two,
        ):
            house.store.add_agent()
            await one.call("session.attach", {**S, "clientId": "one"})
            await two.call("session.attach", {**S, "clientId": "two"})
            await _begin(house, one)
            house.store.ask_approval("session_1", "call_1")
            params: Json = {**S, "requestId": "call_1"}
            result = await one.call("tool.approve", {**params, "scope": "session"})
            assert result == {"requestId": "call_1", "decision": "approved"}
            error = await two.refused("tool.deny", params)
            assert error["message"] == "AgenC daemon tool request is not pending: call_1"
            resolved = await two.until("permission_resolved")
            payload = cast("dict[str, Any]", resolved["event"])["payload"]
            assert (payload["decision"], payload["scope"]) == ("approved", "session")
            assert payload["clientId"] == "one"


async def test_a_question_is_answered_and_a_malformed_answer_leaves_it_open(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            await _begin(house, client)
            house.store.ask_question("session_1", "7")
            params: Json = {**S, "requestId": 7, "kind": "request_user_input"}
            malformed: list[Json] = [
                {},
                {"answers": []},
                {"answers": {"q": {"answers": "x"}}},
                {"x": 1},
            ]
            for wrong in malformed:
                error = await client.refused("elicitation.respond", {**params, "response": wrong})
                assert error["code"] == -32602
            answers = {"answers": {"q": {"answers": ["x"]}}}
            result = await client.call("elicitation.respond", {**params, "response": answers})
            assert result == {"requestId": 7, "resolved": True}
            await client.until("elicitation_resolved")
            error = await client.refused("elicitation.respond", {**params, "response": answers})
            assert "is not pending" in str(error["message"])


async def test_names_belong_to_one_connection_and_an_event_comes_once(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            first = await client.call("session.attach", {**S, "clientId": "a"})
            again = await client.call("session.attach", {**S, "clientId": "a"})
            second = await client.call("session.attach", {**S, "clientId": "b"})
            assert first["attachmentId"] == again["attachmentId"]
            assert first["attachmentId"] != second["attachmentId"]
            client.events.clear()
            house.store.delta("session_1", "x")
            await client.event()
            await client.call("health.stats")
            assert not client.events
            async with open_client(house) as other:
                error = await other.refused("session.attach", {**S, "clientId": "a"})
                assert error["message"] == "daemon client is already registered: a"
            # Any connection may end an attachment; the id counts before the name.
            async with open_client(house) as other:
                params: Json = {**S, "attachmentId": first["attachmentId"], "clientId": "b"}
                ended = await other.call("session.detach", params)
                assert ended["remainingAttachmentIds"] == [second["attachmentId"]]
                assert (await other.call("session.detach", params))["detached"] is False
                await other.refused("session.detach", S)
            house.store.delta("session_1", "y")
            assert _params(await client.event())["delta"] == "y"


async def test_a_name_continues_where_it_was_and_a_new_one_after_what_anybody_got(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            async with open_client(house) as client:
                await client.call("session.attach", {**S, "clientId": "a"})
                await client.call("session.detach", {**S, "clientId": "a"})
                client.events.clear()
                house.store.delta("session_1", *"xyz")
                result = await client.call("session.attach", {**S, "clientId": "a"})
                assert result["resumedAfter"] == 1
                assert carriers(client.events) == [2, 3, 4]
            async with open_client(house) as client:
                house.store.delta("session_1", "later")
                result = await client.call("session.attach", {**S, "clientId": "b"})
                assert result["resumedAfter"] == 4
                assert carriers(client.events) == [5]


async def test_a_cursor_behind_what_retention_removed_gets_an_exact_gap(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            found = house.store.add_agent()
            house.store.delta("session_1", *"abcdef")
            found.first_sequence = 5
            cursors = {"roost.cursors": {"session_1": 2}}
            async with open_client(house, capabilities=cursors) as client:
                await client.call("session.attach", S)
                assert carriers(client.events) == [4, 5, 6, 7]
                payload = _params(client.events[0])["event"]["payload"]
                assert payload == {
                    "reason": "retention",
                    "retiredCount": 2,
                    "firstLostSequence": 3,
                    "lastLostSequence": 4,
                    "firstAvailableSequence": 5,
                }


async def test_a_cursor_of_another_epoch_is_void_and_one_from_the_future_is_cut(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as before:
            house.store.add_agent()
            house.store.delta("session_1", *"ab")
            # What others have been sent is no reason to begin behind it.
            await before.call("session.attach", S)
            void = {"roost.cursors": {"session_1": 2}, "roost.epoch": "older"}
            async with open_client(house, capabilities=void) as client:
                await client.call("session.attach", S)
                assert _params(client.events[0])["event"]["payload"]["reason"] == "epoch"
                assert carriers(client.events) == [0, 1, 2, 3]
            future = {"roost.cursors": {"session_1": 10**9}}
            async with open_client(house, capabilities=future) as client:
                result = await client.call("session.attach", S)
                assert result["resumedAfter"] == 3


async def test_events_that_come_during_a_replay_are_neither_missed_nor_repeated(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path, store={"page_events": 7}) as house:
            house.store.add_agent()
            house.store.delta("session_1", *map(str, range(100)))
            async with open_client(house) as client, open_client(house) as other:
                request = await client.send("session.attach", S)
                for number in range(50):
                    house.store.delta("session_1", f"live {number}")
                    await other.call("health.ping")
                await client.answer(request)
                house.store.delta("session_1", "last")
                while carriers(client.events)[-1] < 152:
                    client.events.append(await _next(client))
                assert carriers(client.events) == list(range(1, 153))


async def _next(client: Client) -> Json:
    message = await client.read()
    assert message is not None
    return message


async def test_a_client_that_does_not_read_holds_nobody_and_later_catches_up(
    tmp_path: Path,
) -> None:
    limits: dict[str, object] = {"client_queue_bytes": 100_000}
    with trio.fail_after(20):
        async with (
            open_front(tmp_path, limits=limits) as house,
            open_client(house) as stuck,
            open_client(house) as reader,
        ):
            house.store.add_agent()
            await stuck.call("session.attach", S)
            await reader.call("session.attach", S)
            text = "x" * 4000
            for _ in range(100):
                house.store.delta("session_1", *[text] * 5)
                for _ in range(5):
                    await reader.until("chunk")
            (slow, *_) = sorted(house.front.unix.connections, key=lambda c: -c.unsent)
            assert 0 < slow.unsent < 500_000
            while len(carriers(stuck.events)) < 501:
                stuck.events.append(await _next(stuck))
            assert carriers(stuck.events) == list(range(1, 502))


async def test_answers_that_nobody_reads_close_the_connection(tmp_path: Path) -> None:
    limits: dict[str, object] = {"unsent_response_bytes": 100_000}
    with trio.fail_after(10):
        async with open_front(tmp_path, limits=limits) as house, open_client(house) as client:
            with trio.move_on_after(5):
                try:
                    while house.front.unix.connections:
                        await client.send("health.ready")
                except trio.BrokenResourceError:
                    pass
            assert not house.front.unix.connections


async def test_a_new_store_link_resumes_every_stream_without_gap_or_repetition(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            house.store.delta("session_1", "before")
            await client.until("chunk")
            assert house.store.link is not None
            house.store.link.close()
            house.store.write("session_1", *_deltas(3))
            waiting = await client.send("agent.list")
            assert (await client.call("health.ready"))["ready"] is False
            house.link_store()
            assert "result" in await client.answer(waiting)
            house.store.delta("session_1", "after")
            seen = [await client.event() for _ in range(4)]
            assert carriers(seen) == [3, 4, 5, 6]


def _deltas(count: int) -> list[Any]:
    from tests.support.front_rows import delta

    return [delta("session_1", "turn_1", str(i)) for i in range(count)]


async def test_a_turn_that_ended_while_the_store_was_away_is_answered(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            request = await _begin(house, client)
            assert house.store.link is not None
            house.store.link.close()
            await client.call("health.ping")
            house.store.complete("session_1")
            house.link_store()
            answer = cast("dict[str, Any]", (await client.answer(request))["result"])
            assert answer["outcome"] == "completed"
            assert answer["disposition"] == "started"
            assert carriers(client.events) == [1, 2, 3]


async def test_a_decision_whose_answer_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await _begin(house, client)
            house.store.ask_approval("session_1", "call_1")
            from roost.schemas.approval import Settle

            house.store.silent.add(Settle)
            request = await client.send("tool.approve", {**S, "requestId": "call_1"})
            await client.call("health.stats")
            house.link_store()
            error = cast("Json", (await client.answer(request))["error"])
            assert cast("Json", error["data"])["code"] == "OVERLOADED"
            assert sum(isinstance(m, Settle) for m in house.store.heard) == 1


async def test_a_lost_log_is_told_with_a_gap(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            found = house.store.add_agent()
            house.store.delta("session_1", *"abc")
            await client.call("session.attach", S)
            client.events.clear()
            del found.bodies[2:]
            house.store.epoch = "epoch-2"
            house.link_store()
            gap = await client.until("event_gap")
            payload = cast("dict[str, Any]", gap["event"])["payload"]
            assert payload == {"reason": "epoch", "firstAvailableSequence": 1}
            house.store.delta("session_1", "new")
            seen: list[Json] = []
            while 3 not in carriers(seen):
                seen.append(await client.event())
            assert carriers(seen) == [1, 2, 3]


async def test_a_session_that_is_closed_says_so_and_lets_go(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            result = await client.call("session.terminate", {**S, "reason": "done"})
            assert (result["terminated"], result["status"]) == (True, "closed")
            await client.until("session_closed")
            again = await client.call("session.terminate", S)
            assert again["terminated"] is False
            assert again["closedAt"] == result["closedAt"]
            error = await client.refused("session.attach", S)
            assert error["message"] == "AgenC daemon session is closed: session_1"
            error = await client.refused("message.send", {**S, "content": "x"})
            assert cast("Json", error["data"])["code"] == "AGENT_NOT_FOUND"
            assert not len(house.front.services.attachments)


async def test_unknown_sessions_get_the_code_of_the_method(tmp_path: Path) -> None:
    unknown: Json = {"sessionId": "nothing"}
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            for method, params, code in (
                ("session.attach", unknown, "SESSION_NOT_FOUND"),
                ("session.detach", {**unknown, "clientId": "x"}, "SESSION_NOT_FOUND"),
                ("session.terminate", unknown, "SESSION_NOT_FOUND"),
                ("message.send", {**unknown, "content": "x"}, "AGENT_NOT_FOUND"),
                ("message.stream", {**unknown, "content": "x"}, "AGENT_NOT_FOUND"),
                ("tool.approve", {**unknown, "requestId": "x"}, "AGENT_NOT_FOUND"),
                ("permission.list", unknown, "AGENT_NOT_FOUND"),
            ):
                error = await client.refused(method, params)
                assert (method, cast("Json", error["data"])["code"]) == (method, code)
            result = await client.call("session.cancelTurn", unknown)
            assert result == {**unknown, "cancelled": False, "reason": "interrupted"}
            assert house.front.services.fanout.followed == 0


async def test_an_observer_gets_every_agents_status_and_nothing_else(tmp_path: Path) -> None:
    wanted = {"daemon.statusPush.v1": True}
    with trio.fail_after(5):
        async with (
            open_front(tmp_path) as house,
            open_client(house) as sender,
            open_client(house, capabilities=wanted) as observer,
        ):
            house.store.add_agent()
            await observer.call("health.stats")
            await _begin(house, sender)
            house.store.delta("session_1", "x")
            house.store.complete("session_1")
            statuses = [_params(await observer.event())["status"] for _ in range(2)]
            assert statuses == ["running", "idle"]


async def test_an_agent_that_is_given_up_is_told_to_its_clients(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            found = house.store.add_agent()
            await client.call("session.attach", S)
            client.events.clear()
            changed = agent.AgentChanged(
                agent_id=found.spec.agent_id, status="error", message="it crashed"
            )
            house.store.publish(changed)
            params = _params(await client.event())
            assert (params["status"], params["message"]) == ("error", "it crashed")
            assert "sequence" not in params


async def test_nothing_is_followed_when_nobody_needs_it(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            async with open_client(house) as client:
                await client.call("session.attach", S)
                request = await _begin(house, client)
                house.store.complete("session_1")
                await client.answer(request)
            async with open_client(house) as client:
                await client.call("health.stats")
                assert house.front.services.fanout.followed == 0
                assert not house.store.watched
                assert any(isinstance(m, session.Unwatch) for m in house.store.heard)


async def test_an_attach_at_the_end_of_the_log_gets_nothing_of_it_again(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            house.store.delta("session_1", *"abc")
            cursors = {"roost.cursors": {"session_1": 4}}
            async with open_client(house, capabilities=cursors) as client:
                result = await client.call("session.attach", S)
                assert result["resumedAfter"] == 4
                house.store.delta("session_1", "d")
                await client.until("chunk")
                await client.call("health.stats")
                assert carriers(client.events) == []
                assert house.store.pages == 0


async def test_a_wrong_cursor_says_nothing_of_what_was_written(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            house.store.delta("session_1", *"abc")
            future = {"roost.cursors": {"session_1": 10**9}}
            async with open_client(house, capabilities=future) as client:
                await client.call("session.attach", S)
            async with open_client(house) as client:
                assert (await client.call("session.attach", S))["resumedAfter"] == 0
                assert carriers(client.events) == [1, 2, 3, 4]


async def test_what_a_connection_took_before_it_broke_is_not_repeated_to_the_next(
    tmp_path: Path,
) -> None:
    """The socket's buffers hold a part of what was queued: the next client begins right behind that part."""
    with trio.fail_after(10):
        async with open_front(tmp_path) as house:
            house.store.add_agent()
            async with open_client(house) as client:
                await client.call("session.attach", S)
                for _ in range(200):
                    house.store.delta("session_1", "x" * 10_000)
                while house.front.services.fanout.find("session_1").position < 201:  # type: ignore[union-attr]
                    await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
                (connection,) = house.front.unix.connections
                first = connection.first_unwritten("session_1")
                assert 1 < first < 201
            async with open_client(house) as client:
                result = await client.call("session.attach", S)
                assert result["resumedAfter"] == first - 1


async def test_a_connection_without_room_is_asked_for_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, object] = {"client_queue_bytes": 10_000}
    with trio.fail_after(10):
        async with open_front(tmp_path, limits=limits) as house, open_client(house) as client:
            house.store.add_agent()
            await client.call("session.attach", S)
            (connection,) = house.front.unix.connections
            while connection.has_room:
                house.store.delta("session_1", "x" * 50_000)
                await trio.testing.wait_all_tasks_blocked()
            waiting: list[Callable[[], None]] = []

            def when_room(callback: Callable[[], None], most: int | None = None) -> None:
                waiting.append(callback)

            monkeypatch.setattr(connection, "when_room", when_room)
            for _ in range(50):
                house.store.delta("session_1", "y")
                await trio.testing.wait_all_tasks_blocked()
            assert len(waiting) == 1


async def test_what_waits_is_told_again_with_its_risk_and_policy(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            await _begin(house, client)
            house.store.ask_approval("session_1", "call_1")
            await client.call("session.attach", S)
            asked = _params(client.events[-1])
            assert asked["metadata"] == {
                "redelivered": True,
                "risk": "external_effect",
                "sandbox": "dangerFullAccess",
            }


async def test_a_repeated_message_whose_turn_ends_in_the_same_commit_is_answered(
    tmp_path: Path,
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            first = await _begin(house, client)
            async with open_client(house) as other:
                house.store.ends_known_message = True
                params: Json = {**S, "content": "hi", "clientMessageId": "m1"}
                again = await other.call("message.send", params)
                assert (again["outcome"], again["duplicate"]) == ("completed", True)
            assert "result" in await client.answer(first)
