"""Start and stop the daemon from outside: find its root process, wait until it is ready, end it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import trio

from roost.actors.client.autostart import ask_readiness
from roost.actors.client.connection import peer_of_socket
from roost.actors.client.errors import ClientError
from roost.actors.client.standard_files import open_outputs
from roost.config.errors import ConfigError, HomeError
from roost.config.files import lock_is_held, read_daemon_file
from roost.config.load import load_settings
from roost.config.paths import FILE_MODE, Home, prepare_home
from roost.supervisor import identity
from roost.supervisor.identity import ProcessId
from roost.supervisor.spawn import child_argv, child_env

if TYPE_CHECKING:
    from collections.abc import Mapping


GUARD = "roost.supervisor.guard"
POLL = 0.025
KILL_WAIT = 2.0
GUARD_WAIT = 2.0
CLOCK_SLACK = 2.0
MAX_TAIL = 4096
MAX_STDERR = 1024 * 1024


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the daemon of a home. `root` is its process, `ready` that it answers and is ready."""

    root: ProcessId | None
    ready: bool = False


def daemon_argv(home: Home, overrides: Mapping[str, str]) -> list[str]:
    """Return the command line of the guard above the daemon of a home."""
    app = child_argv("roost.actors.app")
    if home.explicit:
        app += ["--home", str(home.path)]
    for key, value in overrides.items():
        app += ["--set", f"{key}={value}"]
    return child_argv(GUARD, *app)


def exec_daemon(home: Home, overrides: Mapping[str, str]) -> NoReturn:
    """Become the daemon; for service managers and terminals."""
    load_settings(home, os.environ, overrides)
    sys.stdout.flush()
    sys.stderr.flush()
    open_outputs()
    os.execve(sys.executable, daemon_argv(home, overrides), child_env())


def find_root(home: Home) -> ProcessId | None:
    """Return the root process of the daemon of a home, or None if none can be found.

    The kernel names it, if its socket is open; else `daemon.json` does, and then the time of its creation must agree.
    """
    pid = peer_of_socket(home)
    if pid:
        return identity.identify(pid)
    try:
        found = read_daemon_file(home)
    except HomeError:
        return None
    process = identity.identify(found.pid) if found is not None else None
    if found is None or process is None or not lock_is_held(home):
        return None
    if found.process_start and abs(process.created - found.process_start) > CLOCK_SLACK:
        return None
    return process


async def probe(home: Home) -> DaemonState:
    """Return what is known of the daemon of a home, after asking it once."""
    root = find_root(home)
    ready = await ask_readiness(home)
    if ready is None:
        return DaemonState(root=root)
    return DaemonState(root=root or find_root(home), ready=ready)


async def start_daemon(home: Home, overrides: Mapping[str, str]) -> DaemonState:
    """Start the daemon of a home detached, and return when it is ready.

    Of two that start one at the same time, one daemon remains and both return it. When cancelled, the daemon goes on.

    Raises:
        ConfigError: the home or the configuration is not as it must be.
        ClientError: it ended, with its last words, or was not ready in time.
    """
    settings = load_settings(home, os.environ, overrides).settings
    prepare_home(home)
    log = os.open(
        home.daemon_stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE
    )
    try:
        if os.fstat(log).st_size > MAX_STDERR:
            os.ftruncate(log, 0)
        before = os.fstat(log).st_size
        pid = _spawn_detached(daemon_argv(home, overrides), log)
    finally:
        os.close(log)
    with trio.move_on_after(settings.daemon.ready_timeout):
        return await _wait_ready(home, pid, before)
    raise ClientError(
        f"the daemon runs (pid {pid}) and was not ready within {settings.daemon.ready_timeout:g} s; "
        f"see {home.daemon_log}"
    )


def _spawn_detached(argv: list[str], output: int) -> int:
    return os.posix_spawn(
        argv[0],
        argv,
        child_env(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
    )


async def _wait_ready(home: Home, guard: int, before: int) -> DaemonState:
    ended: int | None = None
    while True:
        state = await probe(home)
        if state.ready:
            return state
        if ended is None:
            ended = _exit_status(guard)
        # One that ended because another daemon was faster leaves that one to wait for.
        if ended is not None and not lock_is_held(home):
            raise ClientError(_last_words(home, before, ended))
        await trio.sleep(POLL)


def _exit_status(pid: int) -> int | None:
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if reaped else None


def _last_words(home: Home, before: int, status: int) -> str:
    with home.daemon_stderr.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(before, size - MAX_TAIL))
        text = file.read().decode("utf-8", "replace").strip()
    said = text or "it said nothing"
    return f"the daemon ended before it was ready (status {status}):\n{said}"


async def stop_daemon(home: Home, within: float | None = None) -> ProcessId | None:
    """Stop the daemon of a home and return the process that was its root, or None if none ran.

    SIGTERM, then SIGKILL when the time is over; the guard above root ends what is left. When cancelled, the daemon has
    been asked to stop and goes on stopping.

    Raises:
        ClientError: it could not be found although one holds the home, or it survived.
    """
    root = find_root(home)
    if root is None:
        if lock_is_held(home):
            raise ClientError(
                f"a daemon holds {home.path} and does not answer yet; it starts or stops: try again"
            )
        return None
    if within is None:
        within = _stop_timeout(home)
    guard = _guard_of(root)
    identity.send_signal(root, signal.SIGTERM)
    if not await _wait_ended(root, within):
        identity.send_signal(root, signal.SIGKILL)
        if not await _wait_ended(root, KILL_WAIT):
            raise ClientError(f"the daemon (pid {root.pid}) survived SIGKILL")
    if guard is not None:
        await _wait_ended(guard, GUARD_WAIT)
    return root


def _guard_of(root: ProcessId) -> ProcessId | None:
    guard = identity.parent(root.pid)
    if guard is None:
        return None
    try:
        command = Path(f"/proc/{guard.pid}/cmdline").read_bytes()
    except OSError:
        return None
    return guard if GUARD.encode() in command else None


def _stop_timeout(home: Home) -> float:
    """Return how long a stop may take; a broken configuration must not keep the daemon from being stopped."""
    try:
        return load_settings(home, os.environ).settings.daemon.stop_timeout + 1.0
    except ConfigError:
        return 11.0


async def _wait_ended(process: ProcessId, within: float) -> bool:
    with trio.move_on_after(within):
        while True:
            if not identity.is_running(process):
                return True
            await trio.sleep(POLL)
    return False
