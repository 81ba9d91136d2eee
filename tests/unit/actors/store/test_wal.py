from __future__ import annotations

import shutil
import sqlite3
import struct
from typing import TYPE_CHECKING

import pytest

from roost.actors.store.wal import FRAME, HEADER, checksum, contents, scan

if TYPE_CHECKING:
    from pathlib import Path

STEP = FRAME + 4096


@pytest.fixture
def log(tmp_path: Path) -> bytearray:
    """A log of twelve commits over leftovers of an earlier round."""
    path = tmp_path / "a.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t(a, b)")
    for number in range(40):
        connection.execute("insert into t values(?, randomblob(3000))", (number,))
    connection.execute("pragma wal_checkpoint(restart)").fetchall()
    for number in range(12):
        connection.execute("insert into t values(?, randomblob(3000))", (number,))
    shutil.copy(path, tmp_path / "b.db")
    data = bytearray((tmp_path / "a.db-wal").read_bytes())
    connection.close()
    return data


def reseal(data: bytearray, *, big: bool) -> None:
    """Give a log the checksums that its contents ask for."""
    struct.pack_into(">I", data, 0, 0x377F0682 | big)
    sums = checksum(bytes(data[:24]), (0, 0), big=big)
    struct.pack_into(">II", data, 24, *sums)
    for at in range(HEADER, len(data) - STEP + 1, STEP):
        sums = checksum(bytes(data[at : at + 8] + data[at + FRAME : at + STEP]), sums, big=big)
        struct.pack_into(">II", data, at + 16, *sums)


def test_leftovers_of_an_earlier_round_are_no_damage(log: bytearray) -> None:
    wal = scan(bytes(log))
    assert wal.header_good
    assert not wal.damaged
    assert all(frame.good for frame in wal.frames)
    assert 12 <= len(wal.frames) < (len(log) - HEADER) // STEP


@pytest.mark.parametrize("at", [0, 3, 17, 20, FRAME, FRAME + 4000])
def test_a_bit_in_a_frame_that_others_follow_is_damage(log: bytearray, at: int) -> None:
    log[HEADER + 4 * STEP + at] ^= 4
    wal = scan(bytes(log))
    assert wal.damaged
    assert 5 in wal.bad


def test_a_torn_tail_is_no_damage(log: bytearray) -> None:
    frames = len(scan(bytes(log)).frames)
    end = HEADER + (frames - 1) * STEP
    log[end + FRAME + 100] ^= 1
    assert scan(bytes(log)).bad == (frames,)
    assert not scan(bytes(log)).damaged
    assert not scan(bytes(log[: end + 700])).damaged


@pytest.mark.parametrize("size", [0, 5, HEADER - 1, HEADER, HEADER + 100])
def test_a_log_without_a_frame_is_no_damage(log: bytearray, size: int) -> None:
    wal = scan(bytes(log[:size]))
    assert not wal.frames
    assert not wal.damaged


@pytest.mark.parametrize("at", [0, 3, 5, 9, 12, 16, 23, 24, 31])
def test_a_damaged_header_with_frames_behind_it_is_damage(log: bytearray, at: int) -> None:
    before = scan(bytes(log))
    log[at] ^= 1
    wal = scan(bytes(log))
    assert wal.damaged
    assert contents(wal).pages == contents(before).pages
    assert all(frame.good for frame in wal.frames)


def test_frames_that_are_trusted_are_not_looked_at(log: bytearray) -> None:
    log[HEADER + 2 * STEP + 500] ^= 1
    assert not scan(bytes(log), trusted=3).damaged
    assert scan(bytes(log), trusted=2).damaged


@pytest.mark.parametrize("big", [False, True])
def test_both_byte_orders_are_read(log: bytearray, big: bool) -> None:
    frames = len(scan(bytes(log)).frames)
    reseal(log, big=big)
    wal = scan(bytes(log))
    assert len(wal.frames) == frames
    assert not wal.bad
    log[0] ^= 0xFF
    assert not scan(bytes(log)).bad


def test_the_contents_are_what_sqlite_puts_into_the_database(
    log: bytearray, tmp_path: Path
) -> None:
    held = contents(scan(bytes(log)))
    data = bytearray((tmp_path / "b.db").read_bytes().ljust(held.size * 4096, b"\0"))
    for page, at in held.pages.items():
        data[(page - 1) * 4096 : page * 4096] = log[at : at + 4096]
    (tmp_path / "c.db").write_bytes(data)
    connection = sqlite3.connect(tmp_path / "c.db")
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("select count(*) from t").fetchone() == (52,)
    connection.close()


def test_a_leftover_between_frames_is_not_used(log: bytearray) -> None:
    log[HEADER + 4 * STEP + 8 : HEADER + 4 * STEP + 16] = bytes(8)
    wal = scan(bytes(log))
    assert wal.damaged
    assert HEADER + 4 * STEP + FRAME not in contents(wal).pages.values()
