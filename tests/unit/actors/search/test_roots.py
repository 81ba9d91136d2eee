from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.errors import InvalidArgument
from roost.actors.search.roots import Root, Seen, resolve

if TYPE_CHECKING:
    from pathlib import Path


def test_equal_roots_are_searched_once_by_the_first_text_and_the_deepest_comes_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "file").write_text("")
    texts = [
        f"{tmp_path}/a/",
        f"{tmp_path}/link",
        f"{tmp_path}/a/b",
        f"{tmp_path}/file",
        "/nowhere",
    ]
    assert [root.text for root in resolve(texts, ())] == [f"{tmp_path}/a/b", f"{tmp_path}/a/"]


def test_what_is_no_path_at_all_yields_nothing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert resolve(["/a\0b", f"{tmp_path}/loop"], ()) == []


def test_only_allowed_roots_are_searched(tmp_path: Path) -> None:
    for name in ("in", "inside", "in/deep"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path / "inside")
    allowed = [f"{tmp_path}/in"]
    assert len(resolve([f"{tmp_path}/in", f"{tmp_path}/in/deep"], allowed)) == 2
    for refused in ("inside", "in/out", "in/../inside", "."):
        with pytest.raises(InvalidArgument):
            resolve([f"{tmp_path}/{refused}"], allowed)


def test_a_path_is_reported_under_the_deepest_root_only() -> None:
    inner, outer = Root("/r/in", "/r/in"), Root("/r", "/r")
    seen = Seen()
    assert seen.hides(inner, {}) is None
    seen.add(inner, {"link": "/r/file"})
    hidden = seen.hides(outer, {"alias": "/r/in/deep"})
    assert hidden is not None
    assert [
        path
        for path in ("in", "in/x", "inside", "file", "alias", "alias/x", "other")
        if hidden(path)
    ] == [
        "in/x",
        "file",
        "alias",
        "alias/x",
    ]
