"""Start what is measured: a real daemon in a temporary home, or the floor; and a blocking client for both."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

HERE = Path(__file__).parent
READY_TIMEOUT = 60.0

Json = dict[str, object]


class Refusal(Exception):
    """The server answered with an error."""


class Client:
    """One connection with one request under way at a time; notifications are kept in order.

    `check`, if set, is called with every message of the server; measurements leave it out.
    """

    check: ClassVar[Callable[[Json], None] | None] = None

    def __init__(self, path: str, *, initialize: bool = True) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.connect(path)
        except BaseException:
            self.sock.close()
            raise
        self.sock.settimeout(120)
        self.file = self.sock.makefile("rb", buffering=1 << 18)
        self.number = 0
        self.notes: list[Json] = []
        self.answers: dict[object, Json] = {}
        self.returned: set[int] = set()
        if initialize:
            self.initialize(clientName="bench")

    def initialize(self, **params: object) -> None:
        """Say who this is; a connection that breaks meanwhile is closed."""
        try:
            self.call("initialize", protocolVersion="1.0.0", **params)
        except BaseException:
            self.close()
            raise

    def send(self, method: str, **params: object) -> int:
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.sock.sendall(json.dumps(request).encode() + b"\n")
        return self.number

    def read(self) -> Json:
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        message: Json = json.loads(line)
        if Client.check is not None:
            Client.check(message)
        return message

    def answer(self, number: int) -> Json:
        while number not in self.answers:
            self.take(self.read())
        message = self.answers.pop(number)
        if "error" in message:
            raise Refusal(message["error"])
        result: Json = message["result"]  # type: ignore[assignment]
        return result

    def take(self, message: Json) -> None:
        """Keep a message for who asks for it later."""
        if "method" in message:
            self.notes.append(message)
        else:
            self.answers[message["id"]] = message

    def call(self, method: str, **params: object) -> Json:
        return self.answer(self.send(method, **params))

    def close(self) -> None:
        self.file.close()
        self.sock.close()


class Daemon:
    """A running daemon: its home, socket and root's pid."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes], line: str) -> None:
        self.home = home
        self.process = process
        self.socket = str(home / "daemon.sock")
        self.root_pid = int(line.split("pid ")[1].split(")")[0])

    def client(self) -> Client:
        return Client(self.socket)

    def tree(self) -> list[Json]:
        client = self.client()
        try:
            tree: list[Json] = client.call("health.stats")["tree"]  # type: ignore[assignment]
            return tree
        finally:
            client.close()


@contextlib.contextmanager
def running_daemon(*settings: str) -> Generator[Daemon]:
    """Start a daemon with the limits as shipped (but for `settings`, KEY=VALUE) and stop it at the end."""
    home = Path(tempfile.mkdtemp(prefix="roost-bench-"))
    process, line = start_daemon(home, *settings)
    try:
        yield Daemon(home, process, line)
    finally:
        end(process)
        shutil.rmtree(home, ignore_errors=True)


def start_daemon(home: Path, *settings: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start guard and root; return guard's process and what was said when the daemon was ready."""
    root = [sys.executable, "-P", "-m", "roost.actors.app", "--home", str(home)]
    for item in settings:
        root += ["--set", item]
    argv = [sys.executable, "-P", "-m", "roost.supervisor.guard", *root]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=home)
    try:
        return process, _first_line(process.stdout)
    except BaseException:
        end(process)
        raise


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a daemon to stop, and wait until it has."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """End a daemon's processes with SIGKILL, all of them, as a power cut would."""
    guard = psutil.Process(process.pid)
    everyone = [guard, *guard.children(recursive=True)]
    for one in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def running_floor() -> Generator[str]:
    """Start the floor and return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="roost-floor-")
    path = os.path.join(folder, "floor.sock")
    process = subprocess.Popen(
        [sys.executable, "-P", str(HERE / "floor.py"), path], stdout=subprocess.PIPE
    )
    try:
        _first_line(process.stdout)
        yield path
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _first_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    line = stream.readline().decode()
    if not line:
        raise RuntimeError("the server ended before it was ready")
    return line


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Return a process's proportional share of memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def wait_until(claim: object, timeout: float = 60.0) -> None:
    """Wait until the function `claim` returns something true."""
    end = time.monotonic() + timeout
    while not claim():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("it did not come true")
        time.sleep(0.02)
