"""What bad input gets: a clear error of its own, and the daemon goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Json, Refusal
from tests.support.daemon import (
    RunningDaemon,
    create_agent,
    daemon_in,
    is_method,
    next_note,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def ask(client: Client, line: bytes) -> Json:
    client.sock.sendall(line + b"\n")
    return client.read()


def error_of(answer: Json) -> tuple[int, object]:
    error: Json = answer["error"]  # type: ignore[assignment]
    data: Json = error.get("data", {})  # type: ignore[assignment]
    return int(str(error["code"])), data.get("code")


def test_a_line_over_the_limit_is_told_so_and_ends_its_connection_only(
    shared: RunningDaemon,
) -> None:
    other, client = shared.client(), shared.client()
    line = b'{"jsonrpc":"2.0","id":1,"method":"health.ping","params":{"x":"' + b"a" * (17 << 20)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sock.sendall(line)
    answer = client.read()
    assert error_of(answer) == (-32600, "MESSAGE_TOO_LARGE")
    assert answer["id"] is None
    with pytest.raises(ConnectionError):
        client.read()
    assert other.call("health.ping")["ok"] is True


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session.attach", {"sessionId": "session_none"}, "SESSION_NOT_FOUND"),
        ("message.send", {"sessionId": "session_none", "content": "x"}, "AGENT_NOT_FOUND"),
        ("message.send", {"sessionId": 5, "content": "x"}, "INVALID_ARGUMENT"),
        ("message.send", {"sessionId": "s", "content": ""}, "INVALID_ARGUMENT"),
        ("agent.attach", {"agentId": "none"}, "AGENT_NOT_FOUND"),
        ("agent.stop", {"agentId": "none"}, "AGENT_NOT_FOUND"),
        ("agent.stop", {}, "INVALID_ARGUMENT"),
        ("agent.list", {"limit": 0}, "INVALID_ARGUMENT"),
        ("session.list", {"cursor": "nonsense"}, "INVALID_CURSOR"),
        ("run.cancel", {"runId": "none"}, "RUN_NOT_FOUND"),
        ("agent.create", {"objective": "x", "cwd": "relative"}, "INVALID_ARGUMENT"),
        ("agent.create", {"objective": "x", "cwd": "/no/such/folder"}, "INVALID_ARGUMENT"),
        ("agent.create", {"objective": "x", "provider": "nobody"}, "INVALID_ARGUMENT"),
        ("agent.create", {"objective": "x", "extra": 1}, "INVALID_ARGUMENT"),
        ("permission.list", {}, "INVALID_ARGUMENT"),
        (
            "tool.approve",
            {"sessionId": "session_none", "requestId": "r", "scope": "ever"},
            "INVALID_ARGUMENT",
        ),
    ],
)
def test_a_request_that_cannot_be_carried_out_says_why(
    shared: RunningDaemon, method: str, params: Json, code: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        shared.client().call(method, **params)
    error: Json = refusal.value.args[0]
    data: Json = error["data"]  # type: ignore[assignment]
    assert error["code"] == -32602
    assert data["code"] == code
    assert error["message"]


def start(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_home_that_is_a_link_or_open_to_all_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    ended = start(link)
    assert ended.returncode == 1
    assert "is a link" in ended.stderr
    real.chmod(0o777)
    ended = start(real)
    assert ended.returncode == 1
    assert "writable" in ended.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\nconections = 5\n", "limits.connections"),
        ("[limits]\nconnections = 'many'\n", "line 2"),
        ("[limits\n", "line 1"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path: Path, text: str, says: str) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "config.toml").write_text(text)
    ended = start(tmp_path)
    assert ended.returncode == 1
    assert says in ended.stderr


def test_a_stale_socket_and_pid_file_are_replaced(home: Path) -> None:
    home.chmod(0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(home / "daemon.sock"))
    left.close()
    (home / "daemon.pid").write_text("1\n")
    with daemon_in(home) as daemon:
        assert daemon.client().call("health.ping")["ok"] is True


def test_an_agents_own_command_cannot_speak_to_the_daemon(daemon: RunningDaemon) -> None:
    client = daemon.client()
    _, session = create_agent(client)
    client.call("session.attach", sessionId=session, clientId="c")
    code = (
        f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{daemon.socket}'); "
        's.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1.0.0"}}\\n\'); '
        "print(s.recv(9999).decode())"
    )
    script = [{"tool": "shell", "args": {"command": f'{sys.executable} -c "{code}"'}}]
    number = client.send(
        "message.send", sessionId=session, content="x", metadata={"script": script}
    )
    note = next_note(client, is_method("event.permission_request", session))
    client.call("tool.approve", sessionId=session, requestId=note["params"]["requestId"])  # type: ignore[index]
    client.answer(number)
    results = [
        json.dumps(note) for note in client.notes if "tool_call_completed" in json.dumps(note)
    ]
    assert results
    assert "CONNECTION_AUTHENTICATION_FAILED" in results[0] or "initialized" not in results[0]
