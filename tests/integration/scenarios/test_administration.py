"""Health, reload and login of a whole daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.daemon import (
    RunningDaemon,
    attach,
    create_agent,
    daemon_in,
    eventually,
    is_method,
    next_note,
    send_script,
    status_is,
    within,
)
from tests.support.processes import stand_still
from tests.support.scenarios import brief, refused, request, web_socket
from tests.support.scripted_model import says, scripted_model_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.daemon import Client, Json

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return ("limits.queued_messages=7",)


@pytest.fixture
def client(shared: RunningDaemon) -> Iterator[Client]:
    """A client of the module's daemon, whose configuration is empty again afterwards."""
    made = shared.client()
    yield made
    shared.configure("")
    made.call("daemon.reload")


def node(client: Client, child_id: str) -> Json:
    """Return a process as `health.stats` tells it."""
    tree: list[Json] = client.call("health.stats")["tree"]  # type: ignore[assignment]
    nothing: Json = {}
    return next((each for each in tree if each["childId"] == child_id), nothing)


def log_of(home: Path) -> str:
    return (home / "logs" / "daemon.jsonl").read_text()


def limit_of_messages(client: Client) -> object:
    """Return what a new connection is told of a limit."""
    answer = client.call("initialize", protocolVersion="1.0.0")
    return within(answer, "capabilities", "daemon.limits")["maxQueuedMessages"]


def test_scenario_51_ping_answers_while_an_agent_hangs_hard(home: Path) -> None:
    with daemon_in(home, "agents.hang_timeout=1.5") as daemon:
        client, other = daemon.client(), daemon.client()
        agent, session = create_agent(client)
        attach(client, session)
        number = send_script(client, session, {"say": "on"}, {"hang": "hard"})
        next_note(client, is_method("event.message_chunk", session))
        slowest = 0.0
        seen: list[Json] = []
        while not any(int(str(each.get("silentMs", 0))) > 300 for each in seen):
            began = time.perf_counter()
            assert other.call("health.ping")["ok"] is True
            slowest = max(slowest, time.perf_counter() - began)
            seen = [node(other, agent)]
            assert seen[0]["working"] is True
            assert seen[0]["turns"] == 1
        assert slowest < 2
        # It is killed for it, and the daemon goes on.
        assert client.answer(number)["outcome"] == "failed"
        next_note(client, status_is(session, "error"))
        assert eventually(lambda: node(other, agent).get("restarts")) == 1


def test_scenario_51_ping_answers_while_root_and_store_stand_still(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        store = daemon.pid("store")
        for pid in (store, daemon.root_pid):
            stand_still(pid)
        try:
            assert client.call("health.ping")["ok"] is True
            stats = client.call("health.stats")
            assert within(stats, "state")["available"] is False
            assert stats["tree"] == []
            assert client.call("health.ready")["ready"] is True
        finally:
            for pid in (store, daemon.root_pid):
                os.kill(pid, signal.SIGCONT)
        assert within(client.call("health.stats"), "state")["available"] is True


@pytest.mark.parametrize(
    ("text", "says_"),
    [
        ("[log]\nlevel = 'loud'\n", "config.toml line 2: log.level: Invalid enum value 'loud'"),
        ("[limits]\nconnection = 5\n", "line 2: unknown key limits.connection; the nearest known"),
        ("[timeouts]\nturn = 'x'\n", "line 2: timeouts.turn: Expected `float`, got `str`"),
        ("[timeouts]\nagent_stop = 0\n", "line 2: timeouts.agent_stop: Expected `float` > 0.0"),
        ("[limits]\nline_bytes = 1\n", "line 2: limits.line_bytes: at least 65536"),
        (f"[limits]\nclient_queue_bytes = {10**22}\n", "limits.client_queue_bytes: Expected `int`"),
        ("[timeouts\n", "config.toml line 1: "),
        ("[agents]\nprovider = 'x'\n", "there is no [providers.x]; known are script"),
    ],
)
def test_scenario_52_a_failing_reload_keeps_the_old_configuration(
    shared: RunningDaemon, client: Client, text: str, says_: str
) -> None:
    shared.configure("[limits]\nin_flight_requests = 5\n")
    answer = client.call("daemon.reload")
    assert answer["changed"] == ["limits.in_flight_requests"]
    assert answer["mcpServer"] == {"status": "disabled"}
    assert str(answer["configReloadedAt"]).endswith("Z")
    shared.configure(f"{text}\n[retention]\nsession_days = 4\n")
    number, code, message = brief(refused(client, "daemon.reload"))
    assert (number, code) == (-32603, "CONFIG_INVALID")
    assert says_ in str(message)
    capabilities = within(_told(shared), "capabilities", "daemon.limits")
    assert capabilities["maxInFlightRequests"] == 5
    shared.configure("[limits]\nin_flight_requests = 5\n")
    assert client.call("daemon.reload")["changed"] == []


def _told(daemon: RunningDaemon) -> Json:
    """Return what a new connection is told."""
    from tests.support.scenarios import silent

    return silent(daemon).call("initialize", protocolVersion="1.0.0")


def test_scenario_52_two_reloads_at_once_are_both_answered(
    shared: RunningDaemon, client: Client
) -> None:
    others = [shared.client() for _ in range(4)]
    shared.configure("[limits]\nqueued_requests = 77\n")
    numbers = [each.send("daemon.reload") for each in others]
    numbers_too = [each.send("daemon.reload") for each in others]
    answers = [each.answer(number) for each, number in zip(others, numbers, strict=True)]
    answers += [each.answer(number) for each, number in zip(others, numbers_too, strict=True)]
    assert all(answer["reloaded"] is True for answer in answers)
    # Those that came while one was under way share the next one.
    assert ["limits.queued_requests"] in [answer["changed"] for answer in answers]
    assert client.call("daemon.reload")["changed"] == []


def test_scenario_52_limits_and_timeouts_change_for_what_runs_already(
    shared: RunningDaemon, client: Client
) -> None:
    agent, session = create_agent(client)
    assert client.answer(send_script(client, session, {"say": "a"}))["outcome"] == "completed"
    pid = shared.pid(agent)
    shared.configure("[limits]\nin_flight_requests = 1\n[timeouts]\nturn = 0.3\n")
    answer = client.call("daemon.reload")
    assert answer["changed"] == ["limits.in_flight_requests", "timeouts.turn"]
    assert answer["late"] == []
    hanging = send_script(client, session, {"say": "on"}, {"hang": True})
    error = refused(client, "message.send", sessionId=session, content="one more")
    assert within(error, "data")["maxInFlightRequests"] == 1
    assert client.answer(hanging)["outcome"] == "failed"
    assert shared.pid(agent) == pid
    # An agent that is started later has them too.
    _, fresh = create_agent(client)
    assert client.answer(send_script(client, fresh, {"hang": True}))["outcome"] == "failed"


def test_scenario_52_what_the_command_line_sets_stays_in_force(
    shared: RunningDaemon, client: Client
) -> None:
    shared.configure("[limits]\nqueued_messages = 99\nqueued_requests = 98\n")
    assert client.call("daemon.reload")["changed"] == ["limits.queued_requests"]
    limits = within(_told(shared), "capabilities", "daemon.limits")
    assert (limits["maxQueuedMessages"], limits["maxQueuedRequests"]) == (7, 98)


def test_scenario_52_sockets_and_processes_wait_for_a_restart(
    shared: RunningDaemon, client: Client
) -> None:
    text = "[websocket]\nport = 1\npath = '/x'\n[processes]\nstart = 'spawn'\n"
    shared.configure(text + "[tools]\ntimeout = 3.0\n")
    answer = client.call("daemon.reload")
    assert answer["changed"] == ["tools.timeout"]
    waits = ["websocket.port", "websocket.path", "processes.start"]
    assert answer["needRestart"] == waits
    with web_socket(shared.home):
        pass
    # It is told again as long as it waits.
    assert client.call("daemon.reload")["needRestart"] == waits


def test_scenario_52_the_level_of_the_log_changes_in_every_process(
    shared: RunningDaemon, client: Client
) -> None:
    _, session = create_agent(client)
    attach(client, session, "loud")
    found = client.call("session.detach", sessionId=session, clientId="loud")["attachmentId"]
    eventually(lambda: str(found) in log_of(shared.home))
    shared.configure("[log]\nlevel = 'error'\n")
    client.call("daemon.reload")
    assert "configuration reloaded; changed: log.level" in log_of(shared.home)
    attach(client, session, "quiet")
    found = client.call("session.detach", sessionId=session, clientId="quiet")["attachmentId"]
    assert str(found) not in log_of(shared.home)


def test_scenario_52_retention_is_applied_to_what_is_in_the_log(
    shared: RunningDaemon, client: Client
) -> None:
    _, session = create_agent(client)
    for _ in range(3):
        client.answer(send_script(client, session, {"say": "word " * 2_000}))
    before = within(client.call("health.stats"), "state")["logs"]
    shared.configure("[retention]\nsession_bytes = 12000\n")
    assert client.call("daemon.reload")["changed"] == ["retention.session_bytes"]

    def fewer() -> bool:
        return int(str(within(client.call("health.stats"), "state")["logs"])) < int(str(before))

    eventually(fewer)


def test_scenario_52_a_provider_comes_changes_and_goes(
    shared: RunningDaemon, client: Client
) -> None:
    with scripted_model_in_thread() as first, scripted_model_in_thread() as second:
        first.play(says("from the first"))
        second.play(says("from the second"))
        secret = "sk-never-told"
        session = ""
        for server in (first, second):
            url = f"base_url = '{server.base_url}'\nkey = '{secret}'\nmodel = 'm'\n"
            shared.configure(f"[providers.added]\n{url}")
            assert client.call("daemon.reload")["changed"] == ["providers.added"]
            if server is first:
                made = client.call(
                    "agent.create", objective="x", initialContent=[], provider="added"
                )
                session = str(made["sessionId"])
            answer = client.call("message.send", sessionId=session, content="hello")
            assert answer["outcome"] == "completed"
            assert server.asked[0].headers["authorization"] == f"Bearer {secret}"
        shared.configure("")
        assert client.call("daemon.reload")["changed"] == ["providers.added"]
        answer = client.call("message.send", sessionId=session, content="hello")
        assert answer["outcome"] == "failed"
        error = refused(client, "agent.create", objective="x", provider="added")
        assert "added" in str(error["message"])
        assert secret not in log_of(shared.home)


def test_scenario_52_a_process_that_dies_in_a_reload_comes_back_with_the_new_settings(
    home: Path,
) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        client.answer(send_script(client, session, {"say": "a"}))
        pid, store = daemon.pid(agent), daemon.pid("store")
        for one in (pid, store):
            stand_still(one)
        daemon.configure("[timeouts]\nturn = 0.3\n[limits]\nqueued_messages = 0\n")
        assert brief(refused(client, "daemon.reload"))[1] == "CONFIG_INVALID"
        daemon.configure("[timeouts]\nturn = 0.3\n[limits]\nevent_bytes = 100000\n")
        number = client.send("daemon.reload")
        for one in (pid, store):
            os.kill(one, signal.SIGKILL)
        answer = client.answer(number)
        assert answer["changed"] == ["limits.event_bytes", "timeouts.turn"]
        assert answer["late"] == []
        daemon.restarted("store", store)
        error = refused(client, "message.send", sessionId=session, content="x" * 200_000)
        assert within(error, "data")["code"] == "INPUT_TOO_LARGE"
        assert client.answer(send_script(client, session, {"hang": True}))["outcome"] == "failed"


def test_scenario_52_a_process_that_stands_still_does_not_hold_a_reload_up(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        agent, session = create_agent(client)
        client.answer(send_script(client, session, {"say": "a"}))
        pid = daemon.pid(agent)
        stand_still(pid)
        daemon.configure("[timeouts]\nturn = 0.3\n")
        try:
            answer = client.call("daemon.reload")
            assert answer["late"] == [f"agent:{agent}"]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert client.answer(send_script(client, session, {"hang": True}))["outcome"] == "failed"


def test_scenario_52_an_agent_that_hangs_is_ended_by_a_new_limit(home: Path) -> None:
    with daemon_in(home) as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        number = send_script(client, session, {"say": "on"}, {"hang": "hard"})
        next_note(client, is_method("event.message_chunk", session))
        daemon.configure("[agents]\nhang_timeout = 1.0\n")
        assert client.call("daemon.reload")["changed"] == ["agents.hang_timeout"]
        assert client.answer(number)["outcome"] == "failed"
        status = within(next_note(client, status_is(session, "error")), "params")
        assert "hung: " in str(status["message"])


def test_scenario_52_a_reload_in_shutdown_is_refused(home: Path) -> None:
    with daemon_in(home, "timeouts.agent_stop=1") as daemon:
        client = daemon.client()
        _, session = create_agent(client)
        attach(client, session)
        number = send_script(client, session, {"say": "on"}, {"hang": True})
        next_note(client, is_method("event.message_chunk", session))
        assert daemon.guard is not None
        daemon.guard.send_signal(signal.SIGTERM)
        codes: list[object] = []
        with contextlib.suppress(OSError):
            while not codes or codes[-1] != "SHUTTING_DOWN":
                answer = client.send("daemon.reload")
                with contextlib.suppress(AssertionError):
                    while answer not in client.answers:
                        client.take(client.read())
                    told: Json = client.answers.pop(answer)
                    codes.append(within(told, "error", "data")["code"] if "error" in told else "")
        assert "SHUTTING_DOWN" in codes
        assert number
        daemon.wait()


@pytest.mark.parametrize("transport", ["unix", "websocket"])
def test_scenario_53_login_whoami_and_logout(
    shared: RunningDaemon, client: Client, transport: str
) -> None:
    path = shared.home / "auth.json"
    said: list[Json] = []
    by_peer: Json = {"transport": "daemon", "verifiedBy": "peerUid", "peerUid": os.getuid()}
    by_cookie: Json = {
        "transport": "daemon",
        "verifiedBy": "cookie",
        "cookie": "verified",
        "peerUid": None,
    }
    with contextlib.ExitStack() as stack:
        if transport == "unix":
            identity = by_peer

            def ask(method: str) -> Json:
                said.append(client.call(method))
                return said[-1]

        else:
            identity = by_cookie
            web = stack.enter_context(web_socket(shared.home))
            cookie = (shared.home / "daemon.cookie").read_text().strip()
            web.send(request("i", "initialize", protocolVersion="1.0.0", authCookie=cookie))
            assert "result" in web.read()

            def ask(method: str) -> Json:
                web.send(request(method, method))
                said.append(web.read())
                return within(said[-1], "result")

        assert ask("auth.whoami") == {"authenticated": False, "identity": {"daemon": identity}}
        who = {"accountId": "local", "displayName": "Local user"}
        logged_in = {"authenticated": True, "provider": "local", "identity": who}
        assert ask("auth.login") == logged_in
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = str(json.loads(path.read_text())["token"])
        assert ask("auth.login") == logged_in
        assert json.loads(path.read_text())["token"] == token
        told = ask("auth.whoami")
        assert told == {**logged_in, "identity": {**who, "daemon": identity}}
        # Whoever asks from elsewhere sees the same login.
        assert shared.client().call("auth.whoami")["authenticated"] is True
        for _ in range(2):
            assert ask("auth.logout") == {"authenticated": False}
            assert not path.exists()
        assert ask("auth.whoami") == {"authenticated": False, "identity": {"daemon": identity}}
        ask("health.stats")
    assert token not in json.dumps(said)
    for log in (shared.home / "logs").rglob("*"):
        if log.is_file():
            assert token not in log.read_text(errors="replace")


def test_scenario_53_a_damaged_login_is_none_and_a_link_is_refused(
    shared: RunningDaemon, client: Client, tmp_path: Path
) -> None:
    path = shared.home / "auth.json"
    path.write_text('{"version": 1, "token": "torn')
    assert client.call("auth.whoami")["authenticated"] is False
    assert client.call("auth.logout") == {"authenticated": False}
    assert path.read_text().endswith("torn")
    assert client.call("auth.login")["authenticated"] is True
    (aside,) = shared.home.glob("auth.json.damaged-*")
    assert aside.read_text().endswith("torn")
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("{}")
    path.symlink_to(elsewhere)
    try:
        for method in ("auth.login", "auth.whoami", "auth.logout"):
            number, code, message = brief(refused(client, method))
            assert (number, code) == (-32603, "AUTH_STORAGE_FAILED")
            assert "is a link" in str(message)
        assert elsewhere.read_text() == "{}"
    finally:
        path.unlink()


def test_the_figures_name_every_process_and_what_waits(
    shared: RunningDaemon, client: Client
) -> None:
    agent, session = create_agent(client)
    attach(client, session)
    numbers = [send_script(client, session, {"say": "on"}, {"hang": True})]
    next_note(client, is_method("event.message_chunk", session))
    numbers += [send_script(client, session, {"say": "later"}) for _ in range(2)]
    eventually(lambda: node(client, agent)["mailbox"] == 2)
    found = node(client, agent)
    assert (found["turns"], found["queued"], found["working"]) == (1, 2, True)
    stats = client.call("health.stats")
    tree: list[Json] = stats["tree"]  # type: ignore[assignment]
    assert {"root", "zygote", "store", "providers", "front", agent} <= {
        str(each["childId"]) for each in tree
    }
    for each in tree:
        process = psutil.Process(int(str(each["pid"])))
        assert int(str(each["rss"])) > 1_000_000
        assert float(str(each["cpuSeconds"])) <= sum(process.cpu_times()[:2]) + 0.1
    assert within(stats, "sandbox")["inForce"] in {"bubblewrap", "landlock", "none"}
    client.call("session.cancelTurn", sessionId=session)
    for number in numbers:
        client.answer(number)
    eventually(lambda: "turns" not in node(client, agent))
