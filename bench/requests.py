"""How many short requests a second does the Unix socket answer, against the floor?"""

from __future__ import annotations

from bench.daemon import running_daemon, running_floor
from bench.load import measure
from bench.report import Figure, ratio

PING = b'{"jsonrpc":"2.0","id":%d,"method":"health.ping","params":{}}\n'
SECONDS = 3.0


def run() -> list[Figure]:
    cases = {"64 clients": (64, 1, 0.4), "1 client, 32 in flight": (1, 32, 0.6)}
    with running_floor() as floor:
        floors = {
            name: measure(floor, PING, connections=c, in_flight=f, seconds=SECONDS, daemon=False)
            for name, (c, f, _) in cases.items()
        }
    figures: list[Figure] = []
    with running_daemon() as daemon:
        for name, (connections, in_flight, least) in cases.items():
            rate = measure(
                daemon.socket,
                PING,
                connections=connections,
                in_flight=in_flight,
                seconds=SECONDS,
                daemon=True,
            )
            title = f"health.ping, {name} (p50 {rate.p50_ms:.2f} ms, p99 {rate.p99_ms:.2f} ms)"
            figures.append(ratio(title, rate.per_second, floors[name].per_second, least))
    return figures
