"""How many notifications a second does one session deliver to 50 clients?

Deltas are merged while an append is under way, up to 4,096 bytes; pieces of that size stay events of their own.
"""

from __future__ import annotations

import select
import statistics
import time

from bench.agents import create_agents, wait_idle
from bench.daemon import Client, running_daemon, running_floor
from bench.report import Figure, at_least
from bench.turns import script

CLIENTS = 50
EVENTS = 2_000
ROUNDS = 3
MESSAGES = 16
PIECES = 60
BEFORE = 4  # accepted, the user's message, running, reasoning
AFTER = 2  # the whole text, idle
PIECE = "x" * 4_096


class Readers:
    """Connections that only count the lines that come; they look at nothing, so that they do not hold up what is measured."""

    def __init__(self, clients: list[Client]) -> None:
        self._socks = {client.sock.fileno(): client.sock for client in clients}
        self._poll = select.epoll()
        self._counts = dict.fromkeys(self._socks, 0)
        for fd, sock in self._socks.items():
            sock.setblocking(False)
            self._poll.register(fd, select.EPOLLIN)

    def until(self, lines: int) -> float:
        """Read until each connection has had so many lines; return the seconds from the first of it to the last."""
        first = 0.0
        while min(self._counts.values()) < lines:
            ready = self._poll.poll(30)
            first = first or time.perf_counter()
            for fd, _ in ready:
                self._counts[fd] += self._socks[fd].recv(262_144).count(b"\n")
        return time.perf_counter() - first

    def begin(self) -> None:
        """Count from nothing again."""
        self._counts = dict.fromkeys(self._socks, 0)


def _floor() -> float:
    with running_floor() as path:
        clients = [Client(path, initialize=False) for _ in range(CLIENTS)]
        for client in clients:
            client.call("attach")
        asking = Client(path, initialize=False)
        readers = Readers(clients)
        asking.send("burst", n=EVENTS)
        took = readers.until(EVENTS)
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
        readers = Readers(clients)
        took = 0.0
        for _ in range(MESSAGES):
            readers.begin()
            asking.send(
                "message.send",
                sessionId=agent["sessionId"],
                content="go",
                metadata=script(PIECES, piece=PIECE),
            )
            readers.until(BEFORE)
            took += readers.until(BEFORE + PIECES)
            readers.until(BEFORE + PIECES + AFTER)
        for client in (*clients, asking):
            client.close()
    return CLIENTS * MESSAGES * PIECES / took


def run() -> list[Figure]:
    floor = _floor()
    rate = statistics.median(_round() for _ in range(ROUNDS))
    title = f"fan-out of one session to {CLIENTS} Unix-socket clients, deliveries of 4.5 KiB"
    return [at_least(title, rate, 60_000, floor=f"{floor:,.0f}/s (of 0.2 KiB)")]
