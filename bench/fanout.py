"""How many notifications a second does one session deliver to 50 clients?

Deltas are merged while an append is under way, up to 4,096 bytes; pieces of that size stay events of their own.
"""

from __future__ import annotations

import os
import select
import statistics
import time
from typing import TYPE_CHECKING

from bench.agents import create_agents, wait_idle
from bench.daemon import Client, running_daemon, running_floor
from bench.report import Figure, at_least
from bench.turns import script

if TYPE_CHECKING:
    import socket

CLIENTS = 50
EVENTS = 2_000
ROUNDS = 3
MESSAGES = 16
PIECES = 60
PIECE = "x" * 4_096


def _count(socks: list[socket.socket], marker: bytes, expected: int) -> float:
    """Read all until each has had so many lines with the marker; return seconds from the first to the last."""
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in socks}
    for fd, sock in by_fd.items():
        sock.setblocking(False)
        poll.register(fd, select.EPOLLIN)
    counts = dict.fromkeys(by_fd, 0)
    tails = dict.fromkeys(by_fd, b"")
    first = 0.0
    while min(counts.values()) < expected:
        for fd, _ in poll.poll(30):
            data = by_fd[fd].recv(1 << 20)
            first = first or time.perf_counter()
            joined = tails[fd] + data
            counts[fd] += joined.count(marker) - tails[fd].count(marker)
            tails[fd] = joined[-len(marker) + 1 :]
    return time.perf_counter() - first


def _floor() -> float:
    with running_floor() as path:
        clients = [Client(path, initialize=False) for _ in range(CLIENTS)]
        for client in clients:
            client.call("attach")
        asking = Client(path, initialize=False)
        if os.fork() == 0:
            asking.send("burst", n=EVENTS)
            os._exit(0)
        took = _count([client.sock for client in clients], b"event.message_chunk", EVENTS)
        os.wait()
        for client in (*clients, asking):
            client.close()
    return CLIENTS * EVENTS / took


def _round() -> float:
    """Return the deliveries a second of one message's text after the other; all have all of it before the next."""
    with running_daemon() as daemon:
        asking = daemon.client()
        agent = create_agents(asking, 1, objective="hello")[0]
        wait_idle(asking, 1)
        clients = [daemon.client() for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            client.call("session.attach", sessionId=agent["sessionId"], clientId=f"c{number}")
        took = 0.0
        for _ in range(MESSAGES):
            asking.send(
                "message.send",
                sessionId=agent["sessionId"],
                content="go",
                metadata=script(PIECES, piece=PIECE),
            )
            took += _count([client.sock for client in clients], b'"event.message_chunk"', PIECES)
        for client in (*clients, asking):
            client.close()
    return CLIENTS * MESSAGES * PIECES / took


def run() -> list[Figure]:
    floor = _floor()
    rate = statistics.median(_round() for _ in range(ROUNDS))
    title = f"fan-out of one session to {CLIENTS} Unix-socket clients, deliveries of 4.5 KiB"
    return [at_least(title, rate, 60_000, floor=f"{floor:,.0f}/s (of 0.2 KiB)")]
