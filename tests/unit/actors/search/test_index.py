from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roost.actors.search import mounts, walk, watch
from roost.actors.search.corpus import DIRECTORY, FILE
from roost.actors.search.ignore import IGNORE, Rules, read_rules
from roost.actors.search.index import Index
from roost.actors.search.matching import Cancelled
from roost.actors.search.watch import Allowance
from tests.support.trees import deep_tree, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[..., Index]


LEVELS = 2_200


def never() -> bool:
    return False


def paths(index: Index) -> list[str]:
    """What is below the root now; directories end with a slash."""
    corpus = index.refresh(never)
    return sorted(path + "/" * (kind == DIRECTORY) for path, kind in corpus)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, in no work tree and with no rules of the user's."""
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "root").mkdir()
    return Path(os.path.realpath(tmp_path / "root"))


@pytest.fixture(params=[True, False], ids=["watched", "compared"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Index] = []

    def make_index(root: Path, *, watches: int = 1_000, most: int = 100_000) -> Index:
        index = Index(str(root), Allowance(watches), most=most, watched=request.param)
        made.append(index)
        return index

    yield make_index
    for index in made:
        index.close()


def test_scenario_48_a_file_created_just_before_is_found(root: Path, make: Make) -> None:
    fill(root, "a/one", "b/two")
    index = make(root)
    assert paths(index) == ["a/", "a/one", "b/", "b/two"]
    fill(root, "a/new", "c/d/deep")
    assert paths(index) == ["a/", "a/new", "a/one", "b/", "b/two", "c/", "c/d/", "c/d/deep"]
    fill(root, "c/d/later", "top")
    (root / "a" / "one").unlink()
    assert paths(index) == [
        "a/",
        "a/new",
        "b/",
        "b/two",
        "c/",
        "c/d/",
        "c/d/deep",
        "c/d/later",
        "top",
    ]


def test_moved_removed_and_replaced_directories_are_followed(root: Path, make: Make) -> None:
    fill(root, "a/x/one", "b/two")
    index = make(root)
    paths(index)
    (root / "a").rename(root / "c")
    assert paths(index) == ["b/", "b/two", "c/", "c/x/", "c/x/one"]
    fill(root, "c/x/more", "a")
    shutil.rmtree(root / "b")
    fill(root, "b/three")
    assert paths(index) == ["a", "b/", "b/three", "c/", "c/x/", "c/x/more", "c/x/one"]
    (root / "a").unlink()
    (root / "b").rename(root / "a")
    fill(root, "a/four")
    assert paths(index) == ["a/", "a/four", "a/three", "c/", "c/x/", "c/x/more", "c/x/one"]
    shutil.rmtree(root)
    root.mkdir()
    fill(root, "again")
    assert paths(index) == ["again"]


def test_scenario_48_rules_inside_a_work_tree(root: Path, make: Make) -> None:
    fill(root, ".git/config", ".git/info/x", "build/out", "src/a.log", "src/keep.log", "src/b.py")
    fill(root, "src/sub/c.tmp", "src/sub/.git/x", "notes/d.tmp", ".hidden")
    (root / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (root / "src" / ".gitignore").write_text("*.tmp\n")
    (root / "src" / "sub" / ".gitignore").write_text("!c.tmp\n")
    (root / ".git" / "info" / "exclude").write_text("notes\n")
    index = make(root)
    assert paths(index) == [
        ".gitignore",
        ".hidden",
        "src/",
        "src/.gitignore",
        "src/b.py",
        "src/keep.log",
        "src/sub/",
        "src/sub/.gitignore",
        "src/sub/c.tmp",
    ]
    (root / ".git" / "info" / "exclude").unlink()
    (root / "src" / "sub" / ".gitignore").unlink()
    assert paths(index) == [
        ".gitignore",
        ".hidden",
        "notes/",
        "notes/d.tmp",
        "src/",
        "src/.gitignore",
        "src/b.py",
        "src/keep.log",
        "src/sub/",
    ]
    (root / "src" / ".gitignore").write_text("b.py\nsub\n*.log\n")
    assert "src/b.py" not in paths(index)
    shutil.rmtree(root / ".git")
    assert "build/out" in paths(index)


def test_scenario_48_outside_a_work_tree_only_ignore_files_count(root: Path, make: Make) -> None:
    fill(root, "a.log", "b.tmp", "sub/b.tmp", "sub/c")
    (root / ".gitignore").write_text("*.log\n")
    (root / ".ignore").write_text("*.tmp\n")
    index = make(root)
    assert paths(index) == [".gitignore", ".ignore", "a.log", "sub/", "sub/c"]
    (root / "sub" / ".ignore").write_text("!b.tmp\nc\n")
    assert paths(index) == [".gitignore", ".ignore", "a.log", "sub/", "sub/.ignore", "sub/b.tmp"]


def test_scenario_48_rules_above_the_root_and_a_root_that_is_ignored(
    root: Path, make: Make
) -> None:
    fill(root, ".git/config", "build/build/x", "build/a.log", "build/b.tmp", "build/c")
    (root / ".gitignore").write_text("build/\n*.log\n/build/c\n")
    (root / ".ignore").write_text("*.tmp\n!a.log\n")
    assert paths(make(root / "build")) == []
    (root / ".gitignore").write_text("/build/\n*.log\n/build/c\n")
    assert paths(make(root / "build")) == ["build/", "build/x"]


def test_scenario_48_rules_of_the_user_and_of_an_external_git_directory(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, git = root.parent / "home", root.parent / "elsewhere"
    fill(home, ".config/git/ignore", "mine")
    fill(git, "info/exclude")
    fill(root, "a.one", "b.two", "c.three", "d.four")
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text("[user]\n\tname = x\n[core]\n\texcludesFile = ~/mine\n")
    (home / "mine").write_text("*.one\n*.two\n")
    (home / ".config" / "git" / "ignore").write_text("!*.two\n*.three\n")
    (git / "info" / "exclude").write_text("!c.three\n*.four\n")
    index = make(root)
    assert paths(index) == ["a.one", "b.two", "c.three", "d.four"]
    (root / ".git").write_text("gitdir: ../elsewhere\n")
    assert paths(index) == ["b.two", "c.three"]


def test_scenario_48_loops_of_links_end_and_links_do_not_lead_out(root: Path, make: Make) -> None:
    fill(root, "a/file", "z/other", "../outside/secret", "../outside.txt")
    (root / "a" / "loop").symlink_to("..")
    (root / "a" / "again").symlink_to("../a")
    (root / "b").symlink_to("z")
    (root / "self").symlink_to("self")
    (root / "broken").symlink_to("nowhere")
    (root / "out").symlink_to("../outside")
    (root / "out.txt").symlink_to("../outside.txt")
    (root / "twice").symlink_to("a/file")
    index = make(root)
    assert paths(index) == ["a/", "a/file", "b/", "b/other", "out.txt"]
    fill(root, "z/new", "nowhere")
    assert paths(index) == ["a/", "a/file", "b/", "b/new", "b/other", "broken", "out.txt"]
    (root / "b").unlink()
    assert paths(index) == ["a/", "a/file", "broken", "out.txt", "z/", "z/new", "z/other"]


def test_names_are_visited_in_order_and_devices_are_left_out(root: Path, make: Make) -> None:
    fill(root, "b", "target/x")
    os.mkfifo(root / "pipe")
    (root / "a").symlink_to("b")
    (root / "zlink").symlink_to("target")
    assert paths(make(root)) == ["a", "target/", "target/x"]


def test_a_tree_deeper_than_a_path_may_be_long(root: Path, make: Make) -> None:
    index = make(root, watches=10_000)
    with deep_tree(root, LEVELS) as handle:
        os.close(os.open("leaf", os.O_CREAT, dir_fd=handle))
        assert len(index.refresh(never)) == LEVELS + 1
        os.close(os.open("late", os.O_CREAT, dir_fd=handle))
        assert ("d/" * LEVELS + "late", FILE) in set(index.refresh(never))


def test_without_enough_watches_directories_are_compared(root: Path, make: Make) -> None:
    fill(root, "a/one", "b/two")
    allowance = Allowance(2)
    index = Index(str(root), allowance, most=100)
    assert paths(index) == ["a/", "a/one", "b/", "b/two"]
    assert not index.watched
    fill(root, "b/three", "c/four")
    assert paths(index) == ["a/", "a/one", "b/", "b/three", "b/two", "c/", "c/four"]
    other = Index(str(root / "a"), allowance, most=100)
    assert paths(other) == ["one"]
    assert other.watched
    other.close()


def test_watches_that_run_out_later_are_given_up(root: Path) -> None:
    fill(root, "a/one")
    index = Index(str(root), Allowance(2), most=100)
    paths(index)
    assert index.watched
    fill(root, "b/two")
    assert paths(index) == ["a/", "a/one", "b/", "b/two"]
    assert not index.watched


def test_lost_events_lead_to_a_new_walk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, "a/one")
    index = Index(str(root), Allowance(100), most=100)
    paths(index)
    fill(root, "a/two")
    real = watch.Watcher.read

    def lose(watcher: watch.Watcher) -> list[watch.Event]:
        real(watcher)
        monkeypatch.setattr(watch.Watcher, "read", real)
        return [watch.Event(-1, watch.OVERFLOW, "")]

    monkeypatch.setattr(watch.Watcher, "read", lose)
    assert paths(index) == ["a/", "a/one", "a/two"]
    index.close()


def test_a_cancelled_walk_goes_on_where_it_stopped(root: Path, make: Make) -> None:
    fill(root, *(f"{number % 10}/file{number}" for number in range(700)))
    index = make(root)
    with pytest.raises(Cancelled):
        index.refresh(lambda: True)
    fill(root, "0/new")
    asked = 0

    def count() -> bool:
        nonlocal asked
        asked += 1
        return False

    assert len(index.refresh(count)) == 711
    assert asked <= 3


def test_what_lies_beyond_the_bound_is_not_found(root: Path, make: Make) -> None:
    fill(root, *(f"file{number}" for number in range(20)))
    assert len(paths(make(root, most=5))) == 5


def test_unreadable_directories_are_skipped_until_they_can_be_read(root: Path, make: Make) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is unreadable for the superuser")
    fill(root, "a/one", "b/two")
    (root / "a").chmod(0)
    index = make(root)
    assert paths(index) == ["a/", "b/", "b/two"]
    (root / "a").chmod(0o700)
    assert paths(index) == ["a/", "a/one", "b/", "b/two"]


def test_files_that_come_and_go_take_no_room_for_ever(root: Path, make: Make) -> None:
    index = make(root, most=6)
    for number in range(4):
        fill(root, f"d{number}/one", f"d{number}/two", f"f{number}")
        assert paths(index) == [f"d{number}/", f"d{number}/one", f"d{number}/two", f"f{number}"]
        shutil.rmtree(root / f"d{number}")
        (root / f"f{number}").unlink()
        assert paths(index) == []


def test_rules_that_are_a_pipe_are_none_and_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / IGNORE).symlink_to("pipe")
    read: list[Rules] = []
    reader = threading.Thread(
        target=lambda: read.append(read_rules(str(tmp_path / IGNORE))), daemon=True
    )
    reader.start()
    reader.join(5)
    assert read
    assert not read[0]


def test_a_walk_may_be_interrupted_any_number_of_times(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, "a/one", "b/two", "three")
    monkeypatch.setattr(walk, "LOOK_EVERY", 1)
    index = make(root)
    for _ in range(2_000):
        with pytest.raises(Cancelled):
            index.refresh(lambda: True)
    assert paths(index) == ["a/", "a/one", "b/", "b/two", "three"]


def test_a_link_that_vanishes_during_the_walk_is_skipped(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, "a", "target")
    (root / "link").symlink_to("target")
    real = os.path.realpath

    def vanish(path: str) -> str:
        if path.endswith("/link"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os.path, "realpath", vanish)
    assert paths(make(root)) == ["a", "target"]


def test_a_root_whose_links_always_change_is_answered_after_few_walks(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, "a/one")
    run = walk.Walk.run
    rounds = 0

    def disturbed(one: walk.Walk, cancelled: Callable[[], bool]) -> bool:
        nonlocal rounds
        rounds += 1
        done = run(one, cancelled)
        (root / "a" / f"link{rounds}").symlink_to("/nowhere")
        return done

    monkeypatch.setattr(walk.Walk, "run", disturbed)
    assert paths(make(root)) == ["a/", "a/one"]
    assert rounds <= 3


def test_what_the_kernel_mounts_below_the_root_is_not_entered(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, "a/one", "my proc/1/exe", "z/two")
    table = root.parent / "mountinfo"
    kernel = f"22 27 0:9999 / {root}/my\\040proc rw - proc proc rw\n"
    table.write_text(kernel + f"23 27 0:9998 / {root}/a rw - tmpfs x rw\nnonsense\n")
    monkeypatch.setattr(mounts, "TABLE", str(table))
    assert paths(make(root)) == ["a/", "a/one", "z/", "z/two"]
    assert paths(make(root / "my proc")) == ["1/", "1/exe"]


def test_links_into_what_the_kernel_mounts_lead_nowhere(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "link").symlink_to("/proc/self/maps")
    (root / "file").touch()
    index = make(root)
    assert paths(index) == ["file"]


@pytest.mark.parametrize("place", [".git", ".git/info/exclude", "~/.gitconfig", "~/mine"])
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_what_is_no_file_has_no_rules_wherever_git_looks(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    home = root.parent / "home"
    fill(home, ".config/x")
    fill(root, "a")
    monkeypatch.setenv("HOME", str(home))
    if place == "~/mine":
        (home / ".gitconfig").write_text("[core]\nexcludesfile = ~/mine\n")
    at = home / place[2:] if place.startswith("~") else root / place
    at.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(at)
    else:
        at.symlink_to(kind)
    if place != ".git":
        (root / ".git").mkdir(exist_ok=True)
    index = Index(str(root), Allowance(100), most=100)
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(paths(index)), daemon=True)
    thread.start()
    thread.join(5)
    assert found == [["a"]]
    index.close()
