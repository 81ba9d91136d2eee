"""The two files beside the database that speak of a rescue, and what is done if one was cut short."""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "damaged"
REPLACED: Final = "replaced"
SUFFIXES: Final = ("", "-wal", "-shm")

_log = logging.getLogger(__name__)


def suspect(path: Path) -> Path:
    """Return the file that says, while it exists, that the database at `path` has to be built anew at the next start."""
    return path.with_name(path.name + ".suspect")


def resume(path: Path) -> None:
    """Undo the replacing of files that was cut short: the copies are put back, to be gone on with.

    What is in their place is kept in a folder beside them: somebody may have put it there since.
    """
    marker = mark(path)
    if not marker.exists():
        return
    folder = cut_short(path)
    if folder is not None:
        _put_back(path, folder)
    marker.unlink()
    sync(path.parent)


def settle(path: Path) -> None:
    """Take the database that is at `path` now as it is: no rescue of an earlier one is gone on with, or asked for."""
    for marker in (mark(path), suspect(path)):
        marker.unlink(missing_ok=True)
    sync(path.parent)


def cut_short(path: Path) -> Path | None:
    """Return the folder with the copies of a rescue that was cut short while it replaced the files, or None."""
    try:
        name = mark(path).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    folder = path.parent / FOLDER / name
    return folder if name and folder.is_dir() else None


def _put_back(path: Path, folder: Path) -> None:
    """Put the copies in the place of the files. Cut short it can be done again; if the disk does not take them, nothing is moved."""
    names = [path.name + suffix for suffix in SUFFIXES]
    ready: list[tuple[Path, Path]] = []
    try:
        for name in names[:2]:
            if (folder / name).is_file():
                copy = path.with_name(f"{name}.back")
                ready.append((copy, path.with_name(name)))
                shutil.copyfile(folder / name, copy)
                copy.chmod(0o600)
                sync(copy)
        if ready:
            _move_away(path, folder)
        for copy, target in reversed(ready):
            copy.replace(target)
        sync(path.parent)
    finally:
        for copy, _ in ready:
            copy.unlink(missing_ok=True)


def _move_away(path: Path, folder: Path) -> None:
    there = [
        one for one in (path.with_name(path.name + suffix) for suffix in SUFFIXES) if one.exists()
    ]
    if not there:
        return
    kept = folder / REPLACED
    number = 1
    while kept.exists():
        number += 1
        kept = folder / f"{REPLACED}-{number}"
    kept.mkdir(mode=0o700)
    for file in there:
        # The folder of copies may be on another disk.
        shutil.move(file, kept / file.name)
    _log.warning(
        "the copies in %s are put back; what was in their place is now in %s", folder, kept
    )


def mark(path: Path) -> Path:
    """Return the file that names, while it exists, the folder with the copies of the files that are being replaced."""
    return path.with_name(path.name + ".replacing")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
