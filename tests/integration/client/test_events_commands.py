from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import command, environ
from tests.support.daemon import attach, create_agent, daemon_in, send_script
from tests.support.log_files import fill_store, lines, log, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

LIMIT = 30
MIB = 1024 * 1024


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(home, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ()
    )


@pytest.fixture
def follower(
    daemon_home: Path, running: RunningDaemon
) -> Iterator[tuple[subprocess.Popen[bytes], RunningDaemon, str]]:
    """A `tail -f` that has written the first event of a session."""
    process, session = begin_to_follow(daemon_home, running)
    yield process, running, session
    process.kill()
    process.communicate()


def begin_to_follow(home: Path, running: RunningDaemon) -> tuple[subprocess.Popen[bytes], str]:
    _, session = create_agent(running.client())
    process = start(home, "events", "tail", session, "-f")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["sequence"] == 1
    return process, session


@pytest.fixture
def running(daemon_home: Path) -> Iterator[RunningDaemon]:
    with daemon_in(daemon_home) as running:
        yield running


@pytest.fixture
def daemon_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d") / "h"


# Tells at its end what it has needed at most; a wait for it would count what this process had when it was forked.
MEASURED = """
import atexit, sys
from roost.actors.client.cli import main
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
main()
"""


def run_measured(home: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, int]:
    """Run a command and return its status, its output, and the most memory that it had."""
    argv = [sys.executable, "-c", MEASURED, "--home", str(home), *arguments]
    ended = subprocess.run(
        argv, input=stdin, capture_output=True, env=environ(), timeout=LIMIT, check=False
    )
    (line,) = [one for one in ended.stderr.splitlines() if one.startswith(b"VmHWM")]
    return ended.returncode, ended.stdout, int(line.split()[1]) * 1024


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    peaks: list[int] = []
    for count in (1_000, 50_000):
        fill_store(home / "store.db", log(f"s-{count}", count))
        out = tmp_path / f"{count}.jsonl"
        status, _, peak = run_measured(home, "events", "export", f"s-{count}", "-o", str(out))
        assert status == 0
        assert len(out.read_bytes().splitlines()) == count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 12 * MIB


def test_a_reader_that_leaves_ends_an_export_quietly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    fill_store(home / "store.db", log("s-one", 5_000))
    process = start(home, "events", "export", "--all")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(LIMIT) == 1


@pytest.mark.parametrize(
    "change", ["counters set last_sequence = 33", "sessions set first_sequence = 65"]
)
def test_an_export_is_whole_whatever_the_counters_of_its_session_say(
    tmp_path: Path, change: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    events = log("s-one", 161)
    fill_store(home / "store.db", events)
    with contextlib.closing(sqlite3.connect(home / "store.db")) as connection, connection:
        connection.execute(f"update {change}")
    for chosen in ("s-one", "--all"):
        process = start(home, "events", "export", chosen)
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert [one["id"] for one in parsed(output)] == [one["id"] for one in events]


def test_an_export_that_is_terminated_leaves_no_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    fill_store(home / "store.db", log("s-one", 40_000))
    process = start(home, "events", "export", "--all", "-o", str(tmp_path / "out"))
    while not list(tmp_path.glob(".out*")):
        assert process.poll() is None
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_tail_follows_without_gap_or_repetition(
    follower: tuple[subprocess.Popen[bytes], RunningDaemon, str],
) -> None:
    process, running, session = follower
    client = running.client()
    attach(client, session)
    for number in range(5):
        client.answer(send_script(client, session, {"say": f"text {number} " * 50}))
    client.call("session.terminate", sessionId=session)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    found = parsed(out)
    assert [one["sequence"] for one in found] == list(range(2, len(found) + 2))
    assert found[-1]["type"] == "session.closed"
    assert [one["type"] for one in found].count("user.message") == 5


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_tail_ends_when_it_is_told_to(
    follower: tuple[subprocess.Popen[bytes], RunningDaemon, str],
    number: signal.Signals,
    status: int,
) -> None:
    process, _, _ = follower
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT) == (b"", b"")
    assert process.returncode == status


def test_tail_in_the_background_ends_by_sigterm_alone(
    daemon_home: Path, running: RunningDaemon
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a job of a script
    try:
        process, session = begin_to_follow(daemon_home, running)
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    send_script(running.client(), session, {"say": "more"})
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM


def test_tail_ends_with_the_daemon(
    follower: tuple[subprocess.Popen[bytes], RunningDaemon, str],
) -> None:
    process, running, _ = follower
    running.stop()
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, err
    assert b"the daemon has ended the connection" in err


def test_verify_reads_a_stream_in_bounded_memory(tmp_path: Path) -> None:
    data = b"x" * 64 * MIB + b"\n" + lines(log("s", 1))
    status, out, peak = run_measured(tmp_path, "events", "verify", "--json", "-", stdin=data)
    assert status == 1
    assert [one["ok"] for one in parsed(out)] == [False, True]
    assert peak < 120 * MIB


def test_import_needs_a_daemon_and_says_so(tmp_path: Path) -> None:
    data = tmp_path / "log.jsonl"
    data.write_bytes(lines(log("s", 1)))
    process = start(tmp_path / "home", "events", "import", str(data))
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, err
    assert b"roost up" in err
