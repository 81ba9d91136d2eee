"""The store over damaged files: what is opened, what is served of each session, and what is said of the rest."""

from __future__ import annotations

import random
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
import trio

from roost.actors.store.database import MIGRATIONS, open_database
from roost.actors.store.opening import find_damage, make_sound
from roost.actors.store.replacing import FOLDER, suspect
from roost.actors.store.rescue import KEEP, LOSS, newest_report, read_wal, rescue
from roost.actors.store.stamp import stamp
from roost.actors.store.wal import FRAME, HEADER
from roost.schemas import session
from roost.schemas.base import Refused
from tests.support.damage import FILES, Log, behind_damage, cut, damage, fill, flip, left_of
from tests.support.desk import Book
from tests.support.store import delta, running_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096
STEP = FRAME + PAGE
PLACES = 200
GONE = {"EVENT_SCHEMA_INCOMPATIBLE", "SESSION_NOT_FOUND"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Log]:
    """The files of a store that was killed: half of its events are in its log, under which an older round lies."""
    home = tmp_path_factory.mktemp("whole")
    book = Book(home)
    log = fill(book)
    kept = tmp_path_factory.mktemp("kept")
    for name in FILES:
        shutil.copy(home / name, kept / name)
    book.close()
    return kept, log


def copy_of(kept: Path, home: Path) -> Path:
    home.mkdir(exist_ok=True)
    for name in FILES:
        shutil.copy(kept / name, home / name)
    return home / "store.db"


def opened(home: Path) -> Book:
    make_sound(home / "store.db", wal_autocheckpoint=4000, cold=True)
    return Book(home)


def report(home: Path) -> str:
    found = newest_report(home)
    return "" if found is None else found.read_text()


def check_served(book: Book, log: Log, *, silent: bool = False) -> list[str]:
    """See that each session is served whole, or up to an error that names it; return those that are not whole."""
    short: list[str] = []
    for session_id, bodies in log.bodies.items():
        left = left_of(book, session_id)
        assert left.bodies == bodies[: len(left.bodies)]
        if len(left.bodies) == len(bodies):
            continue
        short.append(session_id)
        if not silent:
            assert left.code in GONE
            assert session_id in left.message
        if left.code == "EVENT_SCHEMA_INCOMPATIBLE":
            assert f"event {len(left.bodies) + 1} of" in left.message
            assert set(behind_damage(book, session_id)) <= set(bodies)
    return short


@pytest.mark.parametrize("part", range(4))
def test_damage_at_random_places_keeps_no_session_back(
    whole: tuple[Path, Log], tmp_path: Path, part: int
) -> None:
    kept, log = whole
    words = random.Random(part)
    for number in range(PLACES // 4):
        home = tmp_path / str(number)
        copy_of(kept, home)
        done = damage(home, words)
        book = opened(home)
        anew = "empty one" in report(home)
        torn = done.startswith("store.db-wal") and not report(home)
        # A log without its end is what a crash leaves, too: nothing tells what was there.
        short = check_served(book, log, silent=anew or torn)
        if "-wal bit" in done:
            assert len(short) <= 1, done
        book.close()
        shutil.rmtree(home)


def test_a_bit_in_the_middle_of_the_log_costs_no_commit_behind_it(
    whole: tuple[Path, Log], tmp_path: Path
) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    wal = path.with_name("store.db-wal")
    data = wal.read_bytes()
    # Inside the text of an event, in the first frame that is a page of events.
    at = next(at for at in range(HEADER, len(data), STEP) if b"xxxxxxxxxx" in data[at : at + STEP])
    flip(wal, data.index(b"xxxxxxxxxx", at))
    book = opened(tmp_path)
    check_served(book, log)
    assert "the write-ahead log is damaged" in report(tmp_path)
    assert (newest_folder(tmp_path) / "README.txt").is_file()
    for name in FILES:
        assert (newest_folder(tmp_path) / name).is_file()
    book.close()


def newest_folder(home: Path) -> Path:
    found = newest_report(home)
    assert found is not None
    return found.parent


def test_the_loss_in_the_log_is_named_by_session_and_renews_the_epoch(
    whole: tuple[Path, Log], tmp_path: Path
) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    before = meta(path, "epoch")
    path = copy_of(kept, tmp_path)
    wal = path.with_name("store.db-wal")
    data = bytearray(wal.read_bytes())
    hit = 0
    for at in range(HEADER, len(data) - 8 * STEP, STEP):
        # The same event in every version of its page.
        place = data.find(b"x" * 40, at + FRAME, at + STEP)
        while place >= 0:
            data[place + 5] ^= 1
            hit += 1
            place = data.find(b"x" * 40, place + 40, at + STEP)
    assert hit
    wal.write_bytes(data)
    book = opened(tmp_path)
    short = check_served(book, log)
    assert short
    for session_id in short:
        assert f"session {session_id}: the events" in report(tmp_path)
    assert meta(path, "epoch") != before
    # No sequence is given again.
    for session_id in short:
        assert book.row(session_id).last_sequence >= len(log.bodies[session_id])
    book.close()


def meta(path: Path, key: str) -> str:
    connection = sqlite3.connect(path)
    try:
        row = connection.execute("select value from meta where key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])
    finally:
        connection.close()


def test_a_torn_tail_of_the_log_is_left_to_sqlite(whole: tuple[Path, Log], tmp_path: Path) -> None:
    kept, _ = whole
    path = copy_of(kept, tmp_path)
    assert not find_damage(path)
    cut(path.with_name("store.db-wal"), HEADER + 5 * STEP - 100)
    assert not find_damage(path)
    assert opened(tmp_path).connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert not (tmp_path / FOLDER).exists()


def test_a_zeroed_page_costs_what_was_in_it(whole: tuple[Path, Log], tmp_path: Path) -> None:
    kept, log = whole
    for page in range(2, (kept / "store.db").stat().st_size // PAGE + 1, 7):
        home = tmp_path / str(page)
        path = copy_of(kept, home)
        with path.open("r+b") as file:
            file.seek((page - 1) * PAGE)
            file.write(bytes(PAGE))
        book = opened(home)
        assert len(check_served(book, log)) < len(log.bodies)
        book.close()


def test_a_report_counts_only_what_is_lost(tmp_path: Path) -> None:
    book = Book(tmp_path)
    log = fill(book)
    book.close()
    path = tmp_path / "store.db"
    rescue(path, "to see")
    said = report(tmp_path)
    assert "0 events of 0 sessions are lost" in said
    assert "cannot be read" not in said
    assert "the file lacks" not in said
    book = Book(tmp_path)
    assert not check_served(book, log)
    book.close()


def test_a_file_that_was_cut_off_is_said_to_lack_pages(tmp_path: Path) -> None:
    book = Book(tmp_path)
    fill(book, sessions=20)
    book.close()
    path = tmp_path / "store.db"
    count = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.truncate(count // 3 * PAGE)
    rescue(path, "to see")
    found = f"the file lacks {count - count // 3} of {count} pages; further sessions may be lost"
    assert found in report(tmp_path)


def damage_schema(path: Path) -> None:
    data = path.read_bytes()
    flip(path, data.index(b"CREATE UNIQUE INDEX events_order") + 3)


def damage_root(path: Path) -> None:
    data = path.read_bytes()
    flip(path, data.index(b"tableeventsevents") + len("tableeventsevents"), 2)


@pytest.mark.parametrize("hurt", [damage_schema, damage_root])
def test_a_damaged_schema_costs_no_event(
    whole: tuple[Path, Log], tmp_path: Path, hurt: Callable[[Path], None]
) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    # With the log folded in, so that no newer first page hides the damage.
    open_database(path, wal_autocheckpoint=4000).close()
    hurt(path)
    book = opened(tmp_path)
    assert not check_served(book, log)
    assert report(tmp_path)
    book.close()


@pytest.mark.parametrize("at", [16, 18, 20, 59, 60, 63, 68, 71, 100, 103])
def test_a_damaged_header_costs_no_event(whole: tuple[Path, Log], tmp_path: Path, at: int) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    open_database(path, wal_autocheckpoint=4000).close()
    flip(path, at, 2)
    book = opened(tmp_path)
    assert not check_served(book, log)
    assert book.connection.execute("pragma user_version").fetchone() == (len(MIGRATIONS),)
    book.close()


def test_a_free_page_may_be_damaged(whole: tuple[Path, Log], tmp_path: Path) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    connection = open_database(path, wal_autocheckpoint=4000)
    connection.execute("create table filler(a)")
    connection.execute("insert into filler values(zeroblob(50000))")
    connection.execute("drop table filler")
    free = connection.execute("pragma freelist_count").fetchone()[0]
    connection.close()
    assert free
    size = path.stat().st_size
    for number in range(1, free):
        flip(path, size - number * PAGE + 2000)
    book = opened(tmp_path)
    assert not check_served(book, log)
    book.close()


def test_a_file_without_its_first_page_is_set_aside_whole(
    whole: tuple[Path, Log], tmp_path: Path
) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    open_database(path, wal_autocheckpoint=4000).close()
    data = path.read_bytes()
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    book = opened(tmp_path)
    assert "an empty one" in report(tmp_path)
    assert (newest_folder(tmp_path) / "store.db").read_bytes() == path_bytes(data)
    assert left_of(book, next(iter(log.bodies))).code == "SESSION_NOT_FOUND"
    fill(book, sessions=1, events=2, seed=2)
    book.close()


def path_bytes(data: bytes) -> bytes:
    return bytes(PAGE) + data[PAGE:]


@pytest.mark.parametrize("missing", [True, False])
def test_an_empty_or_missing_file_beside_a_log_is_filled_from_the_log(
    tmp_path: Path, missing: bool
) -> None:
    home = tmp_path / "made"
    home.mkdir()
    book = Book(home)
    log = fill(book, sessions=1)
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in FILES:
        shutil.copy(home / name, kept / name)
    book.close()
    path = copy_of(kept, tmp_path / "cut")
    cut(path, 0)
    if missing:
        path.unlink()
    found = opened(path.parent)
    assert "its log is not" in report(path.parent)
    check_served(found, log)
    found.close()


@pytest.mark.parametrize("missing", [True, False])
def test_that_a_store_is_gone_is_said(tmp_path: Path, missing: bool) -> None:
    path = tmp_path / "store.db"
    book = Book(tmp_path)
    fill(book, sessions=1)
    stamp(book.connection, path)
    book.close()
    cut(path, 0)
    if missing:
        path.unlink()
    book = opened(tmp_path)
    assert "was used before" in report(tmp_path)
    assert LOSS in report(tmp_path)
    fill(book, sessions=1, events=2, seed=2)
    book.close()


def test_an_older_copy_gets_a_new_epoch(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = open_database(path, wal_autocheckpoint=4000)
    assert not stamp(connection, path)
    connection.close()
    shutil.copy(path, tmp_path / "older")
    before = meta(path, "epoch")
    connection = open_database(path, wal_autocheckpoint=4000)
    assert not stamp(connection, path)
    connection.close()
    assert meta(path, "epoch") == before
    shutil.copy(tmp_path / "older", path)
    connection = open_database(path, wal_autocheckpoint=4000)
    assert stamp(connection, path)
    connection.close()
    assert meta(path, "epoch") != before


def test_a_rescue_that_was_cut_short_is_done_again(whole: tuple[Path, Log], tmp_path: Path) -> None:
    kept, log = whole
    path = copy_of(kept, tmp_path)
    rescue(path, "for a test")
    # As if it had ended between the removal of the old log and that of the mark.
    path.with_name("store.db.replacing").write_text(newest_folder(tmp_path).name)
    path.write_bytes(b"half")
    book = opened(tmp_path)
    assert not check_served(book, log)
    book.close()


def test_copies_of_damaged_files_are_bounded(whole: tuple[Path, Log], tmp_path: Path) -> None:
    kept, _ = whole
    path = copy_of(kept, tmp_path)
    for _ in range(KEEP + 2):
        rescue(path, "for a test")
    assert len(list((tmp_path / FOLDER).iterdir())) == KEEP


def test_another_program_s_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("create table theirs(a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Exception, match="another program"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_a_lost_row_of_a_session_is_made_again(tmp_path: Path) -> None:
    book = Book(tmp_path)
    log = fill(book, sessions=2, events=5)
    first, second = log.bodies
    book.connection.execute("delete from sessions where session_id = ?", (first,))
    book.connection.execute("update agents set spec = x'00' where agent_id = 'agent_1_1'")
    book.connection.execute("update sessions set spec = x'00' where session_id = ?", (second,))
    book.close()
    rescue(tmp_path / "store.db", "for a test")
    book = Book(tmp_path)
    assert not check_served(book, log)
    assert (book.row(first).state, book.row(second).state) == ("closed", "closed")
    assert "its row is lost" in report(tmp_path)
    book.close()


async def test_a_damaged_event_keeps_nobody_from_what_comes_after_it(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        for _ in range(4):
            peer.draft(delta(session_id, turn_id, "x"))
        await peer.answered()
        store.connection.execute("update events set body = x'7b7d' where sequence in (3, 4)")
        read = session.ReadPage(session_id=session_id, after=0)
        assert len((await front.call(read, session.Page)).bodies) == 2
        read = session.ReadPage(session_id=session_id, after=2)
        refused = await front.call(read, Refused)
        assert refused.code == "EVENT_SCHEMA_INCOMPATIBLE"
        assert f"event 3 of session {session_id}" in refused.message
        read = session.ReadPage(session_id=session_id, after=2, skip_damaged=True)
        page = await front.call(read, session.Page)
        assert (page.damaged_upto, page.first, len(page.bodies)) == (4, 5, 2)
        await front.watch(session_id)
        peer.draft(delta(session_id, turn_id, "y"))
        await peer.answered()
        await front.until(lambda: front.last[session_id] == 7)


async def test_a_damaged_page_met_while_reading_is_built_anew_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with running_store(tmp_path) as store:
        front = store.front()
        agent_id, session_id = await front.create()
        peer = await store.agent(agent_id, session_id)
        turn_id = await peer.begin(session_id, (await front.send(session_id)).message_id)
        for _ in range(200):
            peer.draft(delta(session_id, turn_id, "x" * 300))
        await peer.answered()
        await peer.finish(session_id, turn_id)
    path = tmp_path / "store.db"
    data = path.read_bytes()
    at = data.index(b"x" * 300) // PAGE * PAGE
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(PAGE))
    # A clean stop: nothing is looked at before it is read.
    async with running_store(tmp_path) as store:
        front = store.front()
        _, other = await front.create()
        refused, after = None, 0
        while refused is None:
            read = session.ReadPage(session_id=session_id, after=after)
            answer = await front.link.call(read, timeout=20)
            if isinstance(answer, Refused):
                refused = answer
            else:
                assert isinstance(answer, session.Page)
                after = answer.first + len(answer.bodies) - 1
        assert f"event {after + 1} of session {session_id}" in refused.message
        read = session.ReadPage(session_id=other, after=0)
        assert len((await front.call(read, session.Page)).bodies) == 1
        assert suspect(path).exists()
    async with running_store(tmp_path) as store:
        await trio.lowlevel.checkpoint()
        assert not suspect(path).exists()
        assert store.connection.execute("pragma integrity_check").fetchone() == ("ok",)
        assert f"session {session_id}: the events" in report(tmp_path)


def test_a_log_that_lost_its_end_is_known_by_its_index(tmp_path: Path) -> None:
    """The index is written after the log is on the disk, so a power cut leaves it no further than the log."""
    made = tmp_path / "made"
    made.mkdir()
    book = Book(made)
    log = fill(book)
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in (*FILES, "store.db-shm"):
        shutil.copy(made / name, kept / name)
    book.close()
    assert not find_damage(kept / "store.db")
    path = copy_of(kept, tmp_path / "cut")
    shutil.copy(kept / "store.db-shm", path.with_name("store.db-shm"))
    before = meta(copy_of(kept, tmp_path / "other"), "epoch")
    frames = len(read_wal(path).frames)
    cut(path.with_name("store.db-wal"), HEADER + (frames - 9) * STEP)
    assert "committed frames at its end" in find_damage(path)
    found = opened(path.parent)
    check_served(found, log, silent=True)
    assert "committed pages at its end" in report(path.parent)
    assert meta(path, "epoch") != before
    found.close()
