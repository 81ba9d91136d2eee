"""Turns of a model behind the real daemon: a real llama.cpp server, and a scripted one that misbehaves."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.support import scripted_model
from tests.support.daemon import (
    RunningDaemon,
    attach,
    carriers,
    check_log,
    event_is,
    eventually,
    is_method,
    next_note,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow

ONLY_LISTS = ["shell", "Write", "Edit", "FileRead", "ask_user"]


@pytest.fixture
def serving(home: Path) -> Iterator[RunningDaemon]:
    """A daemon that the test configures and starts."""
    daemon = RunningDaemon(home)
    yield daemon
    daemon.close_clients()
    if daemon.guard is not None:
        daemon.stop()


def configured(url: str, **settings: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(["[providers.local]", f'base_url = "{url}"', 'model = "m"', *lines, ""])


def model_agent(client: Client, **params: object) -> str:
    agent = client.call(
        "agent.create",
        objective="talk",
        initialContent=[],
        provider="local",
        metadata={"sandbox": "dangerFullAccess"},
        **params,
    )
    session = str(agent["sessionId"])
    attach(client, session)
    return session


def said(client: Client, session: str) -> str:
    return "".join(str(p["delta"]) for p in carriers(client.notes, session) if "delta" in p)


def test_a_real_model_streams_its_answer(serving: RunningDaemon, model_server: str) -> None:
    serving.configure(configured(f"{model_server}/v1", max_tokens=300))
    serving.start()
    client = serving.client()
    session = model_agent(client)
    answer = client.call("message.send", sessionId=session, content="Say something.")
    assert answer["outcome"] == "completed"
    pieces = [p for p in carriers(client.notes, session) if "delta" in p]
    assert len(said(client, session)) > 100
    assert len(pieces) > 1
    again = client.call("message.send", sessionId=session, content="And more.")
    assert again["outcome"] == "completed"


def test_a_tool_call_of_a_real_model_in_json_mode_runs(
    serving: RunningDaemon, model_server: str
) -> None:
    serving.configure(configured(f"{model_server}/v1", tool_mode="json", max_tokens=400))
    serving.start()
    client = serving.client()
    session = model_agent(client, unattendedAllow=["Glob"], unattendedDeny=ONLY_LISTS)
    kinds: list[str] = []
    for attempt in range(20):  # the model is random; three answers of four are calls
        client.call("message.send", sessionId=session, content=f"List files, {attempt}.")
        kinds = [kind for _, _, kind in check_log(serving.home)[session]]
        if "tool.call.completed" in kinds:
            break
    assert "tool.call.completed" in kinds
    names = {
        str(params["toolName"])
        for params in carriers(client.notes, session)
        if "toolName" in params
    }
    assert names == {"list_files"}


def busy_slots(server: str) -> int:
    with urllib.request.urlopen(f"{server}/slots", timeout=10) as answer:
        slots: list[Json] = json.load(answer)
    return sum(bool(slot["is_processing"]) for slot in slots)


def test_a_cancelled_turn_frees_the_slot_of_the_models_server(
    serving: RunningDaemon, model_server: str
) -> None:
    serving.configure(configured(f"{model_server}/v1"))
    serving.start()
    client = serving.client()
    session = model_agent(client)
    number = client.send("message.send", sessionId=session, content="Talk for ever.")
    next_note(client, is_method("event.message_chunk", session))
    assert busy_slots(model_server) == 1
    cancelled = client.call("session.cancelTurn", sessionId=session)
    assert cancelled["cancelled"] is True
    assert client.answer(number)["outcome"] == "interrupted"
    eventually(lambda: busy_slots(model_server) == 0, timeout=5)


FAULTS = {
    "a wrong key": (scripted_model.status(401), False),
    "too many requests": (scripted_model.status(429), True),
    "a fault of the server": (scripted_model.status(500), True),
    "garbage": (scripted_model.body(b"<html>no</html>", "text/html"), False),
    "silence": (scripted_model.silent_after(), True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_provider_that_fails_ends_the_turn_with_a_clear_error_and_the_next_works(
    serving: RunningDaemon, fault: str
) -> None:
    answer, _ = FAULTS[fault]
    with scripted_model.scripted_model_in_thread() as model:
        serving.configure(configured(model.base_url, max_retries=0, event_timeout=0.5))
        serving.start()
        client = serving.client()
        session = model_agent(client)
        model.play(answer)
        failed = client.call("message.send", sessionId=session, content="hello")
        assert failed["outcome"] == "failed"
        status: Json = next_note(
            client,
            lambda note: note["params"].get("status") == "error",  # type: ignore[attr-defined]
        )["params"]  # type: ignore[assignment]
        assert status["message"]
        model.play(scripted_model.says("all ", "is well"))
        assert (
            client.call("message.send", sessionId=session, content="again")["outcome"]
            == "completed"
        )
        assert said(client, session) == "all is well"


def test_a_killed_providers_service_fails_the_turn_as_retryable_and_the_next_works(
    serving: RunningDaemon,
) -> None:
    with scripted_model.scripted_model_in_thread() as model:
        serving.configure(configured(model.base_url))
        serving.start()
        client = serving.client()
        session = model_agent(client)
        model.play(scripted_model.silent_after(scripted_model.delta(content="half ")))
        number = client.send("message.send", sessionId=session, content="hello")
        next_note(client, is_method("event.message_chunk", session))
        serving.kill("providers")
        assert client.answer(number)["outcome"] == "failed"
        model.play(scripted_model.says("whole"))
        started = time.monotonic()
        again = client.call("message.send", sessionId=session, content="again")
        assert again["outcome"] == "completed"
        assert time.monotonic() - started < 10
        next_note(client, event_is(session, "agent.message.completed"))
