from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.errors import Overloaded
from roost.actors.store.room import Room

if TYPE_CHECKING:
    from pathlib import Path

EXABYTE_IN_MIB = 2**40


def test_a_mark_above_the_free_space_refuses(tmp_path: Path) -> None:
    with pytest.raises(Overloaded) as caught:
        Room(tmp_path, EXABYTE_IN_MIB, lambda: 0.0).check()
    assert caught.value.code == "DISK_FULL"
    assert "retryAfterMs" in caught.value.data


@pytest.mark.parametrize("mark", [0, 1])
def test_a_mark_below_the_free_space_lets_pass(tmp_path: Path, mark: int) -> None:
    Room(tmp_path, mark, lambda: 0.0).check()


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
