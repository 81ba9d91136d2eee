"""Moving a large log: export, verify, import and backup of it, in seconds and in memory.

`python -P bench/export.py [EVENTS [SESSIONS]]`: the time grows with the events, the memory does not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.actors.store.catalogue import Catalogue
from roost.actors.store.database import EVENT_BYTES, open_database, write_meta
from roost.actors.store.sealing import seal
from roost.schemas.agent import AgentSpec
from roost.schemas.base import AgentId, SessionId
from roost.schemas.session import SessionSpec

EVENTS = 1_000_000
SESSIONS = 1_000
MIB = 1024 * 1024
# Tells at its end what it has needed at most; a wait for it would count what this process had when it was forked.
MEASURED = """
import atexit, sys
from roost.actors.client.cli import main
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
main()
"""

_encode = msgspec.json.Encoder().encode


class Ran(NamedTuple):
    """A command that has ended well: its seconds, and the most memory that it had."""

    seconds: float
    peak: int


def run_measured(home: Path, *arguments: str) -> Ran:
    argv = [sys.executable, "-P", "-c", MEASURED, "--home", str(home), *arguments]
    before = time.perf_counter()
    ended = subprocess.run(argv, capture_output=True, check=False)
    seconds = time.perf_counter() - before
    assert ended.returncode == 0, ended.stderr[-2000:]
    (line,) = [one for one in ended.stderr.splitlines() if one.startswith(b"VmHWM")]
    return Ran(seconds, int(line.split()[1]) * 1024)


def fill(path: Path, events: int, sessions: int) -> None:
    """Make a store whose sessions have come in turns, as they do when many work at once."""
    db = open_database(path, wal_autocheckpoint=4000)
    db.execute("pragma synchronous = off")
    catalogue = Catalogue(db)
    db.execute("begin")
    each = events // sessions
    for number in range(1, sessions + 1):
        agent_id, session_id = AgentId(f"agent_{number}"), SessionId(f"session_{number}")
        catalogue.add_agent(AgentSpec(agent_id=agent_id, created_at=number, cwd="/"), has_env=False)
        catalogue.add_session(
            SessionSpec(session_id=session_id, agent_id=agent_id, created_at=number)
        )
    for sequence in range(1, each + 1):
        rows = [_row(number, sequence) for number in range(1, sessions + 1)]
        db.executemany(
            "insert into events(session, sequence, event_id, type, turn_id, body, crc)"
            " values(?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    size = each * (len(_row(1, each)[5]) + EVENT_BYTES)
    db.execute("update counters set last_sequence = ?, bytes = ?", (each, size))
    write_meta(db, "clean", "1")
    db.execute("commit")
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


def _row(number: int, sequence: int) -> tuple[int, int, str, str, str, bytes, int]:
    event_id = f"01a22b75-{number:04x}-7000-8000-{sequence:012x}"
    body = _encode(
        {
            "type": "user.message",
            "id": event_id,
            "timestamp": 1_790_000_000.25 + sequence,
            "session_id": f"session_{number}",
            "version": "1.0",
            "metadata": {},
            "content": "What an average message says, more or less. " * 3,
        }
    )
    return number, sequence, event_id, "user.message", "", body, seal(number, sequence, body)


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else SESSIONS
    folder = Path(tempfile.mkdtemp(prefix="roost-"))
    home, other = folder / "one", folder / "two"
    home.mkdir(mode=0o700)
    try:
        fill(home / "store.db", events, sessions)
        print(f"{events} events, {sessions} sessions")
        _say("store.db", None, (home / "store.db").stat().st_size)
        out = str(folder / "all.jsonl")
        _say("export", run_measured(home, "events", "export", "--all", "-o", out), events)
        _say("verify", run_measured(home, "events", "verify", out), events)
        _say("backup", run_measured(home, "backup", str(folder / "backup.db")), events)
        _say("du", run_measured(home, "du"), events)
        run_measured(other, "up")
        try:
            _say("import", run_measured(other, "events", "import", out), events)
            _say("import again", run_measured(other, "events", "import", out), events)
        finally:
            run_measured(other, "down")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say(what: str, ran: Ran | None, count: int) -> None:
    if ran is None:
        print(f"{what}: {count / MIB:,.0f} MiB")
        return
    rate = count / ran.seconds
    print(
        f"{what}: {ran.seconds:.1f} s, {rate:,.0f}/s, at most {ran.peak / MIB:.0f} MiB", flush=True
    )


if __name__ == "__main__":
    main()
