"""What may be wrong around a daemon, each finding with what to do about it. Looks, and changes nothing."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

from roost.actors.client.doctor_files import Finding, look_at_key, look_at_modes, look_at_store
from roost.actors.client.launch import find_root
from roost.actors.sandbox.probe import find_backend
from roost.config.errors import ConfigError, HomeError, SettingsError
from roost.config.files import lock_is_held, read_daemon_file, read_pid
from roost.config.load import default_settings, load_settings
from roost.config.model import VERSION
from roost.config.paths import Home, check_home
from roost.config.sockets import probe_socket
from roost.supervisor import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roost.config.model import Sandbox, Settings

LOW_DISK = 512 * 1024 * 1024
LOW_INODES = 1_000
LOW_FILES = 1_024
CLOCK_SLACK = 60.0


def examine(home: Home, *, answers: bool) -> Iterator[Finding]:
    """Look at everything; `answers` says whether the daemon has just answered."""
    yield _python()
    yield from _home(home)
    settings, finding = _settings(home)
    yield finding
    yield from _daemon(home, answers=answers)
    if settings is not None:
        yield from _port(home, settings)
    yield from _disk(home, settings)
    yield from _clock(home)
    yield _sandbox((settings or default_settings()).sandbox)
    yield _open_files()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("ok", "python", f"Python {version}, roost {VERSION}")


def _home(home: Home) -> Iterator[Finding]:
    if not home.path.exists() and not home.path.is_symlink():
        yield Finding("note", "home", f"{home.path} is not there yet", "`roost up` makes it")
        return
    try:
        check_home(home)
    except HomeError as error:
        yield Finding("problem", "home", str(error), "until then the daemon does not start")
        return
    yield Finding("ok", "home", str(home.path))
    yield from look_at_modes(home)
    yield from look_at_key(home)
    yield from look_at_store(home)


def _settings(home: Home) -> tuple[Settings | None, Finding]:
    try:
        loaded = load_settings(home, os.environ)
    except SettingsError as error:
        return None, Finding(
            "problem", "config", str(error), "until then the daemon does not start"
        )
    changed = ", ".join(sorted(loaded.origins)) or "all defaults"
    return loaded.settings, Finding("ok", "config", changed)


def _daemon(home: Home, *, answers: bool) -> Iterator[Finding]:
    """Look at the daemon's process, its files and its socket."""
    held = lock_is_held(home)
    root = find_root(home)
    found = probe_socket(home.socket)
    pid = f" (pid {root.pid})" if root is not None else ""
    if answers:
        yield Finding("ok", "daemon", f"answers{pid}")
        yield from _version(home)
        return
    if held:
        advice = f"it starts, stops or hangs; see {home.daemon_log}; `roost down` ends it"
        yield Finding("problem", "daemon", f"runs{pid} and does not answer", advice)
        return
    yield Finding("note", "daemon", "does not run", "`roost up` starts it")
    pid_there = read_pid(home)
    if pid_there is not None:
        yield _stale_pid(home, pid_there)
    elif home.daemon_file.exists():
        yield _stale_file(home)
    if found == "stale":
        text = f"{home.socket} is left from a daemon that is gone"
        yield Finding("problem", "socket", text, "`roost up` replaces it")
    elif found == "foreign":
        text = f"{home.socket} is not a socket"
        yield Finding("problem", "socket", text, "move it away; the daemon does not start before")
    elif found == "alive":
        text = f"something else answers at {home.socket}"
        yield Finding(
            "problem", "socket", text, "end that program; the daemon does not start before"
        )


def _stale_pid(home: Home, pid: int) -> Finding:
    living = identity.identify(pid) is not None
    text = f"{home.pid_file} names process {pid}, which " + (
        "is not the daemon" if living else "is gone"
    )
    return Finding("problem", "pid", text, f"`roost up` replaces it, or: rm {home.pid_file}")


def _stale_file(home: Home) -> Finding:
    text = f"{home.daemon_file} is left from a daemon that is gone"
    return Finding("problem", "pid", text, f"`roost up` replaces it, or: rm {home.daemon_file}")


def _version(home: Home) -> Iterator[Finding]:
    try:
        found = read_daemon_file(home)
    except HomeError as error:
        yield Finding("problem", "daemon", str(error), "`roost restart` writes it again")
        return
    if found is not None and found.version != VERSION:
        text = f"the daemon is version {found.version}, this command {VERSION}"
        yield Finding("problem", "version", text, "`roost restart`")


def _port(home: Home, settings: Settings) -> Iterator[Finding]:
    """See whether the port is free, unless the daemon has it."""
    websocket = settings.websocket
    if not websocket.enabled or websocket.port == 0 or lock_is_held(home):
        return
    host = websocket.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, websocket.port))
        except OSError as error:
            text = f"port {websocket.port} on {host} cannot be used: {error.strerror}"
            advice = "end what listens there, or set websocket.port to another port or 0"
            yield Finding("problem", "port", text, advice)
            return
    yield Finding("ok", "port", f"{websocket.port} on {host} is free")


def _disk(home: Home, settings: Settings | None) -> Iterator[Finding]:
    """See whether there is room, above all for what the store insists on."""
    path = next(p for p in (home.path, *home.path.parents) if p.exists())
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    least = max(LOW_DISK, settings.store.min_free_mib * 1_048_576 if settings else 0)
    if free < least:
        text = f"only {free // 1_048_576} MiB are free at {path}, {least // 1_048_576} are wanted"
        yield Finding("problem", "disk", text, "make room: without it no message can be accepted")
    elif found.f_files and found.f_favail < LOW_INODES:
        text = f"only {found.f_favail} files can be made at {path}"
        yield Finding("problem", "disk", text, "remove files: without it nothing can be written")
    else:
        yield Finding("ok", "disk", f"{free // 1_048_576} MiB free")


def _clock(home: Home) -> Iterator[Finding]:
    """Compare the clock with the newest thing in the home: time does not run backwards."""
    newest = max(_times(home), default=0.0)
    behind = newest - time.time()
    if behind > CLOCK_SLACK:
        text = f"the clock is {int(behind)} s behind the newest file in {home.path}"
        yield Finding("problem", "clock", text, "set the clock (timedatectl set-ntp true)")
    else:
        yield Finding("ok", "clock", time.strftime("%Y-%m-%d %H:%M:%S %z"))


def _times(home: Home) -> Iterator[float]:
    logs = home.logs.glob("*") if home.logs.is_dir() else ()
    written = (
        home.daemon_file,
        home.store,
        home.store.with_name("store.db-wal"),
        home.cookie,
        *logs,
    )
    for path in written:
        try:
            yield path.lstat().st_mtime
        except OSError:
            continue
    try:
        found = read_daemon_file(home)
        if found is not None:
            yield datetime.fromisoformat(found.created_at).timestamp()
    except (ConfigError, ValueError):
        return


def _sandbox(rules: Sandbox) -> Finding:
    """See what can hold an agent's commands, as the daemon does at its start."""
    found = find_backend(rules)
    if not found.name:
        advice = "commands run only for agents created with --sandbox dangerFullAccess"
        return Finding("note", "sandbox", f"no sandbox is available: {found.detail}", advice)
    if found.name == "landlock" and rules.backend == "auto":
        advice = "with bubblewrap (bwrap) and user namespaces more is kept from commands"
        return Finding("note", "sandbox", found.detail, advice)
    return Finding("ok", "sandbox", found.detail)


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LOW_FILES:
        text = f"only {hard} files may be open in one process"
        return Finding("problem", "limits", text, "raise the hard limit (ulimit -Hn)")
    return Finding("ok", "limits", "enough open files")
