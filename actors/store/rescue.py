"""Sets damaged files aside, and goes on with a new one that holds everything of them that can be proved.

The log is taken whole, its damaged frames included, as if SQLite had accepted them: a bit that fell over in one frame
costs at most the rows in its page, while SQLite would have dropped every commit after it. That is safe because no event
is taken over whose checksum is wrong, and the tables are built anew row by row. Where a damaged frame replaced an
earlier version of its page, the events of that version are looked at too.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from roost.actors.store.database import open_database, write_meta
from roost.actors.store.pages import Pages
from roost.actors.store.replacing import FOLDER, SUFFIXES, mark, suspect, sync
from roost.actors.store.salvage import lost_ranges, salvage
from roost.actors.store.wal import (
    DEFAULT_PAGE,
    INDEX,
    Contents,
    contents,
    index_of,
    missing_frames,
    scan,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roost.actors.store.wal import Wal

KEEP: Final = 3
AGAIN_SECONDS: Final = 300.0
MAGIC: Final = b"SQLite format 3\0"
MAX_TOLD: Final = 50
MAX_LINES: Final = 10_000
ROOT_KINDS: Final = frozenset({0x05, 0x0D})

_log = logging.getLogger(__name__)

LOSS: Final = "loss: yes"
EMPTY: Final = "an empty one, for the first page of the old one is gone"

README = """The daemon's store was found damaged when it was opened: {reason}.

The files in this folder are copies of what was found then (store.db, its write-ahead log and index); nothing has been
changed in them. The daemon went on with a new store.db: {outcome}.
report.txt says what was lost. Of folders like this one the newest {keep} are kept; each may be deleted.
"""


class Rescued(NamedTuple):
    """What became of the files: the folder with the copies, and how many events of how many sessions are gone."""

    folder: Path
    anew: bool
    sessions: int
    events: int


class Filled(NamedTuple):
    """What came over into a new file: lines for people, what is known to be gone, and whether anything is."""

    lines: tuple[str, ...] = ()
    sessions: int = 0
    events: int = 0
    loss: bool = False

    @property
    def outcome(self) -> str:
        """Return it in a sentence."""
        lost = f"{self.events} events of {self.sessions} sessions are lost"
        return f"everything that could be read is in it; {lost}, as far as that can be told"


def rescue(path: Path, reason: str, *, anew: bool = False) -> Rescued:
    """Set the files of the database at `path` aside and put a sound one in their place, an empty one if that is asked.

    Raises:
        sqlite3.Error, OSError: the disk does not take it; the files are as they were.
    """
    folder = _set_aside(path)
    _log.error("the store is damaged (%s); copies are in %s", reason, folder)
    fresh = path.with_name(path.name + ".new")
    _remove(fresh)
    image = folder / "image"
    missing = lacking(path, read_wal(path), with_bad=True)
    try:
        older = _make_image(path, image)
        anew = anew or not _first_page_usable(image)
        found = Filled() if anew else _fill(image, older, fresh, missing)
        if anew:
            open_database(fresh, wal_autocheckpoint=4000).close()
        _replace(path, fresh, folder)
    finally:
        _remove(fresh)
        image.unlink(missing_ok=True)
    outcome = EMPTY if anew else found.outcome
    _log.error("the store goes on with a new file: %s", outcome)
    suspect(path).unlink(missing_ok=True)
    _write(folder / "README.txt", README.format(reason=reason, outcome=outcome, keep=KEEP))
    loss = LOSS if anew or found.loss else "loss: none"
    lines = [f"damage: {reason}", loss, outcome, *found.lines]
    _write(folder / "report.txt", "\n".join(lines) + "\n")
    _prune(folder.parent)
    return Rescued(folder, anew, found.sessions, found.events)


def read_wal(path: Path, *, trusted: int = 0) -> Wal:
    """Return what is in the write-ahead log of the database at `path`."""
    wal = path.with_name(path.name + "-wal")
    data = wal.read_bytes() if wal.exists() else b""
    return scan(data, page_size=_page_size(path), trusted=trusted)


def lacking(path: Path, wal: Wal, *, with_bad: bool = False) -> int:
    """Return how many committed frames the log of the database at `path` lacks at its end; a power cut leaves none out."""
    index = path.with_name(path.name + "-shm")
    log = path.with_name(path.name + "-wal")
    try:
        with index.open("rb") as file:
            known = index_of(file.read(2 * INDEX + 4))
        salts = b""
        if log.exists():
            with log.open("rb") as file:
                salts = file.read(32)[16:24]
    except OSError:
        return 0
    return missing_frames(wal, known, salts, with_bad=with_bad)


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    parent = path.parent / FOLDER
    parent.mkdir(mode=0o700, exist_ok=True)
    folder = parent / stamp
    number = 1
    while folder.exists():
        number += 1
        folder = parent / f"{stamp}-{number}"
    folder.mkdir(mode=0o700)
    try:
        for suffix in SUFFIXES:
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, folder / source.name)
                (folder / source.name).chmod(0o600)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _make_image(path: Path, image: Path) -> list[bytes]:
    """Write the database as it is with all of its log; return the older versions of pages in damaged frames."""
    wal = read_wal(path)
    held = contents(wal)
    size = wal.page_size
    older: list[bytes] = []
    if path.exists():
        shutil.copyfile(path, image)
    else:
        image.touch(mode=0o600)
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes() if wal.frames else b""
    bad_pages = {frame.page for frame in wal.frames if not frame.good}
    with image.open("r+b") as file:
        for page in sorted(bad_pages):
            file.seek((page - 1) * size)
            before = file.read(size)
            if page > 1 and len(before) == size:
                older.append(before)
        older += [data[at : at + size] for _, at in held.older]
        _apply(file.fileno(), data, held, size)
    return older


def _apply(fd: int, data: bytes, held: Contents, size: int) -> None:
    if not held.pages:
        return
    # A page number that fell over may lie anywhere: what is far outside is not written.
    count = max(held.size, os.fstat(fd).st_size // size)
    for page, at in held.pages.items():
        if page <= count:
            os.pwrite(fd, data[at : at + size], (page - 1) * size)
    whole = os.fstat(fd).st_size
    os.ftruncate(fd, -(-whole // size) * size)


def _fill(image: Path, older: list[bytes], fresh: Path, missing: int) -> Filled:
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            salvaged = salvage(Pages(view, _page_size(image)), older, fresh)
        finally:
            view.release()
    connection = open_database(fresh, wal_autocheckpoint=4000)
    try:
        lines = [*salvaged.notes]
        lines += [
            f"{table}: {count} rows cannot be read" for table, count in salvaged.dropped.items()
        ]
        told = 0
        sessions: set[str] = set()
        events = 0
        for session_id, first, last in lost_ranges(connection):
            sessions.add(session_id)
            events += last - first + 1
            line = f"session {session_id}: the events {first} to {last} are lost"
            if len(lines) < MAX_LINES:
                lines.append(line)
            if told < MAX_TOLD:
                told += 1
                _log.error("%s", line)
        for note in salvaged.notes[:MAX_TOLD]:
            _log.error("%s", note)
        if missing:
            line = f"the log lacks {missing} committed pages at its end; whose events were there cannot be told"
            lines.append(line)
            _log.error("%s", line)
        loss = bool(sessions or salvaged.notes or missing)
        if loss:
            write_meta(connection, "epoch", secrets.token_hex(8))
        write_meta(connection, "rescued_at", str(int(time.time())))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    finally:
        connection.close()
    return Filled(tuple(lines), len(sessions), events, loss)


def _first_page_usable(image: Path) -> bool:
    """Return whether the first page is a database's, a few bits of it apart."""
    with image.open("rb") as file:
        head = file.read(DEFAULT_PAGE)
    if len(head) < DEFAULT_PAGE:
        return False
    same = sum(a == b for a, b in zip(head, MAGIC, strict=False))
    return same >= len(MAGIC) - 4 and any(head[100:])


def _page_size(path: Path) -> int:
    with suppress(OSError), path.open("rb") as file:
        said = int.from_bytes(file.read(18)[16:18], "big")
        said = 65_536 if said == 1 else said
        if said >= 512 and said & (said - 1) == 0:
            return said if said == DEFAULT_PAGE or not _fits_default(path) else DEFAULT_PAGE
    return DEFAULT_PAGE


def _fits_default(path: Path) -> bool:
    """Return whether the second page of the usual size looks like one of a store: every store is made with it."""
    with path.open("rb") as file:
        file.seek(DEFAULT_PAGE)
        # A pointer map: its first entries are of roots of trees.
        return file.read(1) in {b"\x01", b"\x02", b"\x05"}


def _replace(path: Path, fresh: Path, folder: Path) -> None:
    """Put the new file in the place of the old ones; cut short, `resume` begins again with the copies."""
    for file in (fresh, *folder.iterdir()):
        sync(file)
    _write(mark(path), folder.name)
    sync(mark(path))
    sync(folder)
    sync(path.parent)
    # The old log must not be taken for the new file's.
    for suffix in SUFFIXES[1:]:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.replace(path)
    sync(path.parent)
    mark(path).unlink()
    # If it came back after a power cut, the copies would be put over all that was written since.
    sync(path.parent)


def _prune(parent: Path) -> None:
    folders = sorted((entry for entry in parent.iterdir() if entry.is_dir()), key=_age)
    for folder in folders[:-KEEP]:
        _log.warning("older copies of a damaged store are deleted: %s", folder)
        shutil.rmtree(folder, ignore_errors=True)


def _age(folder: Path) -> tuple[str, int]:
    stamp, _, number = folder.name.partition("-")
    return stamp, int(number) if number.isdigit() else 0


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def newest_report(home: Path) -> Path | None:
    """Return the report of the last rescue that is still kept, or None."""
    parent = home / FOLDER
    if not parent.is_dir():
        return None
    found = [entry for entry in parent.iterdir() if (entry / "report.txt").is_file()]
    return max(found, key=_age) / "report.txt" if found else None


def rescued_lately(path: Path, now: float) -> bool:
    """Return whether the file at `path` was built anew a moment ago: to do so again would be of no use."""
    report = newest_report(path.parent)
    return report is not None and now - report.stat().st_mtime < AGAIN_SECONDS
