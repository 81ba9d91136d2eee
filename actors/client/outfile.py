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

TERMINATED: Final = 128 + signal.SIGTERM


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


@contextlib.contextmanager
def new_file(path: Path) -> Generator[IO[bytes]]:
    """Write a file that gets its name when the block ends without an error; a device or a pipe is written to as it is.

    Raises:
        ClientError: it cannot be written.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            with path.open("wb") as file:
                yield file
            return
    path = Path(os.path.realpath(path))
    with temporary_beside(path) as temporary:
        with temporary.open("wb") as file:
            yield file
        put_in_place(temporary, path)
