"""How many events a second does the store append, against bare sqlite3 with the same table, indexes and commits?

Two loads, each of 64 sessions on links of their own, and a front that is told of every session. `waiting`: each session
sends an event when its last one is answered. `streams`: each session keeps a number of text deltas unanswered. They
run at the niceness of agents. The store's group sizes are read off what it publishes; then the same rows go into a second file, opened by the same code,
with one `executemany` and one commit for each group. Store and bare take turns, and are compared pair by pair.
"""

from __future__ import annotations

import os
import select
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from bench.report import Figure
from bench.store import READ_BYTES, StoreUnderTest, Writer, frame, running_store
from roost.actors.store.database import open_database
from roost.config.load import default_settings
from roost.schemas import session, turn
from roost.schemas.published import Published

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from roost.schemas.base import Message

SESSIONS = 64
ROUNDS = 31
LEAST = 0.5
DELTA = "agent.message.delta"
WHOLE = "agent.message.completed"

_INSERT = """insert into events(session, sequence, event_id, type, turn_id, body, crc)
    values(?, ?, ?, ?, ?, ?, ?)"""
Row = tuple[int, int, str, str, str, bytes, int]


class Load(NamedTuple):
    """What each session sends in one round."""

    name: str
    kind: str
    text: str
    durable: bool
    events: int
    unanswered: int


LOADS = (
    Load("waiting for each answer", WHOLE, "x" * 100, durable=True, events=150, unanswered=1),
    Load("streams of deltas", DELTA, "0123456789", durable=False, events=300, unanswered=64),
)


class Stream:
    """One session's part of a round: frames made beforehand, so that the client's own cost stays small."""

    def __init__(self, writer: Writer, key: int) -> None:
        self.writer = writer
        self.key = key
        self.rows: list[Row] = []
        self.ids: list[str] = []
        self.frames: list[bytes] = []
        self.answers: list[bytes] = []
        self.sent = 0
        self.settled = 0
        self._receive, self._send = writer.sock.recv, writer.sock.send
        self._following: Iterator[bytes] = iter(())

    def make(self, load: Load) -> None:
        """Make one more event."""
        text = {"delta" if load.kind == DELTA else "content": load.text}
        draft = self.writer.draft(load.kind, durable=load.durable, **text)
        body, event_id, turn_id = draft.body, draft.event_id, draft.turn_id
        self.frames.append(frame(draft))
        self.ids.append(event_id)
        self.rows.append((self.key, 0, event_id, load.kind, turn_id, body, crc32(body)))

    def send(self, unanswered: int) -> None:
        """Send as much as may be unanswered."""
        upto = min(self.settled + unanswered, len(self.frames))
        if upto > self.sent:
            self.writer.sock.sendall(b"".join(self.frames[self.sent : upto]))
            self.sent = upto

    def start(self) -> None:
        """Send the first event; `go_on` sends the others."""
        self._following = iter(self.frames)
        self._send(next(self._following))

    def go_on(self) -> bool:
        """Take the one answer that is waited for, unread, and send the next event; return whether that was the last one."""
        self.answers.append(self._receive(READ_BYTES))
        following = next(self._following, None)
        if following is None:
            return True
        self._send(following)
        return False

    def check(self) -> None:
        """Read the answers that `go_on` has taken: one for each event, in order."""
        for data, event_id in zip(self.answers, self.ids, strict=True):
            ((_, message),) = self.writer.take(data)
            assert isinstance(message, turn.Acked), message
            assert message.event_id == event_id, message

    def settle(self) -> None:
        """Read the answers that have come; each covers the drafts before it."""
        for _, message in self.writer.read():
            assert isinstance(message, turn.Acked), message
            while self.ids[self.settled] != message.event_id:
                self.settled += 1
            self.settled += 1

    @property
    def done(self) -> bool:
        return self.settled == len(self.ids)


class Round(NamedTuple):
    """Seconds, and the events of each commit as the front heard of them."""

    seconds: float
    groups: list[list[str]]


def _as_agents(store: StoreUnderTest, streams: list[Stream], load: Load) -> Round:
    """Carry out a round in a process that gives way to the store, as those of agents do."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.nice(default_settings().agents.nice)
            with open(write, "wb") as pipe:
                pipe.write(msgspec.json.encode(_store_round(store, streams, load)))
            status = 0
        except BaseException:  # noqa: BLE001 - the child's last frame
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return msgspec.json.decode(data, type=Round)


def _store_round(store: StoreUnderTest, streams: list[Stream], load: Load) -> Round:
    poll = select.epoll()
    by_fd = {stream.writer.sock.fileno(): stream for stream in streams}
    front = store.front.sock.fileno()
    for fd in (*by_fd, front):
        poll.register(fd, select.EPOLLIN)
    for stream in streams:
        # With a time limit each call would be two.
        stream.writer.sock.setblocking(True)
    heard: list[bytes] = []
    left = len(streams)
    waits = load.unanswered == 1
    start = time.perf_counter()
    for stream in streams:
        stream.start() if waits else stream.send(load.unanswered)
    while left:
        for fd, _ in poll.poll():
            if fd == front:
                heard.append(store.front.sock.recv(READ_BYTES))
                continue
            stream = by_fd[fd]
            if waits:
                left -= stream.go_on()
                continue
            stream.settle()
            stream.send(load.unanswered)
            left -= stream.done
    took = time.perf_counter() - start
    poll.close()
    if waits:
        for stream in streams:
            stream.check()
    wanted = sum(load.events for _ in streams)
    groups: list[list[str]] = []
    while True:
        for data in heard:
            groups += [_ids(message) for _, message in store.front.take(data)]
        if sum(map(len, groups)) >= wanted:
            return Round(took, groups)
        heard = [store.front.sock.recv(READ_BYTES)]


def _ids(message: Message) -> list[str]:
    """Return the ids of one commit's events."""
    assert isinstance(message, Published), message
    ids: list[str] = []
    for item in message.items:
        if isinstance(item, session.EventBatch):
            ids += [msgspec.json.decode(body)["id"] for body in item.bodies]
    return ids


def _bare_round(db: sqlite3.Connection, groups: list[list[Row]]) -> float:
    start = time.perf_counter()
    for group in groups:
        db.execute("begin immediate")
        db.executemany(_INSERT, group)
        db.execute("commit")
    return time.perf_counter() - start


def _measure(load: Load, bare_home: Path) -> Figure:
    shares: list[float] = []
    ours: list[float] = []
    bare: list[float] = []
    sizes: list[int] = []
    autocheckpoint = default_settings().store.wal_autocheckpoint
    db = open_database(bare_home / f"{load.kind}.db", wal_autocheckpoint=autocheckpoint)
    with running_store() as store:
        writers = [store.writer(number) for number in range(SESSIONS)]
        store.accept(writers)
        for writer in writers:
            writer.cast(writer.begin())
            writer.until(turn.Acked)
        store.front.cast(session.WatchAll(wanted=True))
        last = dict.fromkeys(range(1, SESSIONS + 1), 0)
        for number in range(ROUNDS + 1):
            streams = [Stream(writer, key + 1) for key, writer in enumerate(writers)]
            # All of them at once, as in life: ids grow with time.
            for _ in range(load.events):
                for stream in streams:
                    stream.make(load)
            rows = {row[2]: row for stream in streams for row in stream.rows}
            found = _as_agents(store, streams, load)
            groups: list[list[Row]] = []
            for ids in filter(None, found.groups):
                group: list[Row] = []
                for event_id in ids:
                    key, _, *rest = rows.pop(event_id)
                    last[key] += 1
                    group.append((key, last[key], *rest))  # type: ignore[arg-type] # the rest of a row
                groups.append(group)
            assert not rows, "an event was answered and not published"
            plain = _bare_round(db, groups)
            if number:  # the first round warms up
                events = SESSIONS * load.events
                ours.append(events / found.seconds)
                bare.append(events / plain)
                shares.append(plain / found.seconds)
                sizes += map(len, groups)
    db.close()
    shares.sort()
    middle = ROUNDS // 2
    return Figure(
        f"appends, {SESSIONS} sessions, {load.name} (groups of {sum(sizes) / len(sizes):.0f})",
        f"{sorted(ours)[middle]:,.0f}/s",
        f"{sorted(bare)[middle]:,.0f}/s (bare sqlite3)",
        f"{shares[middle]:.2f} × bare, pair by pair {shares[0]:.2f} to {shares[-1]:.2f}"
        f" (at least {LEAST})",
        shares[middle] >= LEAST,
    )


def run() -> list[Figure]:
    home = Path(tempfile.mkdtemp(prefix="roost-bare-"))
    try:
        return [_measure(load, home) for load in LOADS]
    finally:
        shutil.rmtree(home, ignore_errors=True)
