"""On folders of the test, without any process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from roost.actors.sandbox.places import PlaceError, Places, find_places, hidden_paths, is_inside
from roost.actors.sandbox.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

WORKSPACE = Policy(type="workspaceWrite", exclude_slash_tmp=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("home/workspaces/a", "home/workspaces/b", "work/.git", "data", "scratch"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def find(root: Path, policy: Policy = WORKSPACE, cwd: str = "work", **env: str) -> Places:
    return find_places(
        policy,
        cwd=str(root / cwd),
        env=env,
        hidden=(str(root / "home"), str(root / "home" / "logs"), str(root / "gone")),
        exposed=(str(root / "home" / "workspaces" / "a"), str(root / "data")),
    )


def test_only_the_outermost_of_what_is_there_is_hidden(root: Path) -> None:
    found = find(root)
    assert found.hidden == (str(root / "home"),)
    assert found.exposed == (str(root / "home" / "workspaces" / "a"),)


def test_what_is_hidden_is_neither_seen_nor_written(root: Path) -> None:
    found = find(root)
    assert found.hides(str(root / "home" / "daemon.cookie"))
    assert found.hides(str(root / "home" / "workspaces" / "b"))
    assert not found.hides(str(root / "home" / "workspaces" / "a" / "x"))
    assert not found.hides(str(root / "homes"))
    assert not found.lets_write(str(root / "home" / "x"))


def test_the_working_folder_may_be_written_but_for_its_repository(root: Path) -> None:
    found = find(root)
    assert found.lets_write(str(root / "work" / "sub" / "x"))
    assert not found.lets_write(str(root / "work" / ".git" / "config"))
    assert not found.lets_write(str(root / "data" / "x"))


def test_a_link_is_not_protected_as_if_it_were_the_repository(root: Path) -> None:
    (root / "scratch" / ".git").symlink_to(root / "work" / ".git")
    assert find(root, cwd="scratch").protected == ()


def test_further_folders_are_taken_from_the_working_folder(root: Path) -> None:
    roots = ("../data", str(root / "home"), "gone")
    policy = Policy(type="workspaceWrite", writable_roots=roots, exclude_slash_tmp=True)
    assert find(root, policy).writable == (str(root / "data"), str(root / "work"))


def test_the_temporary_folders_are_the_policys(root: Path) -> None:
    scratch = str(root / "scratch")
    assert scratch in find(root, TMPDIR=scratch).writable
    excluded = Policy(type="workspaceWrite", exclude_slash_tmp=True, exclude_tmpdir=True)
    assert find(root, excluded, TMPDIR=scratch).writable == (str(root / "work"),)
    assert find(root, TMPDIR="scratch").writable == (str(root / "work"),)


def test_a_policy_that_only_reads_opens_nothing(root: Path) -> None:
    assert find(root, Policy(type="readOnly")).writable == ()


def test_a_hidden_folder_is_no_working_folder_unless_it_is_exposed(root: Path) -> None:
    own = root / "home" / "workspaces" / "a"
    assert find(root, cwd="home/workspaces/a").writable == (str(own),)
    with pytest.raises(PlaceError, match="hidden"):
        find(root, cwd="home/workspaces/b")


def test_an_exposed_working_folder_in_a_writable_one_stays_writable(root: Path) -> None:
    policy = Policy(type="workspaceWrite", writable_roots=(str(root),), exclude_slash_tmp=True)
    found = find(root, policy, cwd="home/workspaces/a")
    assert found.writable == (str(root), str(root / "home" / "workspaces" / "a"))
    assert found.lets_write(str(root / "home" / "workspaces" / "a" / "x"))
    assert not found.lets_write(str(root / "home" / "x"))


def test_a_repository_in_a_folder_of_a_writable_one_is_protected(root: Path) -> None:
    roots = (str(root), str(root / "work"))
    policy = Policy(type="workspaceWrite", writable_roots=roots, exclude_slash_tmp=True)
    assert find(root, policy, cwd="data").protected == (str(root / "work" / ".git"),)


def test_a_link_that_a_command_can_make_opens_nothing(root: Path) -> None:
    (root / "work" / "build").symlink_to(root / "data")
    policy = Policy(type="workspaceWrite", writable_roots=("build",), exclude_slash_tmp=True)
    assert find(root, policy).writable == (str(root / "work"),)


def test_a_working_folder_that_a_command_can_replace_is_refused(root: Path) -> None:
    (root / "scratch" / "work").symlink_to(root / "data")
    policy = Policy(
        type="workspaceWrite", writable_roots=(str(root / "scratch"),), exclude_slash_tmp=True
    )
    with pytest.raises(PlaceError, match="link"):
        find(root, policy, cwd="scratch/work")


def test_a_link_elsewhere_leads_to_a_working_folder(root: Path) -> None:
    found = find_places(
        Policy(type="workspaceWrite", exclude_slash_tmp=True),
        cwd="/proc/self/cwd",
        env={},
        hidden=(),
    )
    assert found.writable == (os.getcwd(),)


def test_everything_is_no_workspace(root: Path) -> None:
    with pytest.raises(PlaceError, match="dangerFullAccess"):
        find(root, Policy(type="workspaceWrite", writable_roots=("/",)))


def test_the_daemons_folders_are_always_among_what_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    found = hidden_paths("/h", "/r", ("~/.ssh",))
    assert {"/h", "/r", "/home/u/.ssh"} <= set(found)


def test_a_path_is_inside_of_whole_names_only() -> None:
    assert is_inside("/a/b", ("/a",))
    assert is_inside("/a", ("/a",))
    assert is_inside("/a", ("/",))
    assert not is_inside("/ab", ("/a",))
