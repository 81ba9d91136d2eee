"""How fast does the output of a command reach its client, beside the floor, and what does it cost meanwhile?

`cat` of 1 GiB (four times the same file, which is in memory) to a client that reads as fast as it can, in turns with the
floor (`command_floor.py`). While it reads, the client sends a ping every few milliseconds on the same connection. Then the
same to a client that does not read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.daemon import HERE, Client, Daemon, cpu_seconds, running_daemon
from bench.report import Figure, at_most

if TYPE_CHECKING:
    from collections.abc import Generator

FILE_BYTES = 256 * 1024 * 1024
TIMES = 4
MIB = 1024 * 1024
PAIRS = 5
PING_SECONDS = 0.005
LEAST_RATIO = 0.7
MEMORY_MIB = 64.0
PING_MS = 20.0
STILL_SECONDS = 3.0
RECEIVE_BYTES = 256 * 1024
PONG, ANSWER, END = b'"id":"ping', b'"id":"start"', 160


def run() -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="roost-output-"))
    try:
        path = folder / "file"
        with path.open("wb") as file:
            for _ in range(FILE_BYTES // MIB):
                file.write(os.urandom(MIB))
        argv = ["cat", *[str(path)] * TIMES]
        with running_daemon() as daemon, _floor(folder, argv) as floor:
            return [*_reading(daemon, floor, argv), *_not_reading(daemon, argv)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _floor(folder: Path, argv: list[str]) -> Generator[str]:
    path = str(folder / "floor.sock")
    command = [sys.executable, "-P", str(HERE / "command_floor.py"), path, *argv]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield path
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _request(number: str, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def _start(argv: list[str]) -> bytes:
    return _request(
        "start",
        "commandExec.start",
        command=argv,
        processId="p",
        streamStdoutStderr=True,
        disableOutputCap=True,
        disableTimeout=True,
        sandboxPolicy={"type": "dangerFullAccess"},
    )


def _receive(sock: socket.socket, *, pings: bool) -> tuple[float, int, list[float]]:
    """Return the seconds until the answer, how many bytes came, and how long each ping took in milliseconds."""
    buffer = bytearray(RECEIVE_BYTES)
    view = memoryview(buffer)
    began = time.perf_counter()
    asked = began
    waiting = False
    received, number, last = 0, 0, b""
    took: list[float] = []
    while True:
        size = sock.recv_into(view)
        if not size:
            raise ConnectionError("the connection was closed")
        received += size
        now = time.perf_counter()
        # The end of the last piece and the beginning of this one may hold an id together.
        if waiting and (
            buffer.find(PONG, 0, size) >= 0 or PONG in last + bytes(view[: min(32, size)])
        ):
            took.append((now - asked) * 1e3)
            waiting = False
        last = (last + bytes(view[max(0, size - END) : size]))[-END:]
        if last.endswith(b"\n") and ANSWER in last:
            return time.perf_counter() - began, received, took
        if pings and not waiting and now - asked >= PING_SECONDS:
            number += 1
            waiting, asked = True, now
            sock.sendall(_request(f"ping{number}", "health.ping"))


def _pid(daemon: Daemon, name: str) -> int:
    return next(int(str(node["pid"])) for node in daemon.tree() if node["childId"] == name)


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _reading(daemon: Daemon, floor: str, argv: list[str]) -> list[Figure]:
    ours: list[float] = []
    floors: list[float] = []
    pings: list[float] = []
    client = daemon.client()
    _small(client)
    pids = [_pid(daemon, name) for name in ("commands", "front")]
    before = [cpu_seconds(pid) for pid in pids]
    total = FILE_BYTES * TIMES / 1e6
    for _ in range(PAIRS):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(floor)
            seconds, size, _ = _receive(sock, pings=False)
            floors.append(total / seconds)
        client.sock.sendall(_start(argv))
        seconds, came, took = _receive(client.sock, pings=True)
        ours.append(total / seconds)
        pings += took
        # Frames may be shorter, and so more.
        assert came >= size - 1024, "output is missing"
    used = [(cpu_seconds(pid) - was) / PAIRS for pid, was in zip(pids, before, strict=True)]
    peaks = [_peak_mib(pid) for pid in pids]
    client.close()
    ratios = sorted(one / other for one, other in zip(ours, floors, strict=True))
    ratio = statistics.median(ratios)
    pings.sort()
    name = (
        f"`cat` of 1 GiB to a client that reads: {statistics.median(ours):,.0f} MB/s, the floor"
        f" {statistics.median(floors):,.0f} MB/s (median of {PAIRS} in turns; service {used[0]:.1f} s and front {used[1]:.1f} s"
        f" of processor time each); × floor (pairs {ratios[0]:.2f} to {ratios[-1]:.2f})"
    )
    return [
        Figure(
            name,
            f"{ratio:.2f} × floor",
            bound=f"at least {LEAST_RATIO} × floor",
            met=ratio >= LEAST_RATIO,
        ),
        at_most("… largest memory of the service", peaks[0], MEMORY_MIB, "MiB"),
        Figure("… largest memory of the front", f"{peaks[1]:.0f} MiB"),
        at_most(
            f"… {len(pings)} pings on the same connection meanwhile, p99; p50 {pings[len(pings) // 2]:.1f} ms",
            pings[len(pings) * 99 // 100],
            PING_MS,
            "ms",
        ),
    ]


def _small(client: Client) -> None:
    """Have the service started before anything is measured."""
    policy = {"type": "dangerFullAccess"}
    client.call("commandExec.start", command=["true"], sandboxPolicy=policy)


def _not_reading(daemon: Daemon, argv: list[str]) -> list[Figure]:
    clients = [daemon.client() for _ in range(8)]
    pids = [_pid(daemon, name) for name in ("commands", "front")]
    before = sum(_rss_mib(pid) for pid in pids)
    for client in clients:
        client.sock.sendall(_start(argv))
    time.sleep(STILL_SECONDS)
    used = [cpu_seconds(pid) for pid in pids]
    time.sleep(STILL_SECONDS)
    still = sum(cpu_seconds(pid) for pid in pids) - sum(used)
    grown = sum(_rss_mib(pid) for pid in pids) - before
    for client in clients:
        client.close()
    return [
        at_most(
            "8 clients that do not read the same: service and front grow by", grown, 16.0, "MiB"
        ),
        Figure("… their processor time over 3 s meanwhile", f"{still:.2f} s"),
    ]


def _rss_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
