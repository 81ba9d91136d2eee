"""What do hundreds of attached clients cost, those included that do not read, that flood, or that come and go?"""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING

import psutil

from bench.agents import create_agents
from bench.crowd import Crowd, Member, unix_member
from bench.daemon import Client, Daemon, Json, cpu_seconds, pss_bytes, running_daemon
from bench.report import Figure, at_least, at_most
from bench.turns import script

if TYPE_CHECKING:
    from collections.abc import Sequence

STUCK = 10
MESSAGES = 8
MORE_MESSAGES = 200  # of half a MiB in the log, while only the stuck ones are attached
PIECES = 60
PIECE = "x" * 4_096
MIB = 1 << 20
IDLE_SECONDS = 10.0
CYCLES = 10_000
SESSIONS = 200
PINGS = 500
FLOOD = b'{"jsonrpc":"2.0","id":7,"method":"health.ping","params":{}}\n' * 1_000


def memory(daemon: Daemon) -> int:
    """Return what all processes of a daemon take, shared pages counted once."""
    guard = psutil.Process(daemon.process.pid)
    return sum(pss_bytes(one.pid) for one in (guard, *guard.children(recursive=True)))


def front_pid(daemon: Daemon) -> int:
    """Return the front's pid."""
    return next(int(str(node["pid"])) for node in daemon.tree() if node["childId"] == "front")


def join(crowd: Crowd, members: Sequence[Member], session: str) -> float:
    """Initialize and attach connections, from the session's beginning; return the seconds that took."""
    begin = time.perf_counter()
    crowd.greet(members, capabilities={"roost.cursors": {session: 0}})
    asked: list[tuple[Member, int]] = []
    for index, member in enumerate(members):
        member.last[session] = 0
        asked.append(
            (member, member.send("session.attach", sessionId=session, clientId=f"c{index}"))
        )
    crowd.collect(asked)
    return time.perf_counter() - begin


def say(client: Client, session: str, times: int) -> int:
    """Let the agent speak so often; return the session's last sequence."""
    for _ in range(times):
        client.call(
            "message.send",
            sessionId=session,
            content="go",
            metadata=script(PIECES, piece=PIECE),
        )
    last = client.call("session.attach", sessionId=session, clientId="asks")["lastSequence"]
    client.call("session.detach", sessionId=session, clientId="asks")
    client.notes.clear()
    return int(str(last))


def _faults(members: Sequence[Member], last: int) -> int:
    return sum(bool(m.fault) or m.gaps > 0 or m.carriers != last for m in members)


def _attached(count: int) -> list[Figure]:
    with running_daemon() as daemon:
        client = daemon.client()
        session = str(create_agents(client, 1)[0]["sessionId"])
        say(client, session, 2)
        before = memory(daemon)
        crowd = Crowd()
        members = [crowd.add(unix_member(daemon.socket)) for _ in range(count)]
        attaching = join(crowd, members, session)
        each = (memory(daemon) - before) / count
        idle = _idle(daemon)
        stuck, readers = members[:STUCK], members[STUCK:]
        crowd.pause(stuck)
        carriers = sum(member.carriers for member in readers)
        begin = time.perf_counter()
        last = say(client, session, MESSAGES)
        crowd.reach(readers, session, last)
        rate = (sum(member.carriers for member in readers) - carriers) / (
            time.perf_counter() - begin
        )
        wrong = _faults(readers, last)
        grown = memory(daemon) - before
        asked = [
            (member, member.send("session.detach", sessionId=session, clientId=f"c{index}"))
            for index, member in enumerate(members[STUCK:], STUCK)
        ]
        crowd.collect(asked)
        last = say(client, session, MORE_MESSAGES)
        grown = max(grown, memory(daemon) - before)
        crowd.resume(stuck)
        catching_up = crowd.reach(stuck, session, last)
        wrong += _faults(stuck, last)
        grown = max(grown, memory(daemon) - before)
        crowd.close()
        client.close()
    behind = MORE_MESSAGES * 2 * PIECES * len(PIECE) // MIB
    return [
        Figure(
            f"{count} clients connect, attach and replay 1 MiB each, all at once",
            f"{attaching:.2f} s",
        ),
        Figure("… memory for each", f"{each / 1024:.1f} KiB"),
        at_most(f"… front's CPU over {IDLE_SECONDS:.0f} s while nothing happens", idle, 0.5, "%"),
        at_least(f"… {count - STUCK} read: deliveries of 4.5 to 250 KiB", rate, 2_000),
        at_most(
            f"… {STUCK} do not read while {behind} MiB come: the daemon grows by",
            grown / MIB,
            64,
            "MiB",
        ),
        Figure(f"… and catch up, {behind} MiB each, in", f"{catching_up:.1f} s"),
        at_most("… clients that missed an event or had one twice", wrong, 0, "clients"),
    ]


def _idle(daemon: Daemon) -> float:
    """Return the percentage of a core that the front takes while nothing happens."""
    pid = front_pid(daemon)
    time.sleep(
        6
    )  # the time in which a connection has to initialize, and in which calls are looked after
    begin = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pid) - begin) / IDLE_SECONDS * 100


def _cycles() -> list[Figure]:
    with running_daemon() as daemon:
        client = daemon.client()
        session = str(create_agents(client, 1)[0]["sessionId"])
        _come_and_go(daemon, client, session, CYCLES // 10)
        pid = front_pid(daemon)
        before = psutil.Process(pid).memory_info().rss
        begin = time.perf_counter()
        _come_and_go(daemon, client, session, CYCLES)
        took = time.perf_counter() - begin
        grown = psutil.Process(pid).memory_info().rss - before
        client.close()
    return [
        Figure(
            f"{CYCLES:,} times attach and detach, and connect, attach, go", f"{CYCLES / took:.0f}/s"
        ),
        at_most("… the front grows by", grown / MIB, 4, "MiB"),
    ]


def _come_and_go(daemon: Daemon, client: Client, session: str, times: int) -> None:
    for at in range(times):
        name = f"n{at % 32}"
        client.call("session.attach", sessionId=session, clientId=name)
        client.call("session.detach", sessionId=session, clientId=name)
        client.notes.clear()
        other = daemon.client()
        other.call("session.attach", sessionId=session, clientId="passing")
        other.close()
        while at % 500 == 0 and _open(client) > 2:
            time.sleep(0.01)


def _open(client: Client) -> int:
    connections: Json = client.call("health.stats")["connections"]  # type: ignore[assignment]
    return int(str(connections["unix"]))


def _fairness() -> list[Figure]:
    with running_daemon() as daemon:
        client = daemon.client()
        agents = create_agents(client, SESSIONS)
        crowd = Crowd()
        for index, agent in enumerate(agents):
            member = crowd.add(unix_member(daemon.socket))
            member.send("initialize", protocolVersion="1.0.0")
            member.send("session.attach", sessionId=agent["sessionId"], clientId=f"c{index}")
            member.send(
                "message.send",
                sessionId=agent["sessionId"],
                content="go",
                metadata=script(1_200, 50),
            )
        crowd.run(lambda: min(member.carriers for member in crowd.members) > 5)
        streamed = sum(member.carriers for member in crowd.members)
        reading = threading.Event()
        loop = threading.Thread(target=_read_on, args=(crowd, reading))
        loop.start()
        other = daemon.client()
        _pings(other)
        alone = _pings(other)
        flooding = daemon.client()
        flood = threading.Thread(target=_flood, args=(flooding, reading))
        flood.start()
        beside = _pings(other)
        reading.set()
        flood.join()
        loop.join()
        streamed = sum(member.carriers for member in crowd.members) - streamed
        wrong = sum(bool(member.fault) for member in crowd.members)
        crowd.close()
        for one in (client, other, flooding):
            one.close()
    return [
        Figure(
            f"`health.ping` while {SESSIONS} sessions stream to a client each ({streamed:,} events)",
            _percentiles(alone),
        ),
        Figure("… and one client sends pings as fast as it can", _percentiles(beside)),
        at_most("… p99 beside it", statistics.quantiles(beside, n=100)[98] * 1000, 250, "ms"),
        at_most("… clients that missed an event", wrong, 0, "clients"),
    ]


def _read_on(crowd: Crowd, enough: threading.Event) -> None:
    crowd.run(enough.is_set)


def _flood(client: Client, enough: threading.Event) -> None:
    reader = threading.Thread(target=_drain, args=(client,))
    reader.start()
    while not enough.is_set():
        client.sock.sendall(FLOOD)
    client.sock.shutdown(1)
    reader.join()


def _drain(client: Client) -> None:
    while client.sock.recv(1 << 18):
        pass


def _pings(client: Client) -> list[float]:
    times: list[float] = []
    for _ in range(PINGS):
        begin = time.perf_counter()
        client.call("health.ping")
        times.append(time.perf_counter() - begin)
        time.sleep(0.005)
    return times


def _percentiles(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"


def run() -> list[Figure]:
    return [*_attached(500), *_attached(1_000), *_cycles(), *_fairness()]
