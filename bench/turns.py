"""How fast do 50 agents stream 200 scripted deltas each, durably?"""

from __future__ import annotations

import time

from bench.agents import create_agents
from bench.daemon import Client, Json, running_daemon
from bench.report import Figure, at_most

AGENTS = 50
DELTAS = 200
PIECE = "0123456789"


def script(deltas: int, interval_ms: float = 0, piece: str = PIECE) -> Json:
    """Return the metadata of a message that makes so many deltas."""
    say = {"say": piece * deltas, "chunks": deltas, "interval_ms": interval_ms}
    return {"script": [say]}


def streams(deltas: int, interval_ms: float = 0) -> tuple[float, int, str]:
    """Return seconds until all turns had ended, notifications received, and what went wrong (empty: nothing)."""
    with running_daemon() as daemon:
        client = daemon.client()
        agents = create_agents(client, AGENTS)
        sessions = [str(agent["sessionId"]) for agent in agents]
        for session in sessions:
            client.call("session.attach", sessionId=session, clientId="bench")
        _warm(daemon.socket, sessions)
        senders = [Client(daemon.socket) for _ in range(2)]
        client.notes.clear()
        start = time.perf_counter()
        for index, session in enumerate(sessions):
            senders[index % 2].send(
                "message.send",
                sessionId=session,
                content="go",
                clientMessageId="go",
                metadata=script(deltas, interval_ms),
            )
        text = dict.fromkeys(sessions, "")
        last: dict[str, int] = {}
        ended: set[str] = set()
        count, fault = 0, ""
        while len(ended) < AGENTS:
            note = client.read()
            if "method" not in note:
                continue
            params: Json = note["params"]  # type: ignore[assignment]
            session = str(params["sessionId"])
            count += 1
            fault = fault or _order(params, last, session)
            if note["method"] == "event.message_chunk":
                text[session] += str(params["delta"]) if params["messageId"] == "go" else ""
            elif text[session] and params.get("status") in {"idle", "error"}:
                ended.add(session)
        took = time.perf_counter() - start
        if any(said != PIECE * deltas for said in text.values()):
            fault = fault or "text was lost or doubled"
        for one in (client, *senders):
            one.close()
    return took, count, fault


def _order(params: Json, last: dict[str, int], session: str) -> str:
    sequence = params.get("sequence")
    metadata: Json = params.get("metadata", {})  # type: ignore[assignment]
    if not isinstance(sequence, int) or metadata.get("derived"):
        return ""
    before = last.get(session, sequence - 1)
    last[session] = sequence
    return "" if sequence == before + 1 else f"sequence {sequence} after {before}"


def _warm(socket: str, sessions: list[str]) -> None:
    """Have every agent's process up before the clock starts."""
    client = Client(socket)
    for first in range(0, len(sessions), 25):
        numbers = [
            client.send("message.send", sessionId=session, content="hello")
            for session in sessions[first : first + 25]
        ]
        for number in numbers:
            client.answer(number)
    client.close()


def run() -> list[Figure]:
    runs = sorted(streams(DELTAS) for _ in range(3))
    took, count, _ = runs[1]
    fault = next((fault for _, _, fault in runs if fault), "")
    figure = at_most(
        f"{AGENTS} agents × {DELTAS} deltas, durable (median of 3; {count} notifications)",
        took,
        1.0,
        "s",
    )
    exact = Figure("… in order, nothing lost or doubled", fault or "yes", met=not fault)
    return [figure, exact]
