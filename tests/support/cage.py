"""A machine in small for sandbox tests: a daemon's home, a user's home, a working folder, and things to be kept from."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest

from roost.actors.sandbox.launch import Launch, launch
from roost.actors.sandbox.policy import Policy
from roost.actors.sandbox.probe import find_backend
from roost.config.load import default_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from roost.config.model import Sandbox
    from roost.schemas.boot import Backend

BackendName = Literal["bubblewrap", "landlock"]
BACKENDS: tuple[BackendName, ...] = ("bubblewrap", "landlock")
READ_ONLY, WORKSPACE = Policy(type="readOnly"), Policy(type="workspaceWrite")
SECRET = "the-secret-nobody-may-see"
NOTE_MODE = 0o644
IN_HOME = ["daemon.cookie", "daemon.sock", "store.db", "workspaces"]
PRELUDE = "import ctypes, errno, fcntl, os, resource, signal, socket, struct, sys, time\n"
EACH = """
import json, traceback
results = []
for name, code in CODES.items():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        for number in (1, 2):
            os.dup2(writer, number)
        try:
            exec(code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    said = open(reader, 'rb').read().decode(errors='replace')
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    results.append((name, status, said))
print(json.dumps(results))
"""


@functools.cache
def backend_of(name: BackendName) -> Backend:
    """Return a backend, or skip the test where it does not work."""
    rules = msgspec.structs.replace(default_settings().sandbox, backend=name)
    found = find_backend(rules)
    if not found.name:
        pytest.skip(f"no {name}: {found.detail}")
    return found


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended, and what it said."""

    code: int
    said: str


class Cage:
    """The folders, a listener of each kind, and a process that nobody may touch. It lies outside /tmp."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.root = Path(tempfile.mkdtemp(prefix="roost-cage-", dir="/var/tmp"))
        self._stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.home, self.user = self.root / "home", self.root / "user"
        self.work, self.outside = self.user / "project", self.root / "outside"
        for folder in (self.user / ".ssh", self.work / ".git" / "hooks", self.work / "sub"):
            folder.mkdir(parents=True)
        for name in ("home/workspaces/mine", "home/workspaces/other", "outside/empty"):
            (self.root / name).mkdir(parents=True)
        for path in self.secrets:
            path.write_text(SECRET)
        for path in (self.outside / "note", self.work / "file", self.work / ".git" / "config"):
            path.write_text("old\n")
        (self.outside / "note").chmod(NOTE_MODE)
        self.victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", SECRET],
            env={"VICTIM": SECRET},
        )
        self._stack.callback(self._end_victim)
        master, slave = os.openpty()
        self._stack.callback(os.close, master)
        self._stack.callback(os.close, slave)
        self.terminal = os.ttyname(slave)
        self.unix = self._listen(socket.AF_UNIX, str(self.home / "daemon.sock"))
        self.abstract = self._listen(socket.AF_UNIX, f"\0roost-{self.root.name}")
        self.tcp = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        self.udp = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def secrets(self) -> tuple[Path, ...]:
        """Return the files whose content must not be seen."""
        return (
            self.home / "daemon.cookie",
            self.home / "store.db",
            self.home / "workspaces" / "other" / "note",
            self.user / ".ssh" / "id_ed25519",
        )

    def rules(self, **changes: int) -> Sandbox:
        """Return the rules as shipped, with this user's keys in place of the real ones."""
        rules = default_settings().sandbox
        hidden = (str(self.user / ".ssh"), str(self.user / ".netrc"))
        return msgspec.structs.replace(rules, hidden=hidden, **changes)

    def attempt(
        self,
        policy: Policy,
        backend: Backend,
        code: str,
        *,
        rules: Sandbox | None = None,
        env: dict[str, str] | None = None,
    ) -> Ended:
        """Run Python code in the sandbox; paths and numbers of this cage are its names."""
        argv = (sys.executable, "-I", "-S", "-c", PRELUDE + self._names() + code)
        return self.run(policy, backend, argv, rules=rules, env=env)

    def attempt_all(
        self, policy: Policy, backend: Backend, codes: dict[str, str]
    ) -> dict[str, Ended]:
        """Run each code in a process of its own, all in one sandbox."""
        ended = self.attempt(policy, backend, f"CODES = {codes!r}\n{EACH}")
        assert ended.code == 0, ended.said
        return {
            name: Ended(code, said)
            for name, code, said in msgspec.json.decode(ended.said, type=list[tuple[str, int, str]])
        }

    def run(
        self,
        policy: Policy,
        backend: Backend,
        argv: tuple[str, ...],
        *,
        rules: Sandbox | None = None,
        env: dict[str, str] | None = None,
    ) -> Ended:
        """Run a program in the sandbox, in the working folder."""
        wanted = launch(
            policy,
            backend,
            argv,
            str(self.work),
            {"PATH": os.environ["PATH"], **(env or {})},
            home=str(self.home),
            rules=rules or self.rules(),
            exposed=(str(self.home / "workspaces" / "mine"),),
        )
        return self.start(wanted)

    def start(self, wanted: Launch) -> Ended:
        """Run what has been prepared to its end."""
        with subprocess.Popen(
            wanted.argv,
            cwd=wanted.cwd,
            env=dict(wanted.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            said = process.communicate(timeout=60)[0]
        # The first process of a namespace outlives the one that was started by a moment.
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-process.pid, 0)
        return Ended(process.returncode, said.decode(errors="replace"))

    def faults(self) -> Iterator[str]:
        """Yield what an attempt has managed to do."""
        if self.victim.poll() is not None:
            yield "it ended a process outside"
        for path in self.secrets:
            if not path.exists() or path.read_text() != SECRET:
                yield f"it changed {path}"
        found = sorted(str(path.relative_to(self.outside)) for path in self.outside.rglob("*"))
        if found != ["empty", "note"] or (self.outside / "note").read_text() != "old\n":
            yield "it changed something outside"
        status = (self.outside / "note").stat()
        if status.st_mode & 0o7777 != NOTE_MODE or status.st_mtime < 2:
            yield "it changed what is said about a file outside"
        if sorted(path.name for path in self.home.iterdir()) != IN_HOME:
            yield "it changed the daemon's home"
        for name, listener in (("unix", self.unix), ("abstract", self.abstract), ("tcp", self.tcp)):
            try:
                listener.accept()[0].close()
                yield f"it connected to the {name} listener"
            except BlockingIOError:
                pass
        try:
            self.udp.recv(1)
            yield "it sent a datagram"
        except BlockingIOError:
            pass

    def _names(self) -> str:
        port, udp_port = self.tcp.getsockname()[1], self.udp.getsockname()[1]
        return (
            f"HOME, USER, WORK, OUTSIDE = {str(self.home)!r}, {str(self.user)!r}, "
            f"{str(self.work)!r}, {str(self.outside)!r}\n"
            f"VICTIM, PORT, UDP_PORT, ABSTRACT = {self.victim.pid}, {port}, {udp_port}, "
            f"{chr(0) + 'roost-' + self.root.name!r}\n"
            f"TESTER, TERMINAL = {os.getpid()}, {self.terminal!r}\n"
        )

    def _listen(self, family: int, address: object) -> socket.socket:
        listener = self._stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind(address)  # type: ignore[arg-type]  # each family has its own kind
        listener.listen()
        listener.setblocking(False)
        return listener

    def _end_victim(self) -> None:
        self.victim.kill()
        self.victim.wait()
