"""A load on a newline JSON socket: many connections, a fixed number of requests in flight on each, for some seconds.

The client counts lines and decodes only the first answer of each connection, so that its own cost stays small; it
runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple

from bench.daemon import Client

if TYPE_CHECKING:
    import socket

WARM_UP = 0.5
FIRST_ID = 100
_ID = re.compile(rb'"id":(\d+)')


class Rate(NamedTuple):
    """Answers a second, and the 50th and 99th percentile of the time to an answer in milliseconds."""

    per_second: float
    p50_ms: float
    p99_ms: float


def measure(
    path: str, line: bytes, *, connections: int, in_flight: int, seconds: float, daemon: bool
) -> Rate:
    """Measure in a forked process; `line` holds `%d` for the request's id."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            rate = _run(path, line, connections, in_flight, seconds, daemon)
            os.write(write, json.dumps(rate).encode())
            status = 0
        except BaseException:  # noqa: BLE001 - the child's last frame
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    try:
        data = os.read(read, 65536)
    finally:
        os.close(read)
        os.waitpid(pid, 0)
    return Rate(*json.loads(data))


def _connect(path: str, first: bytes, daemon: bool) -> socket.socket:
    client = Client(path, initialize=daemon)
    client.sock.sendall(first)
    answer = json.loads(client.file.readline())
    if "error" in answer:
        raise RuntimeError(f"refused: {answer['error']}")
    return client.sock


def _run(
    path: str, line: bytes, connections: int, in_flight: int, seconds: float, daemon: bool
) -> Rate:
    lines = [line % (number + FIRST_ID) for number in range(in_flight)]
    everything = b"".join(lines)
    socks: dict[int, socket.socket] = {}
    poll = select.epoll()
    for _ in range(connections):
        sock = _connect(path, lines[0], daemon)
        sock.setblocking(False)
        socks[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    rest = dict.fromkeys(socks, b"")
    start = time.perf_counter() + WARM_UP
    sent = dict.fromkeys(socks, start)
    for sock in socks.values():
        sock.send(everything)
    took: list[float] = []
    answers = 0
    now = 0.0
    while now < start + seconds:
        for fd, _ in poll.poll():
            data = socks[fd].recv(262_144)
            if not data:
                raise RuntimeError("the server closed a connection")
            now = time.perf_counter()
            whole, found, tail = (rest[fd] + data).rpartition(b"\n")
            rest[fd] = tail
            if not found:
                continue
            count = whole.count(b"\n") + 1
            if now > start:
                answers += count
                took.append(now - sent[fd])
            sent[fd] = now
            socks[fd].send(everything if count == in_flight else _same_ids(lines, whole))
    took.sort()
    p50, p99 = (took[int(len(took) * share)] * 1e3 for share in (0.5, 0.99))
    return Rate(answers / (now - start), p50, p99)


def _same_ids(lines: list[bytes], answered: bytes) -> bytes:
    """Return requests with the ids that were just answered, so that none is in flight twice."""
    ids = [int(_ID.search(line)[1]) for line in answered.split(b"\n")]  # type: ignore[index]
    return b"".join(lines[number - FIRST_ID] for number in ids)
