from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import roost
from tests.support.daemon import daemon_in
from tests.support.trees import fill

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


async def test_files_are_found_by_name(tmp_path: Path) -> None:
    home, one, two = tmp_path / "h", tmp_path / "one", tmp_path / "two"
    fill(one, "src/needle.py", "src/other", "nee\x1bdle/")
    fill(two, "needle")
    with daemon_in(home):
        ended = await roost(home, "search", "needle", str(one), str(two))
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.decode().splitlines() == [
            f"{two}/needle",
            f"{one}/src/needle.py",
            f"{one}/nee\ufffddle/",
        ]
        ended = await roost(home, "search", "--json", "needle.py", str(one))
        (found,) = json.loads(ended.stdout)["files"]
        assert (found["path"], found["match_type"]) == ("src/needle.py", "file")
        ended = await roost(home, "search", "nothing like it", str(one))
        assert (ended.returncode, ended.stdout) == (1, b"")
        ended = await roost(home, "search", "x" * 257, str(one))
        assert ended.returncode == 1
        assert b"must not be longer" in ended.stderr
