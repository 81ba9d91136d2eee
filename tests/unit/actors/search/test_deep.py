from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from roost.actors.search.deep import STEP, Opener

if TYPE_CHECKING:
    from pathlib import Path


def test_directories_are_opened_whatever_was_open_before(tmp_path: Path) -> None:
    names = [str(number) * 200 for number in range(1, 10)]
    deepest = tmp_path.joinpath(*names)
    deepest.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert len(str(deepest)) > 1.5 * STEP
    opener = Opener()
    before = len(os.listdir("/proc/self/fd"))
    wanted = [deepest, deepest.parent, tmp_path / "other", *deepest.parents, deepest, deepest]
    for path in wanted:
        assert os.path.samestat(os.stat(opener.open(str(path))), os.stat(path))
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    with pytest.raises(FileNotFoundError):
        opener.open(f"{deepest}/missing")
    assert os.path.samestat(os.stat(opener.open(str(deepest))), os.stat(deepest))
    opener.close()
    assert len(os.listdir("/proc/self/fd")) == before
