"""How many short requests a second does the Unix socket answer, against the floor?"""

from __future__ import annotations

from bench.daemon import running_daemon, running_floor
from bench.load import Rate, measure
from bench.report import Figure

PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping","params":{}}\n'
SECONDS = 1.0
ROUNDS = 9
CASES = (("64 clients", 64, 1, 0.4), ("1 client, 32 in flight", 1, 32, 0.6))


def run() -> list[Figure]:
    return [_compare(*case) for case in CASES]


def _compare(name: str, connections: int, in_flight: int, least: float) -> Figure:
    """Measure floor and daemon by turns, so that both see the same machine; compare pair by pair."""
    with running_floor() as floor, running_daemon() as daemon:
        bare: list[Rate] = []
        ours: list[Rate] = []
        for _ in range(ROUNDS):
            for path, found, is_daemon in ((floor, bare, False), (daemon.socket, ours, True)):
                rate = measure(
                    path,
                    PING,
                    connections=connections,
                    in_flight=in_flight,
                    seconds=SECONDS,
                    daemon=is_daemon,
                )
                found.append(rate)
    middle = sorted(ours)[ROUNDS // 2]
    title = f"health.ping, {name} (p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms)"
    shares = sorted(a.per_second / b.per_second for a, b in zip(ours, bare, strict=True))
    return Figure(
        title,
        f"{middle.per_second:,.0f}/s",
        f"{sorted(bare)[ROUNDS // 2].per_second:,.0f}/s",
        f"{shares[ROUNDS // 2]:.2f} × floor, pair by pair {shares[0]:.2f} to {shares[-1]:.2f} (at least {least})",
        shares[ROUNDS // 2] >= least,
    )
