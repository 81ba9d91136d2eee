"""What do pages of threads and of a thread's items cost, with 10,000 threads and 1,000 items in one, and does memory stay?

The store's file is written by the store's own desk, then a daemon is started on it; times are those of a client.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import cast

import msgspec
import psutil
import uuid_utils

from bench.daemon import Client, end, start_daemon
from bench.report import Figure, at_most
from roost.schemas import event, turn
from tests.support.desk import Actor, Book
from tests.support.store import create_agent, final, tool_event
from tests.support.thread_client import ThreadClient

THREADS = 10_000
GROUP = 500
ITEMS = 1_000
# Of each turn: what was asked, a text, a call, a text.
TURN_ITEMS = 4
DELTAS = 20
PIECE = "some words of a stream, "
LARGE = "session_large"
ROUNDS = 100
WARM_ROUNDS = 20
LIST_MS, READ_MS, GROWTH_MIB = 5.0, 10.0, 8.0


def write_threads(home: Path, threads: int = THREADS, items: int = ITEMS) -> None:
    """Write the sessions, and the log of one."""
    home.mkdir(mode=0o700, exist_ok=True)
    book = Book(home)
    for first in range(0, threads - 1, GROUP):
        upto = min(first + GROUP, threads - 1)
        names = [f"{number:05d}" for number in range(first, upto)]
        book.write(*(("", create_agent(f"agent_{name}", f"session_{name}")) for name in names))
    book.ask(create_agent("agent_large", LARGE))
    actor = Actor(book, "agent_large", LARGE)
    for number in range(items // TURN_ITEMS):
        _write_turn(actor, number)
    book.close()


def _write_turn(actor: Actor, number: int) -> None:
    turn_id = actor.begin(turn_id=f"turn_{number:04d}")
    session_id, call_id = actor.session_id, f"call_{number}"
    events: list[event.AnyEvent] = []
    text = PIECE * DELTAS
    events += _deltas(session_id, turn_id)
    events.append(_said(event.AgentMessageCompleted, session_id, turn_id, content=text))
    args: dict[str, object] = {"path": "docs/threads.md", "text": "x" * 100}
    call = session_id, turn_id, call_id
    events += [
        tool_event(event.ToolCallRequested, *call, tool_args=args),
        tool_event(event.ToolCallStarted, *call),
        tool_event(event.ToolCallCompleted, *call, result={"bytes": 100}),
    ]
    events += _deltas(session_id, turn_id)
    drafts = [actor.draft(one) for one in events]
    done = msgspec.structs.replace(final(session_id, turn_id), content=text)
    drafts.append(actor.draft(done, turn.EndTurn(turn_id=turn_id, outcome="completed")))
    refused = [answer for answer in actor.send(*drafts) if isinstance(answer, str)]
    assert not refused, refused


def _deltas(session_id: str, turn_id: str) -> list[event.AnyEvent]:
    return [_said(event.AgentMessageDelta, session_id, turn_id, delta=PIECE) for _ in range(DELTAS)]


def _said(
    kind: type[event.AnyEvent], session_id: str, turn_id: str, **fields: object
) -> event.AnyEvent:
    named = {"id": str(uuid_utils.uuid7()), "session_id": session_id, "turn_id": turn_id}
    return kind(timestamp=time.time(), **named, **fields)  # type: ignore[arg-type]


def _times(
    client: ThreadClient, method: str, rounds: int = ROUNDS, **params: object
) -> list[float]:
    """Return the milliseconds from a request to the last byte of its answer; the client reads it as one line."""
    found: list[float] = []
    for number in range(rounds):
        request = {"id": f"page-{number}", "method": method, "params": params}
        line = json.dumps(request).encode() + b"\n"
        begin = time.perf_counter()
        client.sock.sendall(line)
        answer = client.file.readline()
        found.append((time.perf_counter() - begin) * 1e3)
        assert b'"result"' in answer[:64], answer[:200]
    return sorted(found)


def _memory(tree: list[dict[str, object]], *names: str) -> float:
    pids = [int(str(node["pid"])) for node in tree if node["childId"] in names]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**20


def measure(home: Path) -> list[Figure]:
    """Return the figures of a daemon on this home."""
    process, _ = start_daemon(home)
    path = str(home / "daemon.sock")
    try:
        client = ThreadClient(path)
        stats = Client(path)
        figures: list[Figure] = []
        pages = {
            "thread/list of 50, first": {"limit": 50},
            "thread/list of 50, from 5,000": {"limit": 50, "offset": 5_000},
            "thread/list of 50, last": {"limit": 50, "offset": THREADS - 50},
            "thread/list of 1,000": {},
        }
        for name, params in pages.items():
            times = _times(client, "thread/list", **params)
            bound = LIST_MS if "50" in name else 4 * LIST_MS
            figures.append(
                at_most(
                    f"{name} (p99 {times[-2]:.1f} ms), p50", times[len(times) // 2], bound, "ms"
                )
            )
        first = client.call("thread/read", threadId=LARGE)
        items = cast("list[dict[str, object]]", first["items"])
        assert len(items) == 500, len(items)
        after = items[-1]["id"]
        reads = {"first": None, "second": after, "middle": items[250]["id"]}
        for cursor in reads.values():
            # What the store may cache of the file is bounded by a setting; here it is filled once.
            _times(client, "thread/read", WARM_ROUNDS, threadId=LARGE, afterItemId=cursor)
        tree = stats.call("health.stats")["tree"]
        before = _memory(tree, "front", "store")  # type: ignore[arg-type]
        for name, cursor in reads.items():
            times = _times(client, "thread/read", threadId=LARGE, afterItemId=cursor)
            size = len(json.dumps(first)) / 1024
            title = (
                f"thread/read of 500 items, {name} ({size:.0f} KiB, p99 {times[-2]:.1f} ms), p50"
            )
            figures.append(at_most(title, times[len(times) // 2], READ_MS, "ms"))
        after_mib = _memory(tree, "front", "store")  # type: ignore[arg-type]
        title = (
            f"front and store after {3 * ROUNDS} such pages: {after_mib:.0f} MiB, more than before"
        )
        figures.append(at_most(title, max(after_mib - before, 0.0), GROWTH_MIB, "MiB"))
        client.close()
        stats.close()
        return figures
    finally:
        end(process)


def run() -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="roost-threads-"))
    try:
        write_threads(home)
        return measure(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
