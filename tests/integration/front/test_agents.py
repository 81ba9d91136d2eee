"""agent.* and session.* against a fake store and root."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import trio

from roost.schemas import control
from roost.schemas.base import SessionId
from tests.support.front import Json, open_client, open_front
from tests.support.front_rows import FakeSession

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.front import FrontHouse


def _code(error: Json) -> str:
    return str(cast("Json", error["data"])["code"])


async def test_an_agent_without_a_folder_gets_one_of_its_own(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            created = await client.call("agent.create", {"objective": " do it "})
            folder = tmp_path / "workspaces" / str(created["agentId"])
            assert created["cwd"] == str(folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert (created["objective"], created["status"]) == ("do it", "running")
            assert created["activeSessionIds"] == [created["sessionId"]]
            message = next(iter(house.store.sessions[str(created["sessionId"])].messages.values()))
            assert message.request.text == "do it"


async def test_bad_folders_are_refused_in_four_ways(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            for cwd, text in (
                ("relative", 'agent.create cwd must be an absolute path (got "relative")'),
                ("", 'agent.create cwd must be an absolute path (got "")'),
                ("/no/such", "agent.create cwd is not an existing directory: /no/such"),
                (
                    str(tmp_path / "file"),
                    f"agent.create cwd is not an existing directory: {tmp_path}/file",
                ),
                ("/a\0b", "agent.create cwd is not accessible: /a\0b"),
            ):
                error = await client.refused("agent.create", {"objective": "x", "cwd": cwd})
                assert error["message"] == text
            assert not house.store.agents


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, "INVALID_ARGUMENT"),
        ({"objective": "  ", "instructions": "x"}, "INVALID_ARGUMENT"),
        ({"objective": "x", "permissionMode": "plan"}, "INVALID_ARGUMENT"),
        ({"objective": "x", "provider": "nobody"}, "INVALID_ARGUMENT"),
        ({"objective": "x", "initialContent": ["x"]}, "INVALID_ARGUMENT"),
        ({"objective": "x", "envOverrides": {"A=B": "x"}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "envOverrides": {"A": 1}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "metadata": {"sandbox": "readOnly"}}, "SANDBOX_UNAVAILABLE"),
        ({"objective": "x", "metadata": {"sandbox": 5}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "metadata": {"sandbox": "no"}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "metadata": {"sandbox": "externalSandbox"}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "metadata": {"sandbox": {"type": 1}}}, "INVALID_ARGUMENT"),
        ({"objective": "x", "unknown": 1}, "INVALID_ARGUMENT"),
    ],
)
async def test_what_cannot_be_created_is_refused_before_anything_is_written(
    tmp_path: Path, params: Json, code: str
) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            assert _code(await client.refused("agent.create", params)) == code
            assert not house.store.agents
            assert not (tmp_path / "workspaces").exists()


async def test_what_clients_send_besides_the_schema_is_accepted(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            params: Json = {
                "initialContent": [],
                "permissionMode": "default",
                "metadata": {"sandbox": "dangerFullAccess", "k": 1},
                "unattendedAllow": [" a ", "a"],
            }
            created = await client.call("agent.create", params)
            session = house.store.sessions[str(created["sessionId"])]
            assert not session.messages
            metadata = cast("Json", created["metadata"])
            assert metadata["k"] == 1
            assert metadata["unattendedAllow"] == ["a"]
            spec = house.store.agents[str(created["agentId"])].spec
            assert (spec.sandbox, spec.unattended) == ("dangerFullAccess", True)


async def test_instructions_stand_in_for_an_absent_objective_only(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            created = await client.call("agent.create", {"instructions": "please"})
            assert created["objective"] == "please"


async def test_the_environment_goes_to_root_and_nowhere_else(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            params: Json = {"objective": "x", "envOverrides": {"TOKEN": "hush"}}
            created = await client.call("agent.create", params)
            (remember,) = [m for m in house.root.heard if isinstance(m, control.Remember)]
            assert (remember.child_id, remember.env) == (created["agentId"], {"TOKEN": "hush"})
            assert "hush" not in repr(house.store.heard)
            assert "hush" not in repr(created)


async def test_a_stopped_agent_ends_the_other_clients_prompts(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with (
            open_front(tmp_path) as house,
            open_client(house) as one,
            open_client(house) as two,
        ):
            house.store.add_agent()
            session: Json = {"sessionId": "session_1"}
            await two.call("session.attach", session)
            waiting = await two.send("message.send", {**session, "content": "hi"})
            await two.call("health.stats")
            assert await one.call("agent.stop", {"agentId": "agent_1"}) == {
                "agentId": "agent_1",
                "stopped": True,
            }
            answer = cast("dict[str, Any]", (await two.answer(waiting))["result"])
            assert answer["outcome"] == "interrupted"
            assert answer["terminal"]["code"] == 130
            assert (await two.until("stopped"))["message"] == "shutdown"
            assert [m.child_id for m in house.root.heard if isinstance(m, control.StopChild)] == [
                "agent_1"
            ]
            assert (await one.call("agent.stop", {"agentId": "agent_1"}))["stopped"] is False
            assert _code(await one.refused("agent.stop", {"agentId": "x"})) == "AGENT_NOT_FOUND"
            assert _code(await one.refused("agent.attach", {"agentId": "agent_1"})) == (
                "AGENT_NOT_FOUND"
            )


async def test_a_cancelled_run_is_told_with_its_lists(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            result = await client.call("run.cancel", {"runId": "agent_1"})
            assert result == {
                "runId": "agent_1",
                "alreadyTerminal": False,
                "cancelledRunIds": ["agent_1"],
                "closedEdgeChildIds": [],
                "interruptedLiveAgentIds": ["agent_1"],
                "voidedHolds": 0,
            }
            again = await client.call("run.cancel", {"runId": "agent_1"})
            assert (again["alreadyTerminal"], again["cancelledRunIds"]) == (True, [])
            assert _code(await client.refused("run.cancel", {"runId": "x"})) == "RUN_NOT_FOUND"


async def test_the_run_of_a_turn_is_that_turn(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            request = await client.send(
                "message.send",
                {"sessionId": "session_1", "content": "hi", "clientMessageId": "m1"},
            )
            await client.call("health.stats")
            house.store.begin("session_1", "m1", "turn_7")
            await client.call("health.stats")
            result = await client.call("run.cancel", {"runId": "turn_7"})
            assert result["cancelledRunIds"] == ["turn_7"]
            house.store.interrupt("session_1", "turn_7")
            answer = cast("dict[str, Any]", (await client.answer(request))["result"])
            assert answer["outcome"] == "interrupted"
            error = await client.refused("run.cancel", {"runId": "turn_8"})
            assert _code(error) == "RUN_NOT_FOUND"


async def test_the_last_session_takes_its_agent_along(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            params: Json = {"agentId": "agent_1", "cwd": str(tmp_path)}
            second = await client.call("session.create", params)
            assert second["status"] == "idle"
            await client.call("session.terminate", {"sessionId": "session_1"})
            await client.call("health.stats")
            assert _status(house) == "idle"
            await client.call("session.terminate", {"sessionId": second["sessionId"]})
            while _status(house) != "stopped":
                await client.call("health.stats")


def _status(house: FrontHouse) -> str:
    return house.store.agents["agent_1"].status


async def test_a_session_without_an_agent_gets_one(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            made = await client.call("session.create", {"initialPrompt": "hello"})
            session = house.store.sessions[str(made["sessionId"])]
            assert [m.request.text for m in session.messages.values()] == ["hello"]
            assert made["agentId"] in house.store.agents
            error = await client.refused("session.create", {"agentId": "nobody"})
            assert _code(error) == "AGENT_NOT_FOUND"


async def test_attaching_to_an_agent_takes_its_newest_session(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            second = await client.call("session.create", {"agentId": "agent_1"})
            result = await client.call("agent.attach", {"agentId": "agent_1", "clientId": "c"})
            assert result["sessionIds"] == [second["sessionId"], "session_1"]
            assert result["runtimeSessionId"] == "agent_1"
            first = cast("list[dict[str, Any]]", result["sessions"])[0]
            assert first["activeAttachmentIds"] == [result["attachmentId"]]


async def test_lists_are_paged_by_opaque_cursors(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            for number in range(5):
                house.store.add_agent(f"agent_{number}", f"session_{number}")
            for method, key, field in (
                ("agent.list", "agents", "agentId"),
                ("session.list", "sessions", "sessionId"),
            ):
                seen: list[str] = []
                params: Json = {"limit": 2}
                while True:
                    page = cast("dict[str, Any]", await client.call(method, params))
                    seen += [entry[field] for entry in page[key]]
                    if "nextCursor" not in page:
                        break
                    params["cursor"] = page["nextCursor"]
                assert seen == sorted(seen)
                assert len(set(seen)) == 5
            by_id = await client.call("agent.list", {"cursor": "agent_2"})
            found = cast("list[dict[str, Any]]", by_id["agents"])
            assert [agent["agentId"] for agent in found] == ["agent_3", "agent_4"]
            error = await client.refused("session.list", {"cursor": "1"})
            assert _code(error) == "INVALID_CURSOR"


async def test_logs_are_folded_from_the_pages(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            request = await client.send(
                "message.send",
                {"sessionId": "session_1", "content": "hi", "clientMessageId": "m1"},
            )
            await client.call("health.stats")
            house.store.begin("session_1", "m1")
            house.store.complete("session_1", "hello")
            await client.answer(request)
            logs = await client.call("agent.logs", {"agentId": "agent_1"})
            assert str(logs["transcript"]).endswith("[user] hi\n[assistant] hello")
            assert cast("list[Json]", logs["sessions"])[0]["itemCount"] == 2
            assert _code(await client.refused("agent.logs", {"agentId": "x"})) == "AGENT_NOT_FOUND"


async def test_of_many_sessions_the_logs_show_the_newest(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            rows = house.store.sessions
            first = rows["session_1"]
            for number in range(1_100):
                name = f"session_x{number:04}"
                spec = msgspec.structs.replace(first.spec, session_id=SessionId(name))
                rows[name] = FakeSession(spec)
            logs = await client.call("agent.logs", {"agentId": "agent_1"})
            shown = [one["sessionId"] for one in cast("list[Json]", logs["sessions"])]
            assert shown == [f"session_x{number:04}" for number in range(1_050, 1_100)]


async def test_permissions_are_those_of_an_agent_or_of_a_session(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            house.store.add_agent()
            asked: list[Json] = [{"agentId": "agent_1"}, {"sessionId": "session_1"}]
            for params in asked:
                result = await client.call("permission.list", params)
                rules = cast("list[Json]", result["permissions"])
                assert rules[0]["permissionId"] == "mode:default"
            both: Json = {"agentId": "a", "sessionId": "s"}
            error = await client.refused("permission.list", both)
            assert error["message"] == "permission.list accepts agentId or sessionId, not both"
            error = await client.refused("permission.list", {})
            assert error["message"] == "permission.list requires agentId or sessionId"


async def test_figures_are_given_although_the_store_is_silent(tmp_path: Path) -> None:
    from roost.schemas.session import Count

    with trio.fail_after(5):
        async with (
            open_front(tmp_path, timeouts={"link_call": 0.2}) as house,
            open_client(house) as client,
        ):
            house.store.silent.add(Count)
            stats = await client.call("health.stats")
            assert cast("Json", stats["state"])["available"] is False
            assert cast("list[Json]", stats["tree"])[0]["childId"] == "front"
