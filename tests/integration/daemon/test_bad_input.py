"""What bad input gets: a clear error of its own, and the daemon goes on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.daemon import Client, Json, Refusal
from tests.support.daemon import (
    RunningDaemon,
    create_agent,
    daemon_in,
    is_method,
    next_note,
    within,
)

pytestmark = pytest.mark.slow


def ask(client: Client, line: bytes) -> Json:
    client.sock.sendall(line + b"\n")
    return client.read()


def error_of(answer: Json) -> tuple[int, object]:
    error: Json = answer["error"]  # type: ignore[assignment]
    data: Json = error.get("data", {})  # type: ignore[assignment]
    return int(str(error["code"])), data.get("code")


PING = b'"jsonrpc":"2.0","id":1,"method":"health.ping"'

MALFORMED = {
    "not JSON": (b"{", -32700, None),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    "NaN": (b"{" + PING + b',"params":{"a":NaN}}', -32700, None),
    "too deep": (b"{" + PING + b',"params":' + b"[" * 5000 + b"]" * 5000 + b"}", -32700, None),
    "a batch": (b"[{" + PING + b"}]", -32600, None),
    "a scalar": (b"42", -32600, None),
    "no version": (b'{"id":1,"method":"health.ping"}', -32600, 1),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
    "a null id": (b'{"jsonrpc":"2.0","id":null,"method":"health.ping"}', -32600, None),
    "an empty id": (b'{"jsonrpc":"2.0","id":"","method":"health.ping"}', -32600, None),
    "a fraction as id": (b'{"jsonrpc":"2.0","id":1.5,"method":"health.ping"}', -32600, None),
    "a list as id": (b'{"jsonrpc":"2.0","id":[1],"method":"health.ping"}', -32600, None),
    "an extra member": (b"{" + PING + b',"extra":1}', -32600, 1),
    "an unknown method": (b'{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601, 1),
    "a method for later": (b'{"jsonrpc":"2.0","id":1,"method":"daemon.reload"}', -32601, 1),
    "params that are a list": (b"{" + PING + b',"params":[]}', -32602, 1),
    "params that are null": (b"{" + PING + b',"params":null}', -32602, 1),
    "an extra param": (b"{" + PING + b',"params":{"x":1}}', -32602, 1),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_input_is_answered_and_the_connection_stays_usable(
    shared: RunningDaemon, case: str
) -> None:
    line, code, number = MALFORMED[case]
    client = shared.client()
    answer = ask(client, line)
    assert error_of(answer)[0] == code
    assert answer["id"] == number
    assert client.call("health.ping")["ok"] is True


@pytest.fixture(scope="module")
def shared() -> object:
    import shutil
    import tempfile

    home = Path(tempfile.mkdtemp(prefix="roost-"))
    with daemon_in(home) as daemon:
        yield daemon
    shutil.rmtree(home, ignore_errors=True)


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


def test_a_second_initialize_is_refused_and_a_version_can_be_tried_again(
    shared: RunningDaemon,
) -> None:
    client = Client(shared.socket, initialize=False)
    shared.clients.append(client)
    with pytest.raises(Refusal) as refusal:
        client.call("initialize", protocolVersion="1.2.0")
    error: Json = refusal.value.args[0]
    assert error["data"]["serverVersion"] == "1.0.0"  # type: ignore[index]
    answer = client.call("initialize", protocolVersion="1.0.0")
    methods = within(answer, "capabilities", "daemon.methods")
    assert len(methods) == 42
    assert methods["message.send"] is True
    assert methods["daemon.reload"] is False
    with pytest.raises(Refusal):
        client.call("initialize", protocolVersion="1.0.0")
    assert client.call("health.ping")["ok"] is True


def test_the_first_message_must_initialize(shared: RunningDaemon) -> None:
    client = Client(shared.socket, initialize=False)
    shared.clients.append(client)
    answer = ask(client, b"{" + PING + b"}")
    assert error_of(answer)[0] == -32000
    with pytest.raises(ConnectionError):
        client.read()


def websocket_head(daemon: RunningDaemon, **headers: str) -> bytes:
    url = json.loads((daemon.home / "daemon.json").read_text())["websocket"]
    host, _, port = url.removeprefix("ws://").rstrip("/").rpartition(":")
    lines = {
        "Host": f"{host}:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **headers,
    }
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        sock.sendall(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
        return sock.recv(65536)


def test_a_foreign_origin_or_host_is_refused_before_the_upgrade(shared: RunningDaemon) -> None:
    assert websocket_head(shared).startswith(b"HTTP/1.1 101")
    assert websocket_head(shared, Origin="http://localhost:3000").startswith(b"HTTP/1.1 101")
    for origin in ("https://evil.example", "null", "https://localhost"):
        assert websocket_head(shared, Origin=origin).startswith(b"HTTP/1.1 403")
    assert websocket_head(shared, Host="evil.example").startswith(b"HTTP/1.1 4")


def start(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_second_daemon_on_the_same_home_is_refused(shared: RunningDaemon) -> None:
    ended = start(shared.home)
    assert ended.returncode == 1
    assert "already" in ended.stderr
    assert shared.client().call("health.ping")["ok"] is True


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


def test_cookie_and_socket_are_the_owners_only(shared: RunningDaemon) -> None:
    for name, mode in {"daemon.cookie": 0o600, "daemon.sock": 0o600, ".": 0o700}.items():
        assert os.stat(shared.home / name).st_mode & 0o777 == mode
    assert len((shared.home / "daemon.cookie").read_text().strip()) == 64


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
