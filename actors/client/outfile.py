"""Files that appear whole or not at all, and an end by SIGTERM that cleans up."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NoReturn

from roost.actors.client.errors import ClientError
from roost.config.paths import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Generator

    from roost.config.paths import Home

TERMINATED: Final = 128 + signal.SIGTERM
KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
# Of the files in a home; a store that was set aside may be replaced.
OWN_FILES: Final = (
    "store.db",
    "store.lock",
    "store.reserve",
    "daemon.",
    "config.toml",
    "auth.json",
)


@contextlib.contextmanager
def ended_by_sigterm() -> Generator[None]:
    """Leave the block with `SystemExit` 143 on SIGTERM, so that what is unfinished is removed."""

    def leave(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def temporary_beside(path: Path) -> Generator[Path]:
    """Make an empty file in the folder of `path`, for the owner alone; it is removed if it is still there at the end.

    Raises:
        ClientError: the folder does not allow it.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.close(os.open(temporary, flags, FILE_MODE))
    except OSError as error:
        raise ClientError(f"cannot write in {path.parent}: {error.strerror}") from None
    try:
        yield temporary
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def put_in_place(temporary: Path, path: Path) -> None:
    """Make a finished file durable and give it its name."""
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def check_target(home: Home, name: str) -> Path:
    """Return the file that a name stands for, through links: it is made, or replaced.

    Raises:
        ClientError: what is there is no regular file, or one of the daemon's own.
    """
    target = Path(os.path.realpath(name))
    kind = _kind(target)
    if kind:
        raise ClientError(f"{name} is {kind}, which is not replaced; name a file")
    refuse_own_file(home, name, target)
    return target


def refuse_own_file(home: Home, name: str, target: Path) -> None:
    """Refuse to write over what the daemon works with.

    Raises:
        ClientError: the file is in its home, under a name that it uses.
    """
    if str(target.parent) != os.path.realpath(home.path):
        return
    if target.name == home.store.name:
        raise ClientError(f"{name} is the store itself")
    if target.name.startswith(OWN_FILES):
        raise ClientError(f"{name} is a file of the daemon")


def _kind(path: Path) -> str:
    """Return what is at a path, if it is anything but a regular file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    return KINDS.get(stat.S_IFMT(mode), "no regular file")


def check_place(path: Path) -> None:
    """See that at a path there is nothing, or a file that may be replaced.

    Raises:
        ClientError: there is something else, a link among it.
    """
    kind = _kind(path)
    if kind:
        raise ClientError(f"{path} is {kind}, not a file; move it away")


@contextlib.contextmanager
def new_file(home: Home, name: str) -> Generator[IO[bytes]]:
    """Write a file that gets its name when the block ends without an error; a device or a pipe is written to as it is.

    Raises:
        ClientError: it cannot be written, or is one of the daemon's own.
    """
    try:
        with _opened(home, name) as file:
            yield file
    except OSError as error:
        raise ClientError(f"cannot write {name}: {error.strerror}") from None


@contextlib.contextmanager
def _opened(home: Home, name: str) -> Generator[IO[bytes]]:
    path = Path(os.path.realpath(name))
    if _kind(path):
        with path.open("wb") as file:
            yield file
        return
    refuse_own_file(home, name, path)
    with temporary_beside(path) as temporary:
        with temporary.open("wb") as file:
            yield file
        check_target(home, name)
        put_in_place(temporary, path)
