"""The small files of a running daemon: cookie, lock, pid, and `daemon.json`, by which clients find it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from typing import TYPE_CHECKING

import msgspec

from roost.config.errors import AlreadyRunning, HomeError
from roost.config.paths import FILE_MODE, Home, read_regular, repair_file

if TYPE_CHECKING:
    from pathlib import Path

MAX_SMALL_FILE = 64 * 1024


class DaemonFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `daemon.json` says: the process that holds the home, and where it listens.

    `created_at` is when that process was created, to tell it from a later one with the same pid.
    """

    pid: int
    created_at: str
    version: str
    socket: str
    websocket: str | None = None
    process_start: float = 0.0


_decoder = msgspec.json.Decoder(DaemonFile)


def ensure_cookie(home: Home) -> str:
    """Return the cookie of the home; make one if there is none, whoever else does the same at the moment.

    Raises:
        HomeError: the cookie's file is no regular file, or another user's.
    """
    for _ in range(3):
        if repair_file(home.cookie):
            cookie = read_small(home.cookie).strip()
            if cookie:
                return cookie
            home.cookie.unlink(missing_ok=True)
        temporary = write_temporary(home.cookie, f"{secrets.token_hex(32)}\n")
        try:
            # Unlike a rename, a link fails if the name has appeared meanwhile: the first one counts.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, home.cookie)
        finally:
            temporary.unlink(missing_ok=True)
    raise HomeError(f"cannot make {home.cookie}: something removes it again and again")


def read_cookie(home: Home) -> str:
    """Return the cookie of the home.

    Raises:
        HomeError: there is none, or it cannot be read.
    """
    cookie = read_small(home.cookie).strip()
    if not cookie:
        raise HomeError(f"{home.cookie} is empty; start the daemon with `roost up`")
    return cookie


def take_lock(home: Home) -> int:
    """Return a file descriptor that holds the lock of the home as long as it is open; no child inherits it.

    Raises:
        AlreadyRunning: another daemon holds it.
        HomeError: the lock file cannot be opened.
    """
    repair_file(home.lock)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(home.lock, flags, FILE_MODE)
    except OSError as error:
        raise HomeError(f"cannot open {home.lock}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AlreadyRunning(str(home.path), read_pid(home)) from None
    return lock


def lock_is_held(home: Home) -> bool:
    """Return whether a daemon holds the lock of the home at this moment."""
    try:
        lock = os.open(home.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def write_daemon_file(home: Home, daemon: DaemonFile) -> None:
    """Replace `daemon.json` and `daemon.pid` as wholes."""
    body = msgspec.json.format(msgspec.json.encode(daemon), indent=2).decode() + "\n"
    write_temporary(home.daemon_file, body).replace(home.daemon_file)
    write_temporary(home.pid_file, f"{daemon.pid}\n").replace(home.pid_file)


def read_daemon_file(home: Home) -> DaemonFile | None:
    """Return what `daemon.json` says, or None if there is none.

    Raises:
        HomeError: it cannot be read.
    """
    try:
        text = read_small(home.daemon_file)
    except HomeError:
        if not home.daemon_file.exists():
            return None
        raise
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise HomeError(f"{home.daemon_file} is damaged ({error}); remove it") from None


def remove_daemon_files(home: Home, pid: int) -> None:
    """Remove `daemon.json` and `daemon.pid` if they are those of process `pid`."""
    if read_pid(home) == pid:
        home.daemon_file.unlink(missing_ok=True)
        home.pid_file.unlink(missing_ok=True)


def read_pid(home: Home) -> int | None:
    """Return the pid in `daemon.pid`, or None; whether that process lives, or is ours, is another question."""
    try:
        text = read_small(home.pid_file).strip()
    except HomeError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def read_small(path: Path) -> str:
    """Return the text of a small file.

    Raises:
        HomeError: it cannot be read, or is not small.
    """
    try:
        data = read_regular(path, MAX_SMALL_FILE + 1)
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_SMALL_FILE:
        raise HomeError(f"{path} is larger than {MAX_SMALL_FILE} bytes")
    return data.decode("utf-8", "replace")


def write_temporary(path: Path, text: str) -> Path:
    """Write a file beside `path`, readable for the owner only, and return its path."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(temporary, flags, FILE_MODE)
    except OSError as error:
        raise HomeError(f"cannot write in {path.parent}: {error.strerror}") from None
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise HomeError(f"cannot write {temporary}: {error.strerror}") from None
    return temporary
