"""How long do many agents take to be created and to begin, what do idle ones cost?"""

from __future__ import annotations

import os
import time

from bench.daemon import (
    Client,
    Daemon,
    Json,
    cpu_seconds,
    pss_bytes,
    running_daemon,
    wait_until,
)
from bench.report import Figure, at_most

MANY = 200
IDLE_SECONDS = 30.0


def create_agents(client: Client, count: int, **params: object) -> list[Json]:
    """Create agents with requests in flight together; return their records."""
    shared = {"metadata": {"sandbox": "dangerFullAccess"}, **params}
    if "objective" not in shared:
        shared |= {"objective": "wait for messages", "initialContent": []}
    numbers = [client.send("agent.create", **shared) for _ in range(count)]
    return [client.answer(number) for number in numbers]


def wait_idle(client: Client, count: int) -> None:
    """Wait until so many agents are idle."""
    wait_until(lambda: _statuses(client).count("idle") >= count)


def _statuses(client: Client) -> list[object]:
    agents: list[Json] = client.call("agent.list", limit=500)["agents"]  # type: ignore[assignment]
    return [agent["status"] for agent in agents]


def begun(client: Client, agents: list[Json]) -> float:
    """Return when the last agent's first turn had begun, watching every session."""
    waiting = {str(agent["sessionId"]) for agent in agents}
    for session in list(waiting):
        client.send("session.attach", sessionId=session, clientId="bench")
    while waiting:
        note = client.notes.pop(0) if client.notes else client.read()
        params: Json = note.get("params", {})  # type: ignore[assignment]
        event: Json = params.get("event", {})  # type: ignore[assignment]
        if event.get("type") == "user_message":  # the first event of a turn
            waiting.discard(str(params["sessionId"]))
    return time.perf_counter()


def creation() -> list[Figure]:
    bare = _bare_forks(100)
    times: list[float] = []
    for _ in range(3):
        with running_daemon() as daemon:
            client = daemon.client()
            start = time.perf_counter()
            agents = create_agents(client, 100, objective="hello")
            times.append(begun(client, agents) - start)
            client.close()
    title = "100 agents created and their first turn begun (median of 3)"
    return [at_most(title, sorted(times)[1], 1.5, "s", f"{bare:.2f} s (100 bare forks)")]


def _bare_forks(count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return time.perf_counter() - start


def idle() -> list[Figure]:
    with running_daemon("agents.idle_timeout=0") as daemon:
        client = daemon.client()
        start = time.perf_counter()
        agents = create_agents(client, MANY)
        numbers = [
            client.send("message.send", sessionId=agent["sessionId"], content="hello")
            for agent in agents[:32]
        ]
        answered = [client.answer(number) for number in numbers]
        for first in range(32, MANY, 32):
            numbers = [
                client.send("message.send", sessionId=agent["sessionId"], content="hello")
                for agent in agents[first : first + 32]
            ]
            answered += [client.answer(number) for number in numbers]
        took = time.perf_counter() - start
        completed = sum(answer.get("outcome") == "completed" for answer in answered)
        client.close()
        return [
            Figure(
                f"{MANY} agents created, each sent one message",
                f"{completed} answered in {took:.1f} s",
                bound=f"all {MANY}",
                met=completed == MANY,
            ),
            *_idle_cost(daemon),
        ]


def _idle_cost(daemon: Daemon) -> list[Figure]:
    pids = [int(str(node["pid"])) for node in daemon.tree() if node["parent"] == "agents"]
    time.sleep(2)
    shares = sorted(pss_bytes(pid) for pid in pids)
    before = cpu_seconds(daemon.root_pid)
    time.sleep(IDLE_SECONDS)
    used = (cpu_seconds(daemon.root_pid) - before) / IDLE_SECONDS * 100
    mean = sum(shares) / len(shares) / 2**20
    return [
        at_most(f"PSS of an idle agent, mean of {len(pids)}", mean, 5.0, "MiB"),
        at_most(
            f"root's CPU over {IDLE_SECONDS:.0f} s with {len(pids)} idle agents", used, 1.0, "%"
        ),
    ]
