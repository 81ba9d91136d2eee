"""What do ten streaming agents feel of a `kill -9` of an eleventh?"""

from __future__ import annotations

import os
import signal
import statistics
import time

from bench.agents import create_agents, wait_idle
from bench.daemon import Daemon, Json, running_daemon
from bench.report import Figure
from bench.turns import script

OTHERS = 10
PACE_MS = 10
SECONDS = 20
RUNS = 5


def run() -> list[Figure]:
    quiet = [_largest_gap(kill=False) for _ in range(RUNS)]
    disturbed = [_largest_gap(kill=True) for _ in range(RUNS)]
    calm, hit = statistics.median(quiet), statistics.median(disturbed)
    spread = ", ".join(f"{gap:.0f}" for gap in sorted(disturbed))
    return [
        Figure(
            f"largest gap of ten others ({PACE_MS} ms pace, {SECONDS} s) at a kill -9; runs: {spread}",
            f"{hit:.1f} ms",
            f"{calm:.1f} ms (undisturbed)",
            "median at most 2 × undisturbed, never over 100 ms",
            hit <= 2 * calm and max(disturbed) <= 100,
        )
    ]


def _largest_gap(*, kill: bool) -> float:
    """Return the largest time between two pieces of text of any of the ten, in milliseconds."""
    with running_daemon() as daemon:
        client = daemon.client()
        agents = create_agents(client, OTHERS + 1, objective="hello")
        wait_idle(client, OTHERS + 1)
        victim, others = agents[0], {str(agent["sessionId"]) for agent in agents[1:]}
        for agent in agents:
            client.call("session.attach", sessionId=agent["sessionId"], clientId="bench")
            client.send(
                "message.send",
                sessionId=agent["sessionId"],
                content="go",
                clientMessageId="go",
                metadata=script(SECONDS * 1000 // PACE_MS, PACE_MS),
            )
        pid = _pid(daemon, str(victim["agentId"]))
        kill_at = time.perf_counter() + SECONDS / 2
        last: dict[str, float] = {}
        largest = 0.0
        open_sessions = set(others)
        while open_sessions:
            note = client.notes.pop(0) if client.notes else client.read()
            now = time.perf_counter()
            if kill and now > kill_at:
                os.kill(pid, signal.SIGKILL)
                kill = False
            params: Json = note.get("params", {})  # type: ignore[assignment]
            session = str(params.get("sessionId"))
            if session not in others:
                continue
            if params.get("messageId") == "go" and "delta" in params:
                largest = max(largest, now - last.get(session, now))
                last[session] = now
            elif params.get("status") in {"idle", "error"} and session in last:
                open_sessions.discard(session)
        client.close()
    return largest * 1e3


def _pid(daemon: Daemon, agent_id: str) -> int:
    return next(int(str(n["pid"])) for n in daemon.tree() if n["childId"] == agent_id)
