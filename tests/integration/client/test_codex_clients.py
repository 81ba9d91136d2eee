"""Clients of the Codex app-server that nobody here wrote, unchanged, against `roost app-server`.

Each runs in a process of its own: they bring an event loop of their own, and start their server themselves.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model as script
from tests.support.commands import environ
from tests.support.daemon import RunningDaemon
from tests.support.scripted_model import scripted_model_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

LIMIT = 60

AGENT_SDK = """
import json, sys
import anyio
from codex_agent_sdk import CodexClient, CodexClientOptions, CodexRPCError

def text(prompt):
    return [{"type": "text", "text": prompt}]

async def until(client, method, turn):
    found = []
    async for note in client.notifications():
        found.append(note)
        params = note["params"]
        if note["method"] == method and turn in (params.get("turnId"), params.get("turn", {}).get("id")):
            return found

async def main():
    told = {}
    options = CodexClientOptions(codex_path=sys.argv[1], args=["--listen", "stdio://"])
    async with CodexClient(options) as client:
        thread = (await client.thread_start({"cwd": sys.argv[2], "approvalPolicy": "never"}))["thread"]["id"]
        told["streamed"] = [piece async for piece in client.stream_prompt_text(thread, "Hi")]
        turn = (await client.turn_start({"threadId": thread, "input": text("wait")}))["turn"]["id"]
        await until(client, "item/agentMessage/delta", turn)
        told["interrupted"] = await client.turn_interrupt({"threadId": thread, "turnId": turn})
        told["status"] = (await until(client, "turn/completed", turn))[-1]["params"]["turn"]["status"]
        turn = (await client.turn_start({"threadId": thread, "input": text("write")}))["turn"]["id"]
        asked = (await until(client, "approval/requested", turn))[-1]["params"]
        told["tool"] = asked["toolName"]
        resolve = {key: asked[key] for key in ("threadId", "turnId", "requestId")}
        await client.request("approval/resolve", {**resolve, "decision": "allow"})
        notes = await until(client, "turn/completed", turn)
        resolved = [note["params"]["decision"] for note in notes if note["method"] == "approval/resolved"]
        told["resolved"] = resolved
        back = await client.thread_resume({"threadId": thread})
        told["items"] = [(item["type"], item["status"]) for item in back["items"]]
        told["text"] = [item["text"] for item in back["items"] if item["type"] == "agentMessage"]
        try:
            await client.thread_fork({"threadId": thread})
        except CodexRPCError as error:
            told["fork"] = error.code
    print(json.dumps(told))

anyio.run(main)
"""

PYTHON_SDK = """
import asyncio, json, sys
from codex_python_sdk import AsyncCodexAgenticClient

async def main():
    told = {}
    client = AsyncCodexAgenticClient(codex_command=sys.argv[1], process_cwd=sys.argv[2])
    async with client:
        thread, pieces = "", []
        async for event in client.responses_events(prompt="Hi"):
            thread = event.thread_id
            if event.type == "item/agentMessage/delta":
                pieces.append(event.text_delta)
        told["streamed"] = pieces
        async for event in client.responses_events(prompt="wait", thread_id=thread):
            if event.type == "item/agentMessage/delta":
                told["interrupted"] = await client.turn_interrupt(thread, event.turn_id)
            if event.type == "turn/completed":
                told["status"] = event.raw["params"]["turn"]["status"]
        answer = await client.responses_create(prompt="again", thread_id=thread)
        told["answer"] = answer.text
        told["read"] = (await client.thread_read(thread))["status"]
        told["models"] = [model["id"] for model in (await client.model_list())["models"]]
        told["listed"] = await client.thread_list()
        told["archived"] = await client.thread_archive(thread)
        told["said"] = len(client._stderr_lines)
    print(json.dumps(told))

asyncio.run(main())
"""


def needs(package: str) -> None:
    """Skip the test where the package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model_in_thread() as running:
        yield running


@pytest.fixture
def program(home: Path, model: ScriptedModel) -> Iterator[Path]:
    """A program like `codex`: `roost` for one home, whose agents think with the scripted model."""
    daemon = RunningDaemon(home / "h")
    provider = f'[providers.local]\nbase_url = "{model.base_url}"\nmodel = "m"\n'
    daemon.configure(f'[agents]\nprovider = "local"\n{provider}')
    path = home / "codex"
    path.write_text(
        f'#!/bin/sh\nexec {sys.executable} -P -m roost.actors --home {home / "h"} "$@"\n'
    )
    path.chmod(0o700)
    try:
        daemon.start()
        yield path
    finally:
        if daemon.guard is not None:
            daemon.stop()


def run(source: str, program: Path, folder: Path) -> dict[str, object]:
    """Run a program that uses a client and return what it has told."""
    ended = subprocess.run(
        [sys.executable, "-c", source, str(program), str(folder)],
        capture_output=True,
        timeout=LIMIT,
        check=False,
        env=environ(),
    )
    assert ended.returncode == 0, ended.stderr.decode()
    told: dict[str, object] = json.loads(ended.stdout)
    return told


def test_codex_agent_sdk(program: Path, model: ScriptedModel, tmp_path: Path) -> None:
    needs("codex_agent_sdk")
    arguments = json.dumps({"path": "note.txt", "content": "written"})
    model.play(
        script.says("Hel", "lo", interval=0.05),
        script.silent_after(script.delta(content="wait")),
        script.calls("write_file", arguments),
        script.says("done"),
    )
    told = run(AGENT_SDK, program, tmp_path)
    assert told["streamed"] == ["Hel", "lo"]
    assert told["interrupted"] == {}
    assert told["status"] == "interrupted"
    assert (told["tool"], told["resolved"]) == ("write_file", ["allow"])
    assert (tmp_path / "note.txt").read_text() == "written"
    assert told["items"] == [
        ["userMessage", "completed"],
        ["agentMessage", "completed"],
        ["userMessage", "completed"],
        ["agentMessage", "interrupted"],
        ["userMessage", "completed"],
        ["toolCall", "completed"],
        ["approvalRequest", "completed"],
        ["approvalResolved", "completed"],
        ["agentMessage", "completed"],
    ]
    assert told["text"] == ["Hello", "wait", "done"]
    assert told["fork"] == -32601


def test_codex_python_sdk(program: Path, model: ScriptedModel, tmp_path: Path) -> None:
    needs("codex_python_sdk")
    model.play(
        script.says("Hel", "lo", interval=0.05),
        script.silent_after(script.delta(content="wait")),
        script.says("again"),
    )
    told = run(PYTHON_SDK, program, tmp_path)
    assert told["streamed"] == ["Hel", "lo"]
    assert told["interrupted"] == {}
    assert told["status"] == "interrupted"
    assert told["answer"] == "again"
    assert told["read"] == "idle"
    assert told["archived"] == {}
    # It looks for the threads under the name `data`, and finds none.
    assert told["listed"] == []
    assert told["said"], "what is ignored is said on standard error"
