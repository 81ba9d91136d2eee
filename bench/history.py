"""What do 1,000,000 events over 1,000 sessions cost: at the daemon's start, in a page of them, and on the disk?

The store's own process writes them, from 50 sessions at once, so that the events of one session lie far apart in the
file.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.daemon import end, kill_all, start_daemon
from bench.report import Figure, at_most
from bench.store import Writer, frame, running_store
from roost.schemas import session, turn
from roost.schemas.base import SessionId

SESSIONS = 1_000
AT_ONCE = 50
TURNS = 10
TURN_EVENTS = 100
# The event of the session's creation is one of them.
EVENTS = TURNS * TURN_EVENTS
SLICE = 4
STARTS = 3
MORE_SECONDS = 2.0
PAGE = 200
PAGES = 300
PAGE_MS = 5.0
PIECE = "some text of a stream, as a model would write it"


def write_history(home: Path, sessions: int = SESSIONS) -> None:
    """Write the events into a new store."""
    with running_store(home) as store:
        for first in range(0, sessions, AT_ONCE):
            writers = [store.writer(first + number) for number in range(AT_ONCE)]
            for number in range(TURNS):
                store.accept(writers)
                events = TURN_EVENTS - (number == 0)
                _write_turns(writers, events)
            store.leave(writers)


def _write_turns(writers: list[Writer], events: int) -> None:
    turns: list[list[bytes]] = []
    ends: list[str] = []
    for writer in writers:
        deltas = [
            writer.draft("agent.message.delta", durable=False, delta=PIECE)
            for _ in range(events - 2)
        ]
        drafts = [writer.begin(), *deltas, writer.finish(PIECE * len(deltas))]
        turns.append([frame(draft) for draft in drafts])
        ends.append(drafts[-1].event_id)
    for at in range(0, events, SLICE):
        for writer, frames in zip(writers, turns, strict=True):
            writer.sock.sendall(b"".join(frames[at : at + SLICE]))
    for writer, last in zip(writers, ends, strict=True):
        while writer.until(turn.Acked).event_id != last:
            pass


class Starts(NamedTuple):
    """Seconds from the start of guard until the daemon is ready."""

    empty: list[float]
    clean: list[float]
    unclean: list[float]


def _start(home: Path, *, unclean: bool) -> float:
    """Return how long a start takes; afterwards the daemon is stopped, or killed whole."""
    begin = time.perf_counter()
    process, _ = start_daemon(home)
    took = time.perf_counter() - begin
    if unclean:
        kill_all(process)
    else:
        end(process)
    return took


def _starts(full: Path) -> Starts:
    """Take turns, so that all of them see the same machine."""
    starts = Starts([], [], [])
    empty = Path(tempfile.mkdtemp(prefix="roost-empty-"))
    try:
        _start(empty, unclean=False)
        _start(full, unclean=False)
        for _ in range(STARTS):
            starts.empty.append(_start(empty, unclean=False))
            starts.clean.append(_start(full, unclean=True))
            starts.unclean.append(_start(full, unclean=False))
    finally:
        shutil.rmtree(empty, ignore_errors=True)
    return starts


def _pages(home: Path) -> dict[str, list[float]]:
    """Return the milliseconds of pages of random sessions, by their place in the session."""
    places = {"first": 0, "middle": EVENTS // 2, "last": EVENTS - PAGE}
    found: dict[str, list[float]] = {name: [] for name in places}
    chance = random.Random(7)
    with running_store(home) as store:
        for _ in range(PAGES):
            session_id = SessionId(f"session_{chance.randrange(SESSIONS):04d}")
            for name, after in places.items():
                request = session.ReadPage(session_id=session_id, after=after, max_events=PAGE)
                begin = time.perf_counter()
                page = store.front.call(request, session.Page)
                found[name].append((time.perf_counter() - begin) * 1e3)
                assert len(page.bodies) == PAGE, page
                assert page.first == after + 1
    return found


def run() -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="roost-history-"))
    try:
        write_history(home)
        size = (home / "store.db").stat().st_size
        pages = _pages(home)
        starts = _starts(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    count = SESSIONS * EVENTS
    empty = sorted(starts.empty)[STARTS // 2]
    figures = [
        at_most(
            f"start with {count:,} events after {how}, more than an empty one",
            sorted(times)[STARTS // 2] - empty,
            MORE_SECONDS,
            "s",
            f"{empty:.2f} s",
        )
        for how, times in (("a clean stop", starts.clean), ("SIGKILL", starts.unclean))
    ]
    for name, times in pages.items():
        times.sort()
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        title = f"page of {PAGE}, {name} of a session's {EVENTS:,} (p50 {p50:.2f} ms), p99"
        figures.append(at_most(title, p99, PAGE_MS, "ms"))
    title = f"file of {count:,} events"
    figures.append(Figure(title, f"{size / count:.0f} B/event ({size / 2**20:.0f} MiB)"))
    return figures
