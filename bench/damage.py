"""A real daemon over damaged files: kill it, hurt its files at a random place, start it again, and read every session.

`python -m bench.damage [--places 200] [--seed 1]`. Each place begins with the same files. Counted are starts that fail,
sessions that are served wrongly, and sessions that end early without an error that names them; each has to be 0. Where a log
has lost its end nothing tells whose events were in it: the loss is reported, and the sessions are counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.daemon import Client, Json, Refusal
from tests.support.daemon import RunningDaemon, attach, create_agent, send_script
from tests.support.damage import FILES, damage

SESSIONS = 4
MESSAGES = 3
CHUNKS = 12
SECONDS = 30.0

_names = (f"reader_{number}" for number in itertools.count(1))


def main() -> None:
    """Run and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roost-damage-") as folder:
        print(json.dumps(run(Path(folder), arguments.places, arguments.seed), indent=1))


def run(folder: Path, places: int, seed: int) -> Json:
    """Return what became of so many damaged stores."""
    words = random.Random(seed)
    kept, whole = _prepare(folder)
    counts: Counter[str] = Counter()
    faults: list[str] = []
    slowest = 0.0
    for number in range(places):
        home = folder / "home"
        shutil.copytree(kept, home)
        done = damage(home, words)
        daemon = RunningDaemon(home)
        begun = time.monotonic()
        try:
            daemon.start()
            slowest = max(slowest, time.monotonic() - begun)
            counts["started"] += 1
            _look(daemon, whole, done, counts, faults)
        except Exception as error:  # noqa: BLE001 # the rest is to be seen too
            faults.append(f"{number}: {done}: {error!r}")
        finally:
            daemon.close_clients()
            if daemon.guard is not None:
                daemon.stop()
            shutil.rmtree(home)
    return {
        "places": places,
        "seed": seed,
        **dict(sorted(counts.items())),
        "slowest_start_s": round(slowest, 2),
        "faults": faults,
    }


def _prepare(folder: Path) -> tuple[Path, dict[str, dict[int, str]]]:
    """Return the home of a daemon that was killed, and what each session gave before.

    Half of the sessions are in the database, which a clean stop leaves without a log; the others are in the log.
    """
    home = folder / "made"
    daemon = RunningDaemon(home)
    daemon.start()
    client = daemon.client()
    names: list[str] = []
    for number in range(SESSIONS):
        if number == SESSIONS // 2:
            daemon.stop()
            daemon.start()
            client = daemon.client()
        _, session = create_agent(client)
        names.append(session)
        attach(client, session, next(_names))
        for _ in range(MESSAGES):
            steps: list[Json] = [{"say": "word " * 40, "chunks": CHUNKS}]
            client.answer(send_script(client, session, *steps))
    whole = {name: read_all(daemon, name)[0] for name in names}
    kept = folder / "kept"
    kept.mkdir(mode=0o700)
    for process in daemon.processes():
        process.kill()
    daemon.close_clients()
    daemon.wait()
    for name in (*FILES, "store.db-shm", "store.db.stamp"):
        if (home / name).exists():
            shutil.copy(home / name, kept / name)
    return kept, whole


def read_all(daemon: RunningDaemon, session: str) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """Attach from the beginning; return the events by sequence, and the ranges that are said to be damaged."""
    client = Client(daemon.socket, initialize=False)
    try:
        client.sock.settimeout(SECONDS)
        client.initialize(clientName="bench", capabilities={"roost.cursors": {session: 0}})
        last = int(str(attach(client, session, next(_names))["lastSequence"]))
        at = 0
        found: dict[int, str] = {}
        gaps: list[tuple[int, int]] = []
        while at < last:
            while not client.notes:
                client.take(client.read())
            params: Json = client.notes.pop(0)["params"]  # type: ignore[assignment]
            metadata: Json = params.get("metadata", {})  # type: ignore[assignment]
            if "sequence" not in params or metadata.get("derived") or metadata.get("redelivered"):
                continue
            sequence = int(str(params["sequence"]))
            inner: Json = params.get("event", {})  # type: ignore[assignment]
            if inner.get("type") == "event_gap":
                gaps.append((at + 1, sequence))
            else:
                assert sequence == at + 1, f"{session}: {sequence} follows {at}"
                found[sequence] = str(params["eventId"])
            at = sequence
        return found, gaps
    finally:
        client.close()


def _look(
    daemon: RunningDaemon,
    whole: dict[str, dict[int, str]],
    done: str,
    counts: Counter[str],
    faults: list[str],
) -> None:
    report = "\n".join(
        path.read_text() for path in sorted(daemon.home.glob("damaged/*/report.txt"))
    )
    anew = "an empty one" in report
    counts["rescued"] += bool(report)
    counts["set_aside_whole"] += anew
    # Whose events were at the end of a log that was cut off cannot be told; numbers are given again in a new epoch.
    torn = "lacks" in report
    for session, events in whole.items():
        try:
            found, gaps = read_all(daemon, session)
        except Refusal as refusal:
            counts["sessions_refused"] += 1
            if session not in str(refusal):
                faults.append(f"{done}: {session} is refused without its name: {refusal}")
            continue
        told = {at for first, last in gaps for at in range(first, last + 1)}
        wrong = [at for at, name in found.items() if events.get(at, name) != name]
        silent = [at for at in events if at not in found and at not in told]
        if wrong and not torn:
            faults.append(f"{done}: {session} is served wrongly at {wrong[:5]}")
        if (silent or wrong) and torn:
            counts["sessions_cut_with_the_log"] += 1
        elif silent:
            faults.append(f"{done}: {session} lacks {silent[:5]} without a word")
        elif gaps:
            counts["sessions_up_to_damage"] += 1
        else:
            counts["sessions_whole"] += 1
    _go_on(daemon, faults, done)


def _go_on(daemon: RunningDaemon, faults: list[str], done: str) -> None:
    """See that the daemon takes new work."""
    client = daemon.client()
    client.sock.settimeout(SECONDS)
    _, session = create_agent(client)
    attach(client, session, next(_names))
    outcome = client.answer(send_script(client, session, {"say": "again"}))["outcome"]
    if outcome != "completed":
        faults.append(f"{done}: a new turn ends as {outcome}")


if __name__ == "__main__":
    main()
