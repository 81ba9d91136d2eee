"""Hundreds of clients in one loop: each checks that the events of its sessions come in order and none is missing."""

from __future__ import annotations

import base64
import os
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec

from bench.daemon import Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

READ_BYTES = 1 << 18
SECONDS = 120.0


class _Inner(msgspec.Struct):
    type: str = ""


class _Params(msgspec.Struct, rename="camel"):
    session_id: str = ""
    sequence: int = 0
    metadata: Json = {}
    event: _Inner | None = None
    status: str = ""


class _Line(msgspec.Struct):
    id: int | None = None
    method: str = ""
    params: _Params | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class Member:
    """One connection. `last` holds up to where each session has come; `fault` says what was wrong first."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.last: dict[str, int] = {}
        self.gaps = 0
        self.carriers = 0
        self.fault = ""
        self.answers: dict[int, Json] = {}
        self.statuses: list[str] = []
        self.closed = False
        self._rest = b""
        self._number = 0

    def send(self, method: str, **params: object) -> int:
        """Send a request and return its id; the socket is blocking for as long as that takes."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.sock.settimeout(SECONDS)
        self.sock.sendall(self.frame(_encode(request)))
        self.sock.setblocking(False)
        return self._number

    def frame(self, message: bytes) -> bytes:
        """Return a message as it goes over the wire."""
        return message + b"\n"

    def read(self) -> None:
        """Read once and take what is complete."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        messages, self._rest = self.split(self._rest + data if self._rest else data)
        for message in messages:
            self._take(_decode(message))

    def split(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return the complete messages, and what is left."""
        *lines, rest = data.split(b"\n")
        return lines, rest

    def _take(self, line: _Line) -> None:
        params = line.params
        if params is None:
            if line.id is not None:
                error = bytes(line.error)
                body = b'{"error":%b}' % error if error else bytes(line.result)
                self.answers[line.id] = msgspec.json.decode(body)
            return
        if params.status:
            self.statuses.append(params.status)
        marks = params.metadata
        if not params.sequence or marks.get("derived") or marks.get("redelivered"):
            return
        session = params.session_id
        before = self.last.get(session)
        if params.event is not None and params.event.type == "event_gap":
            self.gaps += 1
        elif before is not None and params.sequence != before + 1 and not self.fault:
            self.fault = f"{session}: {params.sequence} follows {before}"
        self.last[session] = params.sequence
        self.carriers += 1


class WebMember(Member):
    """The same on a WebSocket."""

    def frame(self, message: bytes) -> bytes:
        size = len(message)
        assert size < 1 << 16
        length = struct.pack(">BH", 0xFE, size) if size > 125 else bytes((0x80 | size,))
        return b"\x81" + length + bytes(4) + message  # a mask of zeros changes nothing

    def split(self, data: bytes) -> tuple[list[bytes], bytes]:
        messages: list[bytes] = []
        at = 0
        while len(data) - at >= 2:
            size, head = data[at + 1], 2
            if size >= 126:
                head = 4 if size == 126 else 10
                if len(data) - at < head:
                    break
                size = int.from_bytes(data[at + 2 : at + head], "big")
            if len(data) - at < head + size:
                break
            if data[at] == 0x81:
                messages.append(data[at + head : at + head + size])
            at += head + size
        return messages, data[at:]


def unix_member(path: str) -> Member:
    """Return a connection to the Unix socket."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(SECONDS)
    sock.connect(path)
    return Member(sock)


def web_member(host: str, port: int) -> WebMember:
    """Return a connection to the WebSocket, upgraded."""
    sock = socket.create_connection((host, port), SECONDS)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        "GET / HTTP/1.1",
        f"Host: {host}:{port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
    )
    sock.sendall("\r\n".join((*lines, "", "")).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        more = sock.recv(1)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 101"), head
    return WebMember(sock)


class Crowd:
    """The loop that reads for all members that are not paused."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._selector = selectors.EpollSelector()
        self._paused: set[Member] = set()

    def add(self, member: Member) -> Member:
        """Read for a connection from now on."""
        self.members.append(member)
        member.sock.setblocking(False)
        self._selector.register(member.sock, selectors.EVENT_READ, member)
        return member

    def pause(self, members: Iterable[Member]) -> None:
        """Stop reading for these."""
        for member in members:
            self._paused.add(member)
            self._selector.unregister(member.sock)

    def resume(self, members: Iterable[Member]) -> None:
        """Read for these again."""
        for member in members:
            self._paused.discard(member)
            self._selector.register(member.sock, selectors.EVENT_READ, member)

    def run(self, until: Callable[[], object], seconds: float = SECONDS) -> float:
        """Read until the claim is true; return the seconds that took."""
        begin = time.perf_counter()
        while not until():
            assert time.perf_counter() - begin < seconds, "it did not come true in time"
            for key, _ in self._selector.select(0.5):
                member: Member = key.data
                member.read()
                if member.closed:
                    self._selector.unregister(member.sock)
        return time.perf_counter() - begin

    def reach(
        self, members: Iterable[Member], session: str, sequence: int, seconds: float = SECONDS
    ) -> float:
        """Read until all of these have come to a sequence; return the seconds that took."""
        waiting = list(members)

        def done() -> bool:
            while waiting and waiting[-1].last.get(session, 0) >= sequence:
                waiting.pop()
            return not waiting

        return self.run(done, seconds)

    def ask(self, members: Iterable[Member], method: str, **params: object) -> list[Json]:
        """Send every one of these the same request at once; return the answers in their order."""
        asked = [(member, member.send(method, **params)) for member in members]
        return self.collect(asked)

    def collect(self, asked: list[tuple[Member, int]]) -> list[Json]:
        """Read until all of these requests are answered; return the answers."""
        waiting = list(asked)

        def done() -> bool:
            while waiting and waiting[-1][1] in waiting[-1][0].answers:
                waiting.pop()
            return not waiting

        self.run(done)
        return [member.answers.pop(number) for member, number in asked]

    def close_members(self) -> None:
        """Close every connection."""
        for member in self.members:
            if member not in self._paused and not member.closed:
                self._selector.unregister(member.sock)
            member.sock.close()
        self.members.clear()
        self._paused.clear()

    def close(self) -> None:
        """Close every connection and the loop."""
        self.close_members()
        self._selector.close()

    def greet(self, members: Iterable[Member], **params: object) -> None:
        """Initialize these connections."""
        for answer in self.ask(members, "initialize", protocolVersion="1.0.0", **params):
            assert "error" not in answer, answer
