"""What scenarios ask of a real daemon besides a client: refusals with their code, raw lines, plain HTTP, approvals."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client, Json, Refusal
from tests.support.checked import check_message
from tests.support.daemon import RunningDaemon, is_method, next_note, within

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def refused(client: Client, method: str, **params: object) -> Json:
    """Return the error that a request is answered with."""
    return refusal(client, client.send(method, **params))


def refusal(client: Client, number: int) -> Json:
    """Return the error that answers a request which has been sent."""
    with pytest.raises(Refusal) as caught:
        client.answer(number)
    error: Json = caught.value.args[0]
    return error


def brief(error: Json) -> tuple[int, object, object]:
    """Return an error's code, the code in its data, and its message."""
    data: Json = error.get("data", {})  # type: ignore[assignment]
    return int(str(error["code"])), data.get("code"), error["message"]


def silent(daemon: RunningDaemon) -> Client:
    """Return a connection on which nothing has been said."""
    client = Client(daemon.socket, initialize=False)
    daemon.clients.append(client)
    return client


def lines(client: Client, count: int) -> list[Json]:
    """Return so many messages as they come."""
    return [client.read() for _ in range(count)]


def listed(answer: Json, name: str) -> list[Json]:
    """Return the list in an answer."""
    found: list[Json] = answer[name]  # type: ignore[assignment]
    return found


def request(number: object, method: str, **params: object) -> bytes:
    """Return a request as a line."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def asked(client: Client, session: str) -> Json:
    """Return the next request for a decision."""
    return within(next_note(client, is_method("event.permission_request", session)), "params")


def decide(client: Client, session: str, verb: str = "approve", **params: object) -> str:
    """Answer the next request for a decision; return its id."""
    request_id = str(asked(client, session)["requestId"])
    client.call(f"tool.{verb}", sessionId=session, requestId=request_id, **params)
    return request_id


def tcp_address(home: Path) -> tuple[str, int]:
    """Return host and port of the daemon's TCP port."""
    url: str = json.loads((home / "daemon.json").read_text())["websocket"]
    host, _, port = url.removeprefix("ws://").rstrip("/").rpartition(":")
    return host, int(port)


def http(home: Path, first: str = "GET / HTTP/1.1", *headers: str, upgrade: bool = False) -> str:
    """Send a request to the daemon's TCP port and return the answer, or its head for an upgrade."""
    host, port = tcp_address(home)
    head = [first]
    if not any(header.lower().startswith("host:") for header in headers):
        head.append(f"Host: {host}:{port}")
    if upgrade:
        head += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        head.append("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.sendall("\r\n".join([*head, *headers, "", ""]).encode())
        answer = b""
        while part := sock.recv(65536):
            answer += part
            if upgrade and answer.startswith(b"HTTP/1.1 101"):
                break
        return answer.decode()


class WebSocket:
    """A WebSocket with texts of up to 64 KiB; for what a client library would not send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")
        while self._file.readline().strip():
            pass

    def send(self, text: bytes) -> None:
        """Send one text."""
        short = len(text) < 126
        size = bytes([0x80 | len(text)]) if short else b"\xfe" + len(text).to_bytes(2, "big")
        self._sock.sendall(b"\x81" + size + bytes(4) + text)

    def read(self) -> Json:
        """Return the next text as JSON."""
        opcode, body = self._frame()
        assert opcode == 1
        message: Json = json.loads(body)
        check_message(message)
        return message

    def close_code(self) -> int:
        """Return with which code the server closes the connection, nothing else having come before."""
        opcode, body = self._frame()
        assert opcode == 8
        return int.from_bytes(body[:2], "big")

    def close(self) -> None:
        self._file.close()
        self._sock.close()

    def _frame(self) -> tuple[int, bytes]:
        first, size = self._file.read(2)
        if size >= 126:
            size = int.from_bytes(self._file.read(2 if size == 126 else 8), "big")
        return first & 15, self._file.read(size)


@contextlib.contextmanager
def web_socket(home: Path) -> Generator[WebSocket]:
    """Open a WebSocket of the daemon on which nothing has been said."""
    host, port = tcp_address(home)
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.sendall(
            f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        web = WebSocket(sock)
        try:
            yield web
        finally:
            web.close()
