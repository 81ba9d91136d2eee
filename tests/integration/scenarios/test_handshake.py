from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Json
from tests.support.daemon import RunningDaemon, daemon_in, within
from tests.support.scenarios import (
    brief,
    http,
    lines,
    refused,
    request,
    silent,
    web_socket,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

UNAUTHENTICATED = (
    -32000,
    "CONNECTION_AUTHENTICATION_FAILED",
    "daemon connection authentication failed",
)
NOT_INITIALIZED = (-32000, "CONNECTION_NOT_INITIALIZED", "Not initialized")
HANDSHAKE_SECONDS = 5.0

Silent = list[tuple[Client, float]]


@pytest.fixture(scope="module")
def shared(shared_home: Path, settings: tuple[str, ...]) -> Iterator[RunningDaemon]:
    """A daemon whose home and cookie were left open to others by somebody."""
    shared_home.chmod(0o755)
    (shared_home / "daemon.cookie").write_text("ab" * 32 + "\n")
    (shared_home / "daemon.cookie").chmod(0o644)
    with daemon_in(shared_home, *settings) as running:
        yield running


@pytest.fixture(scope="module")
def waiting(shared: RunningDaemon) -> Silent:
    """Connections on which nothing is said, or nothing but a part of a line."""
    began = time.monotonic()
    found = [silent(shared), silent(shared)]
    found[1].sock.sendall(b'{"jsonrpc": "2.0"')
    return [(client, began) for client in found]


WRONG_FIRST = {
    "a request": request(1, "health.ping"),
    "a message": request("a", "message.send", sessionId="s", content="x"),
    "a cancel": request(1, "request.cancel", requestId=2),
    "a decision": request(1, "tool.approve", sessionId="s", requestId="r"),
    "an answer": request(1, "elicitation.respond", sessionId="s", requestId="r"),
    "an unknown method": request(1, "no.such"),
    "no JSON": b"what",
    "a batch": b"[]",
    "no cookie": request(1, "initialize", protocolVersion="1.0.0"),
    "a wrong cookie": request(1, "initialize", protocolVersion="1.0.0", authCookie="0" * 64),
    "wrong params": request(1, "initialize", authCookie="0" * 64),
}


@pytest.mark.parametrize("case", WRONG_FIRST)
@pytest.mark.usefixtures("waiting")
def test_scenario_01_a_wrong_first_message_closes_with_the_authentication_error(
    shared: RunningDaemon, case: str
) -> None:
    """Where the transport does not say who the peer is."""
    with web_socket(shared.home) as web:
        web.send(WRONG_FIRST[case].rstrip(b"\n"))
        cookie = (shared.home / "daemon.cookie").read_text()
        web.send(request(2, "initialize", protocolVersion="1.0.0", authCookie=cookie))
        assert brief(within(web.read(), "error")) == UNAUTHENTICATED
        assert web.close_code() == 1008


def test_scenario_01_where_the_peer_is_known_a_wrong_first_method_is_only_refused(
    shared: RunningDaemon,
) -> None:
    client = silent(shared)
    assert brief(refused(client, "health.ping")) == NOT_INITIALIZED
    assert brief(refused(client, "tool.deny", sessionId="s", requestId="r")) == NOT_INITIALIZED
    assert brief(refused(client, "no.such"))[0] == -32601
    client.initialize()
    assert client.call("health.ping")["ok"] is True


ACCEPTED = ("1.0", "1.0.0", "1.0.7", "1.0.123")
REFUSED = (
    "1.1",
    "2.0",
    "0.9",
    "1",
    "v1.0",
    "1.0.0-beta",
    "1.0.0.0",
    " 1.0",
    "1.0\n",
    "1.-0",
    "1.x",
    "\u0967.\u0966",
)


@pytest.mark.parametrize("member", ["protocolVersion", "protocol"])
def test_scenario_02_the_table_of_versions(shared: RunningDaemon, member: str) -> None:
    def params(version: str) -> Json:
        return {member: {"version": version} if member == "protocol" else version}

    for version in ACCEPTED:
        client = silent(shared)
        # What is refused leaves the connection usable, so another version can be tried.
        for wrong in REFUSED:
            error = refused(client, "initialize", **params(wrong))
            assert brief(error) == (
                -32000,
                "PROTOCOL_VERSION_UNSUPPORTED",
                "Unsupported protocol version",
            )
            data = within(error, "data")
            assert (data["clientVersion"], data["serverVersion"]) == (wrong, "1.0.0")
        result = client.call("initialize", **params(version))
        assert result["protocolVersion"] == within(result, "protocol")["version"] == "1.0.0"
        assert result["type"] == "initialized"


def test_scenario_02_a_version_must_be_said_and_be_one(shared: RunningDaemon) -> None:
    client = silent(shared)
    assert brief(refused(client, "initialize")) == (
        -32602,
        "INVALID_ARGUMENT",
        "initialize requires protocol.version or protocolVersion",
    )
    both: Json = {"protocolVersion": "1.0.0", "protocol": {"version": "1.0"}}
    assert brief(refused(client, "initialize", **both)) == (
        -32602,
        "INVALID_ARGUMENT",
        "initialize protocolVersion must match protocol.version",
    )
    assert brief(refused(client, "initialize", protocolVersion=1)) == (
        -32602,
        "INVALID_ARGUMENT",
        "initialize param 'protocolVersion' must be a string",
    )
    result = client.call(
        "initialize",
        protocolVersion="1.0.0",
        protocol={"version": "1.0.0"},
        clientName="scenario",
        capabilities={"unknown.thing": True, "other": 5},
    )
    methods = within(result, "capabilities", "daemon.methods")
    assert len(methods) == 42
    assert all(isinstance(wired, bool) for wired in methods.values())
    limits = within(result, "capabilities", "daemon.limits")
    assert limits["maxMessageBytes"] == 16_777_216
    assert within(result, "daemonIdentity")["pid"] == shared.root_pid


def test_scenario_03_a_second_initialize_is_refused(shared: RunningDaemon) -> None:
    client = shared.client()
    expected = (-32000, "CONNECTION_ALREADY_INITIALIZED", "Already initialized")
    assert brief(refused(client, "initialize", protocolVersion="1.0.0")) == expected
    # The version is looked at only behind that.
    assert brief(refused(client, "initialize", protocolVersion="9.9")) == expected
    assert brief(refused(client, "initialize"))[0] == -32602
    assert client.call("health.ping")["ok"] is True


def test_scenario_04_requests_behind_initialize_in_one_write_come_after_it(
    shared: RunningDaemon,
) -> None:
    client = silent(shared)
    client.sock.sendall(
        request("first", "initialize", protocolVersion="1.0.0")
        + request(1, "agent.list")
        + request("1", "health.ping")
    )
    answers = lines(client, 3)
    assert answers[0]["id"] == "first"
    assert sorted(map(str, (answer["id"] for answer in answers[1:]))) == ["1", "1"]
    assert {type(answer["id"]) for answer in answers[1:]} == {int, str}
    assert all("result" in answer for answer in answers)


def test_scenario_06_the_cookie_is_repaired_and_kept(shared: RunningDaemon) -> None:
    cookie = shared.home / "daemon.cookie"
    assert cookie.stat().st_mode & 0o777 == 0o600
    assert shared.home.stat().st_mode & 0o777 == 0o700
    assert cookie.read_text() == "ab" * 32 + "\n"
    assert (shared.home / "daemon.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["a link", "a folder"])
def test_scenario_06_a_cookie_that_is_no_regular_file_is_refused(home: Path, what: str) -> None:
    home.chmod(0o700)
    if what == "a link":
        (home / "secret").write_text("cd" * 32 + "\n")
        (home / "daemon.cookie").symlink_to(home / "secret")
    else:
        (home / "daemon.cookie").mkdir()
    argv = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "daemon.cookie" in ended.stderr
    assert not (home / "daemon.sock").exists()


def test_scenario_06_an_empty_cookie_is_replaced(home: Path) -> None:
    home.chmod(0o700)
    (home / "daemon.cookie").write_text("\n")
    with daemon_in(home) as daemon:
        assert daemon.client().call("health.ping")["ok"] is True
    made = (home / "daemon.cookie").read_text()
    assert len(made) == 65
    assert set(made.strip()) <= set("0123456789abcdef")


ORIGINS = {
    None: 101,
    "http://localhost": 101,
    "http://localhost:3000": 101,
    "http://127.0.0.1:80": 101,
    "http://[::1]:8000": 101,
    "null": 403,
    "https://localhost": 403,
    "https://127.0.0.1": 403,
    "https://agenc.tech": 403,
    "http://localhost.evil.example": 403,
    "http://evil.example": 403,
    "http://127.0.0.1.evil.example": 403,
    "http://user@localhost": 403,
    "": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_scenario_07_the_table_of_origins(shared: RunningDaemon, origin: str | None) -> None:
    headers = [] if origin is None else [f"Origin: {origin}"]
    answer = http(shared.home, "GET / HTTP/1.1", *headers, upgrade=True)
    assert answer.startswith(f"HTTP/1.1 {ORIGINS[origin]} ")
    if ORIGINS[origin] == 403:
        assert answer.rstrip().endswith("origin rejected")


def test_scenario_07_a_repeated_origin_and_a_foreign_host_are_refused(
    shared: RunningDaemon,
) -> None:
    for origins in (["http://localhost", "http://evil.example"], ["http://evil.example"] * 2):
        headers = [f"Origin: {origin}" for origin in origins]
        answer = http(shared.home, "GET / HTTP/1.1", *headers, upgrade=True)
        assert answer.split()[1] in {"400", "403"}
    answer = http(shared.home, "GET / HTTP/1.1", "Host: evil.example", upgrade=True)
    assert answer.split()[1] in {"400", "403", "421"}


def test_scenario_07_plain_http(shared: RunningDaemon) -> None:
    def got(first: str) -> tuple[str, str]:
        head, _, body = http(shared.home, first).partition("\r\n\r\n")
        return head.split()[1], body

    assert got("GET /healthz HTTP/1.1") == ("200", "ok\n")
    assert got("GET /readyz HTTP/1.1") == ("200", "ok\n")
    assert got("GET /other HTTP/1.1") == ("404", "not found\n")
    assert got("POST /healthz HTTP/1.1") == ("405", "method not allowed\n")
    upgrade = http(shared.home, "GET /other HTTP/1.1", upgrade=True)
    assert upgrade.startswith("HTTP/1.1 404 ")


PING = b'"jsonrpc":"2.0","id":1,"method":"health.ping"'
DEEP = b"{" + PING + b',"params":{"a":' + b"[" * 129 + b"]" * 129 + b"}}"
# What came, and the code, the code of its data and the id of its answer.
MALFORMED: dict[str, tuple[bytes, tuple[int, str, object]]] = {
    "not JSON": (b"{", (-32700, "PARSE_ERROR", None)),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', (-32700, "PARSE_ERROR", None)),
    "NaN": (b"{" + PING + b',"params":{"a":NaN}}', (-32700, "PARSE_ERROR", None)),
    "Infinity": (b"{" + PING + b',"params":{"a":-Infinity}}', (-32700, "PARSE_ERROR", None)),
    "nested too deeply": (DEEP, (-32700, "PARSE_ERROR", None)),
    "a batch": (b"[{" + PING + b"},{" + PING + b"}]", (-32600, "BATCH_UNSUPPORTED", None)),
    "an empty batch": (b"[]", (-32600, "BATCH_UNSUPPORTED", None)),
    "a number": (b"42", (-32600, "INVALID_REQUEST", None)),
    "a text": (b'"x"', (-32600, "INVALID_REQUEST", None)),
    "nothing": (b"null", (-32600, "INVALID_REQUEST", None)),
    "an empty object": (b"{}", (-32600, "INVALID_REQUEST", None)),
    "no version": (b'{"id":1,"method":"health.ping"}', (-32600, "INVALID_REQUEST", 1)),
    "another version": (
        b'{"jsonrpc":"1.0","id":"a","method":"health.ping"}',
        (-32600, "INVALID_REQUEST", "a"),
    ),
    "no method": (b'{"jsonrpc":"2.0","id":1}', (-32600, "INVALID_REQUEST", 1)),
    "a number as method": (b'{"jsonrpc":"2.0","id":1,"method":1}', (-32600, "INVALID_REQUEST", 1)),
    "a null id": (
        b'{"jsonrpc":"2.0","id":null,"method":"health.ping"}',
        (-32600, "INVALID_REQUEST", None),
    ),
    "an empty id": (
        b'{"jsonrpc":"2.0","id":"","method":"health.ping"}',
        (-32600, "INVALID_REQUEST", None),
    ),
    "a fraction as id": (
        b'{"jsonrpc":"2.0","id":1.5,"method":"health.ping"}',
        (-32600, "INVALID_REQUEST", None),
    ),
    "an unknown member": (b"{" + PING + b',"extra":1}', (-32600, "INVALID_REQUEST", 1)),
    "an unknown method": (
        b'{"jsonrpc":"2.0","id":1,"method":"no.such"}',
        (-32601, "METHOD_NOT_FOUND", 1),
    ),
    "params that are a list": (b"{" + PING + b',"params":[]}', (-32602, "INVALID_ARGUMENT", 1)),
    "params that are null": (b"{" + PING + b',"params":null}', (-32602, "INVALID_ARGUMENT", 1)),
    "an unknown param": (b"{" + PING + b',"params":{"x":1}}', (-32602, "INVALID_ARGUMENT", 1)),
}
MESSAGES = {
    "not JSON": "invalid JSON",
    "a batch": "batch requests are not supported",
    "no version": "invalid JSON-RPC version",
    "no method": "missing daemon method",
    "a null id": "missing daemon request id",
    "an unknown method": "unknown daemon method: no.such",
    "params that are a list": "daemon request params must be an object",
    "an unknown param": "health.ping does not accept param 'x'",
}


@pytest.fixture(scope="module")
def patient(shared: RunningDaemon) -> Client:
    """One connection for all that is malformed."""
    return shared.client()


@pytest.mark.parametrize("case", MALFORMED)
def test_scenario_08_what_is_malformed_is_answered_once_and_the_connection_goes_on(
    patient: Client, case: str
) -> None:
    line, (code, data_code, number) = MALFORMED[case]
    patient.sock.sendall(line + b"\n" + request("after", "health.ping"))
    first, second = lines(patient, 2)
    assert first["id"] == number
    error = within(first, "error")
    assert error["code"] == code
    assert within(error, "data")["code"] == data_code
    if case in MESSAGES:
        assert error["message"] == MESSAGES[case]
    assert second["id"] == "after"
    assert within(second, "result")["ok"] is True


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \t ",
        b"\r",
        b'{"jsonrpc":"2.0","method":"agent.list"}',
        b'{"jsonrpc":"2.0","method":"no.such","params":[1]}',
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}',
    ],
)
def test_scenario_08_what_needs_no_answer_gets_none(patient: Client, line: bytes) -> None:
    patient.sock.sendall(line + b"\n" + request("after", "health.ping"))
    assert patient.read()["id"] == "after"


def test_scenario_08_duplicate_keys_and_line_ends_are_as_in_json(patient: Client) -> None:
    patient.sock.sendall(
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"no","method":"health.ping"}\r\n'
    )
    assert patient.read()["id"] == 2
    patient.sock.sendall(request(12345678901234567890, "health.ping"))
    assert patient.read()["id"] == 12345678901234567890


def test_scenario_05_a_silent_connection_is_dropped_after_its_time(
    shared: RunningDaemon, waiting: Silent
) -> None:
    spoken = shared.client()
    for client, began in waiting:
        with pytest.raises(ConnectionError):
            client.read()
        assert time.monotonic() - began >= HANDSHAKE_SECONDS
    assert spoken.call("health.ping")["ok"] is True
    assert json.loads((shared.home / "daemon.json").read_text())["pid"] == shared.root_pid
