"""How many short requests a second does the WebSocket answer, against the Unix socket of the same daemon?"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.daemon import running_daemon
from bench.load import WARM_UP, measure
from bench.report import Figure

if TYPE_CHECKING:
    from bench.daemon import Daemon

PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping","params":{}}'
SECONDS = 1.0
ROUNDS = 5
CASES = ((64, 1), (8, 32))
LEAST = 0.3


def run() -> list[Figure]:
    with running_daemon("limits.tcp_rate=0") as daemon:
        return [_compare(daemon, *case) for case in CASES]


def _compare(daemon: Daemon, connections: int, in_flight: int) -> Figure:
    web: list[float] = []
    unix: list[float] = []
    for _ in range(ROUNDS):
        web.append(_rate(daemon, connections, in_flight))
        unix.append(
            measure(
                daemon.socket,
                PING + b"\n",
                connections=connections,
                in_flight=in_flight,
                seconds=SECONDS,
                daemon=True,
            ).per_second
        )
    shares = sorted(one / other for one, other in zip(web, unix, strict=True))
    share = shares[ROUNDS // 2]
    return Figure(
        f"health.ping on the WebSocket, {connections} clients with {in_flight} in flight",
        f"{sorted(web)[ROUNDS // 2]:,.0f}/s",
        f"{sorted(unix)[ROUNDS // 2]:,.0f}/s (Unix socket)",
        f"{share:.2f} × the Unix socket, pair by pair {shares[0]:.2f} to {shares[-1]:.2f} (at least {LEAST})",
        share >= LEAST,
    )


def _rate(daemon: Daemon, connections: int, in_flight: int) -> float:
    socks = [_connect(daemon) for _ in range(connections)]
    by_fd = {sock.fileno(): sock for sock in socks}
    poll = select.epoll()
    burst = b"".join(_frame(PING % number) for number in range(in_flight))
    open_now = dict.fromkeys(by_fd, in_flight)
    for sock in socks:
        poll.register(sock.fileno(), select.EPOLLIN)
        sock.sendall(burst)
    answers, start = 0, time.perf_counter() + WARM_UP
    now = 0.0
    while now < start + SECONDS:
        for fd, _ in poll.poll():
            data = by_fd[fd].recv(1 << 18)
            if not data:
                raise RuntimeError("the server closed a connection")
            now = time.perf_counter()
            # The answer's last bytes: none of them is counted twice or, but for one that is cut here, missed.
            count = data.count(b'Z"}}')
            answers += count if now > start else 0
            open_now[fd] -= count
            if open_now[fd] <= 0:
                open_now[fd] = in_flight
                by_fd[fd].sendall(burst)
    poll.close()
    for sock in socks:
        sock.close()
    return answers / (now - start)


def _connect(daemon: Daemon) -> socket.socket:
    """Return an upgraded and initialized connection."""
    found: dict[str, str] = json.loads((daemon.home / "daemon.json").read_text())
    url = urlsplit(found["websocket"])
    cookie = (daemon.home / "daemon.cookie").read_text().strip()
    sock = socket.create_connection((str(url.hostname), url.port or 0), 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    initialize = {"protocolVersion": "1.0.0", "authCookie": cookie}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}
    sock.sendall(
        f"GET {url.path or '/'} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        + _frame(json.dumps(request).encode())
    )
    data = b""
    while b'"daemonIdentity"' not in data or not data.endswith(b"}}}"):
        more = sock.recv(1 << 16)
        if not more:
            raise RuntimeError("the server refused")
        data += more
    return sock


def _frame(payload: bytes) -> bytes:
    """Return a client's frame, masked as a browser masks it."""
    size, mask = len(payload), os.urandom(4)
    head = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2)
    key = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload) ^ int.from_bytes(key)
    return b"\x81" + head + mask + masked.to_bytes(size)
