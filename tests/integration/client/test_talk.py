from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.commands import LIMIT, command, environ, roost
from tests.support.fake_daemon import (
    AGENT,
    APPROVAL,
    SESSION,
    FakeClient,
    FakeDaemon,
    Params,
    Refusal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

pytestmark = pytest.mark.slow


def on_attach(
    daemon: FakeDaemon, script: Callable[[FakeClient], Awaitable[None]], nursery: trio.Nursery
) -> None:
    """Answer `session.attach`, then tell what the script tells."""

    async def attach(client: FakeClient, params: Params) -> object:
        await client.tell_status("running", metadata={"derived": True})
        nursery.start_soon(script, client)
        return {"sessionId": SESSION, "attachmentId": "attachment_1"}

    daemon.handlers["session.attach"] = attach


@asynccontextmanager
async def hanging(daemon: FakeDaemon, *arguments: str) -> AsyncGenerator[trio.Process]:
    """Start a command with an open standard input; it is killed if it does not end by itself."""
    with trio.fail_after(LIMIT):
        process = await trio.lowlevel.open_process(
            command(daemon.home.path, *arguments),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ(),
        )
        assert process.stdin is not None
        try:
            yield process
        finally:
            with trio.CancelScope(shield=True):
                await process.stdin.aclose()
                if process.poll() is None:
                    process.kill()
                await process.wait()


def decided(daemon: FakeDaemon, method: str) -> trio.Event:
    """Return an event that is set when a decision comes."""
    event = trio.Event()

    async def decide(client: FakeClient, params: Params) -> object:
        event.set()
        await trio.lowlevel.checkpoint()
        return {"requestId": params["requestId"], "decision": "approved"}

    daemon.handlers[method] = decide
    return event


async def test_run_streams_text_to_standard_output_and_the_rest_to_standard_error(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    async def turn(client: FakeClient) -> None:
        await client.tell_event("user_message", displayText="look around", messageId="m")
        await client.tell("tool_request", requestId="c", toolName="shell", input={"command": "ls"})
        await client.tell_event("tool_call_completed", callId="c", result="a\nb", isError=False)
        await client.tell("message_chunk", delta="two ")
        await client.tell("message_chunk", delta="files")
        await client.tell_status("idle", metadata={"derived": True})

    on_attach(daemon, turn, nursery)
    ended = await roost(
        daemon.home.path, "run", "look around", "--provider", "script", "--model", "m"
    )
    assert ended.returncode == 0
    assert ended.stdout == b"two files\n"
    assert b"shell: ls" in ended.stderr
    assert b"  a\n  b\n" in ended.stderr
    (created,) = daemon.params_of("agent.create")
    assert created["objective"] == "look around"
    assert created["cwd"] == os.getcwd()
    assert (created["provider"], created["model"]) == ("script", "m")
    overrides = created["envOverrides"]
    assert isinstance(overrides, dict)
    assert overrides["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("typed", "method", "scope"),
    [
        (b"y\n", "tool.approve", "once"),
        (b"always\n", "tool.approve", "session"),
        (b"\n", "tool.deny", None),
        (b"what?\n", "tool.deny", None),
    ],
)
async def test_run_asks_for_a_decision_and_passes_it_on(
    daemon: FakeDaemon, nursery: trio.Nursery, typed: bytes, method: str, scope: str | None
) -> None:
    decision = decided(daemon, method)

    async def turn(client: FakeClient) -> None:
        await client.tell("permission_request", **APPROVAL)
        # An attach repeats what waits; that is no second question.
        await client.tell("permission_request", **APPROVAL)
        await decision.wait()
        await client.tell_status("idle")

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "run", "x", "--sandbox", "dangerFullAccess", stdin=typed)
    assert ended.returncode == 0
    assert b"approval needed: shell: uname -s" in ended.stderr
    assert b"risk: external_effect" in ended.stderr
    assert b"policy dangerFullAccess" in ended.stderr
    (params,) = daemon.params_of(method)
    assert (params["sessionId"], params["requestId"]) == (SESSION, "call_1")
    assert params.get("scope") == scope
    assert daemon.params_of("agent.create")[0]["metadata"] == {"sandbox": "dangerFullAccess"}


async def test_yes_approves_without_asking(daemon: FakeDaemon, nursery: trio.Nursery) -> None:
    decision = decided(daemon, "tool.approve")

    async def turn(client: FakeClient) -> None:
        await client.tell("permission_request", **APPROVAL)
        await decision.wait()
        await client.tell_status("idle")

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "run", "x", "--yes")
    assert ended.returncode == 0
    assert b"allow it?" not in ended.stderr


async def test_a_decision_made_elsewhere_withdraws_the_question(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    async def turn(client: FakeClient) -> None:
        await client.tell("permission_request", **APPROVAL)
        await client.tell_event("permission_resolved", requestId="call_1", decision="approved")
        await client.tell_status("idle")

    on_attach(daemon, turn, nursery)
    async with hanging(daemon, "run", "x") as process:
        assert await process.wait() == 0
    assert not daemon.params_of("tool.approve")
    assert not daemon.params_of("tool.deny")


async def test_without_anybody_to_ask_the_approval_stays_open(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    async def turn(client: FakeClient) -> None:
        await client.tell("permission_request", **APPROVAL)

    on_attach(daemon, turn, nursery)
    with trio.fail_after(LIMIT):
        process = await trio.lowlevel.open_process(
            command(daemon.home.path, "run", "x"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ(),
        )
        assert process.stderr is not None
        said = b""
        while b"roost approve call_1" not in said:
            said += await process.stderr.receive_some(4096)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 130
        await process.stderr.aclose()
    assert not daemon.params_of("tool.deny")


async def test_a_question_is_asked_and_its_answer_passed_on(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    answered = decided(daemon, "elicitation.respond")
    question = {"id": "db", "question": "Which?", "options": [{"label": "SQLite"}, {"label": "Pg"}]}

    async def turn(client: FakeClient) -> None:
        await client.tell("user_input_request", requestId="call_2", questions=[question])
        await answered.wait()
        await client.tell_status("idle")

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "run", "x", stdin=b"2\n")
    assert ended.returncode == 0
    assert b"Which?" in ended.stderr
    (params,) = daemon.params_of("elicitation.respond")
    assert params["response"] == {"answers": {"db": {"answers": ["Pg"]}}}
    assert params["kind"] == "request_user_input"


@pytest.mark.parametrize(
    ("status", "metadata", "code"),
    [
        ("idle", {}, 0),
        ("error", {}, 1),
        ("stopped", {}, 130),
        ("idle", {"outcome": "interrupted"}, 130),
    ],
)
async def test_the_exit_status_is_that_of_the_turn(
    daemon: FakeDaemon, nursery: trio.Nursery, status: str, metadata: Params, code: int
) -> None:
    async def turn(client: FakeClient) -> None:
        await client.tell_status(status, message="because", metadata=metadata)

    on_attach(daemon, turn, nursery)
    assert (await roost(daemon.home.path, "run", "x")).returncode == code


async def test_ctrl_c_interrupts_the_turn(daemon: FakeDaemon, nursery: trio.Nursery) -> None:
    cancelled = decided(daemon, "session.cancelTurn")
    attached = trio.Event()

    async def cancel(client: FakeClient, params: Params) -> object:
        cancelled.set()
        await trio.lowlevel.checkpoint()
        return {"sessionId": SESSION, "cancelled": True, "reason": "x"}

    daemon.handlers["session.cancelTurn"] = cancel

    async def turn(client: FakeClient) -> None:
        attached.set()
        await cancelled.wait()
        await client.tell_status("idle", metadata={"outcome": "interrupted"})

    on_attach(daemon, turn, nursery)
    async with hanging(daemon, "run", "x") as process:
        await attached.wait()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert daemon.params_of("session.cancelTurn")[0]["sessionId"] == SESSION


async def test_ctrl_c_twice_leaves_the_agent_alone(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    attached = trio.Event()

    async def turn(client: FakeClient) -> None:
        attached.set()

    on_attach(daemon, turn, nursery)
    async with hanging(daemon, "run", "x") as process:
        await attached.wait()
        process.send_signal(signal.SIGINT)
        await daemon.wait_asked("session.cancelTurn")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert not daemon.params_of("agent.stop")


async def test_send_shows_only_its_own_turn_and_exits_as_it_ended(daemon: FakeDaemon) -> None:
    clients: list[FakeClient] = []

    async def attach(client: FakeClient, params: Params) -> object:
        clients.append(client)
        await client.tell("message_chunk", delta="of the turn before")
        await client.tell_status("idle", metadata={"derived": True})
        return {"sessionId": SESSION, "attachmentId": "a"}

    async def send(client: FakeClient, params: Params) -> object:
        await client.tell_event("user_message", message="hi", messageId=params["clientMessageId"])
        await client.tell_status("running")
        await client.tell("message_chunk", delta="answer")
        await client.tell_status("error", message="no model")
        return {
            "messageId": params["clientMessageId"],
            "outcome": "failed",
            "terminal": {"code": 1, "message": "no model"},
        }

    daemon.handlers |= {"session.attach": attach, "message.send": send}
    ended = await roost(daemon.home.path, "send", AGENT, "hi")
    assert ended.stdout == b"answer\n"
    assert b"failed: no model" in ended.stderr
    assert ended.returncode == 1
    assert daemon.params_of("message.send")[0]["content"] == "hi"


async def test_send_reads_its_text_from_standard_input(daemon: FakeDaemon) -> None:
    async def send(client: FakeClient, params: Params) -> object:
        await client.tell_event("user_message", messageId=params["clientMessageId"])
        await client.tell_status("idle")
        return {"messageId": "m", "outcome": "completed", "terminal": {"code": 0}}

    daemon.handlers["message.send"] = send
    ended = await roost(daemon.home.path, "send", "one", "-", "--json", stdin=b"two\nlines")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["outcome"] == "completed"
    assert daemon.params_of("message.send")[0]["content"] == "two\nlines"


async def test_a_turn_that_names_a_sandbox_that_is_not_there_says_what_to_do(
    daemon: FakeDaemon,
) -> None:
    async def create(client: FakeClient, params: Params) -> object:
        await trio.lowlevel.checkpoint()
        raise Refusal(-32000, "no sandbox is available", "SANDBOX_UNAVAILABLE")

    daemon.handlers["agent.create"] = create
    ended = await roost(daemon.home.path, "run", "x")
    assert ended.returncode == 1
    assert b"--sandbox dangerFullAccess" in ended.stderr


async def test_a_daemon_that_goes_away_is_told(daemon: FakeDaemon, nursery: trio.Nursery) -> None:
    async def turn(client: FakeClient) -> None:
        await client.stream.aclose()

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "run", "x")
    assert ended.returncode == 3
    assert b"closed the connection" in ended.stderr


async def test_what_a_model_says_cannot_command_the_terminal(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    async def turn(client: FakeClient) -> None:
        await client.tell("message_chunk", delta="a\x1b[2Jb\u202ec\n")
        await client.tell_status("idle")

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "run", "x")
    assert ended.stdout.decode() == "a\ufffd[2Jb\ufffdc\n"


async def test_attach_begins_behind_the_event_that_is_named(
    daemon: FakeDaemon, nursery: trio.Nursery
) -> None:
    capabilities: list[Params] = []

    async def turn(client: FakeClient) -> None:
        capabilities.append(client.capabilities)
        await client.tell("message_chunk", delta="more\n")
        await client.tell_event("session_closed", reason="done")

    on_attach(daemon, turn, nursery)
    ended = await roost(daemon.home.path, "attach", "one", "--after", "7")
    assert ended.returncode == 130
    assert ended.stdout == b"more\n"
    assert capabilities == [{"roost.cursors": {SESSION: 7}}]
