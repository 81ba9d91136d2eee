"""How long does fs.fuzzy_search take in 100,000 files, and how long do the pings of another connection wait meanwhile?

Answers are of a warm index, each after a file was created that must be found in every tenth. Pings are sent one after the
other, two milliseconds apart, in turns while nothing else runs, while a process beside the daemon computes at the niceness
of the search service, and while somebody searches without a pause. What a search adds to a ping is more than such a process
takes from the processors: the kernel lets a process that waits for one wait some milliseconds, whoever has it.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import tempfile
import time
from contextlib import contextmanager
from multiprocessing import Process
from pathlib import Path
from typing import TYPE_CHECKING

from bench.daemon import Client, Daemon, cpu_seconds, running_daemon
from bench.report import Figure, at_most
from roost.actors.search.actor import NICE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

FILES = 100_000
WARM = 240
ROUNDS = 6
PINGS = 1_000
PAUSE = 0.002
WARM_MS = 10.0
DELAY_MS = 5.0
WORDS = (  # noqa: SIM905 - thirty of them in two lines
    "agent session command message store front actor zygote router fuzzy search file index parser token stream model"
    " provider client server config utils test helper runtime bridge codec layout theme plugin hook event queue"
).split()
QUERIES = (  # noqa: SIM905
    "sesfront agentzyg cmdstorepy message_queue src/actor/config mf2 fuzidx strmodel qhook zygtheme tokstr9 confutil"
    " clsrvjson a er rtr ssf pars sess t1 json parser utils/test server_c"
).split()


def run() -> list[Figure]:
    root = Path(tempfile.mkdtemp(prefix="roost-tree-"))
    try:
        make_tree(root)
        with running_daemon() as daemon:
            return [*_answers(daemon, root), *_pings(daemon, root)]
    finally:
        shutil.rmtree(root, ignore_errors=True)


def make_tree(root: Path) -> None:
    """Make the files, in some 10,000 directories of a work tree with rules."""
    chance = random.Random(1)
    left = FILES
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("node_modules/\nbuild/\n*.log\n!keep.log\n/tmp/**\n")
    while left > 0:
        levels = range(chance.randrange(2, 6))
        names = [chance.choice(WORDS) + (str(chance.randrange(40)) if n else "") for n in levels]
        folder = root.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(chance.randrange(5, 40)):
            end = chance.choice(["py", "ts", "rs", "md", "json"])
            name = f"{chance.choice(WORDS)}_{chance.choice(WORDS)}{chance.randrange(999)}.{end}"
            if left and not (folder / name).exists():
                (folder / name).write_text("")
                left -= 1


def _search(client: Client, query: str, root: Path) -> tuple[float, list[dict[str, object]]]:
    """Return the milliseconds of one search and what it found."""
    began = time.perf_counter()
    answer = client.call("fs.fuzzy_search", query=query, roots=[str(root)])
    took = (time.perf_counter() - began) * 1e3
    return took, answer["files"]  # type: ignore[return-value]


def _pid(daemon: Daemon) -> int:
    return next(int(str(node["pid"])) for node in daemon.tree() if node["childId"] == "search")


def _answers(daemon: Daemon, root: Path) -> list[Figure]:
    client = daemon.client()
    first, found = _search(client, "sesfront", root)
    assert len(found) == 50
    pid = _pid(daemon)
    before = cpu_seconds(pid)
    times: list[float] = []
    for number in range(WARM):
        name = f"quite_new{number}.xyz"
        (root / "agent" / name).write_text("")
        query = name if number % 10 == 0 else QUERIES[number % len(QUERIES)]
        took, found = _search(client, query, root)
        assert number % 10 or found[0]["file_name"] == name, "a new file is not found"
        times.append(took)
    used = (cpu_seconds(pid) - before) / WARM * 1e3
    client.close()
    times.sort()
    p99 = times[len(times) * 99 // 100]
    return [
        Figure(f"first answer in {FILES:,} files: the walk included", f"{first:,.0f} ms"),
        at_most(
            f"warm answer, p50 of {WARM} ({len(QUERIES)} queries, a new file before each)"
            f"; p10 {times[len(times) // 10]:.1f} ms, p99 {p99:.1f} ms; {used:.1f} ms of CPU each",
            statistics.median(times),
            WARM_MS,
            "ms",
        ),
    ]


def _pings(daemon: Daemon, root: Path) -> list[Figure]:
    pinging = daemon.client()
    nothing: list[list[float]] = []
    computing: list[list[float]] = []
    searching: list[list[float]] = []
    for _ in range(ROUNDS):
        nothing.append(_ping(pinging))
        with _beside(_keep_computing):
            computing.append(_ping(pinging))
        with _beside(_keep_searching, daemon, root):
            searching.append(_ping(pinging))
    pinging.close()
    more = statistics.median(
        max(one) - max(other) for one, other in zip(searching, computing, strict=True)
    )
    each = ", ".join(
        f"{_percentile(rounds, 50):.2f}, {_percentile(rounds, 99):.2f} and {max(map(max, rounds)):.1f} ms {name}"
        for name, rounds in (
            ("with searches", searching),
            ("beside a computing process", computing),
            ("alone", nothing),
        )
    )
    name = (
        f"longest of {PINGS} pings while another connection searches without a pause, less the longest beside a process"
        f" that computes (median of {ROUNDS} pairs; p50, p99 and longest of all {each})"
    )
    return [at_most(name, more, DELAY_MS, "ms")]


def _percentile(rounds: list[list[float]], percent: int) -> float:
    times = sorted(took for one in rounds for took in one)
    return times[len(times) * percent // 100]


@contextmanager
def _beside(work: Callable[..., None], *arguments: object) -> Generator[None]:
    """Have something done in a process of its own: two threads would wait for each other's lock."""
    process = Process(target=work, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _keep_computing() -> None:
    os.nice(NICE)
    while True:
        sum(range(1_000))


def _ping(client: Client) -> list[float]:
    times: list[float] = []
    for _ in range(PINGS):
        began = time.perf_counter()
        client.call("health.ping")
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(PAUSE)
    return times


def _keep_searching(daemon: Daemon, root: Path) -> None:
    client = daemon.client()
    for query in itertools.cycle(QUERIES):
        _search(client, query, root)
