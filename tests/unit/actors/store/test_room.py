from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.errors import Overloaded
from roost.actors.store.room import RESERVE, Room

if TYPE_CHECKING:
    from pathlib import Path

EXABYTE_IN_MIB = 2**40


def test_a_mark_above_the_free_space_refuses(tmp_path: Path) -> None:
    with pytest.raises(Overloaded) as caught:
        Room(tmp_path, EXABYTE_IN_MIB, lambda: 0.0).check()
    assert caught.value.code == "DISK_FULL"
    assert "retryAfterMs" in caught.value.data


@pytest.mark.parametrize(("mark", "refused"), [(0, False), (1, False), (EXABYTE_IN_MIB, True)])
def test_a_mark_below_the_free_space_lets_pass(tmp_path: Path, mark: int, refused: bool) -> None:
    try:
        Room(tmp_path, mark, lambda: 0.0).check()
    except Overloaded:
        assert refused
    else:
        assert not refused


def test_space_is_held_back_and_given_up_once(tmp_path: Path) -> None:
    now = [0.0]
    room = Room(tmp_path, 0, lambda: now[0], reserve_mib=1)
    assert not room.release()
    room.hold()
    reserve = tmp_path / RESERVE
    assert reserve.stat().st_size == 1024 * 1024
    assert reserve.stat().st_blocks * 512 >= 1024 * 1024
    assert room.release()
    assert not reserve.exists()
    assert not room.release()
    # It is held back again by itself, when the disk is looked at next.
    room.check()
    assert reserve.exists()


def test_space_held_back_by_an_earlier_store_is_taken_over(tmp_path: Path) -> None:
    Room(tmp_path, 0, lambda: 0.0, reserve_mib=1).hold()
    inode = (tmp_path / RESERVE).stat().st_ino
    room = Room(tmp_path, 0, lambda: 0.0, reserve_mib=1)
    room.hold()
    assert (tmp_path / RESERVE).stat().st_ino == inode
    assert room.release()
    Room(tmp_path, 0, lambda: 0.0, reserve_mib=1).hold()
    Room(tmp_path, 0, lambda: 0.0).hold()
    assert not (tmp_path / RESERVE).exists()


def test_no_space_is_held_back_on_a_disk_without_room(tmp_path: Path) -> None:
    room = Room(tmp_path, EXABYTE_IN_MIB, lambda: 0.0, reserve_mib=1)
    room.hold()
    assert not (tmp_path / RESERVE).exists()
    assert not room.release()


def test_after_the_reserve_was_needed_nothing_new_is_taken_at_once(tmp_path: Path) -> None:
    now = [0.0]
    room = Room(tmp_path, 1, lambda: now[0], reserve_mib=1)
    room.check()
    room.release()
    with pytest.raises(Overloaded):
        room.check()
    now[0] = 1.0
    room.check()


def test_the_disk_is_looked_at_once_a_second(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "gone"
    folder.mkdir()
    room = Room(folder, 1, lambda: now[0])
    room.check()
    folder.rmdir()
    room.check()
    now[0] = 1.0
    with pytest.raises(FileNotFoundError):
        room.check()
