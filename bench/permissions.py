"""How many requests a second does the store answer that only read?"""

from __future__ import annotations

import json

from bench.agents import create_agents, wait_idle
from bench.daemon import running_daemon, running_floor
from bench.load import measure
from bench.report import Figure, at_least
from bench.requests import PING

AGENTS = 8


def run() -> list[Figure]:
    with running_floor() as floor:
        bare = measure(floor, PING, connections=64, in_flight=1, seconds=2.0, daemon=False)
    with running_daemon() as daemon:
        client = daemon.client()
        agents = create_agents(client, AGENTS, objective="hello")
        wait_idle(client, len(agents))
        agent_id = json.dumps(agents[0]["agentId"]).encode()
        line = (
            b'{"jsonrpc":"2.0","id":%d,"method":"permission.list","params":{"agentId":'
            + agent_id
            + b"}}\n"
        )
        rate = measure(daemon.socket, line, connections=64, in_flight=1, seconds=3.0, daemon=True)
        client.close()
    title = f"permission.list of an agent, 64 clients (p99 {rate.p99_ms:.1f} ms)"
    return [at_least(title, rate.per_second, 8_000, floor=f"{bare.per_second:,.0f}/s (ping)")]
