from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from roost.actors.search.corpus import FILE
from roost.actors.search.index import Index
from roost.actors.search.watch import Allowance
from tests.support.trees import fill

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git to compare with"),
]

TREES = 12
NAMES = ["a", "b", "ab", "a.o", "b.txt", "[x]", "sp ace", "ünï", "#h", "!n", ".dot", "build", "x y"]
PATTERNS = [
    "a",
    "a/",
    "/a",
    "*.o",
    "!a.o",
    "b*",
    "!b.txt",
    "a/b",
    "a/*",
    "!a/b/",
    "**/b",
    "a/**",
    "a/**/b",
    "/*/b",
    "build/",
    "!build",
    "[ab]",
    "[!a]",
    "[a-z].o",
    "[z-a]",
    "\\#h",
    "#h",
    "\\!n",
    "sp\\ ace",
    "x y   ",
    "[[:alpha:]]b",
    "[^[:lower:]]*",
    "\\[x\\]",
    ".*",
    "!.gitignore",
    "?",
    "",
    "  ",
    "*",
    "!*/",
    "a\\",
    "**",
    "a**",
    "**/",
    "!/a/",
]


def git(root: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["git", *arguments], cwd=root, env=environment, capture_output=True, check=True, timeout=30
    )
    return done.stdout.decode()


def make_tree(root: Path, chance: random.Random) -> None:
    """Make files and rules at random; the rarer a wide pattern, the more is left to compare."""
    folders = [root]
    for _ in range(12):
        folder = chance.choice(folders) / chance.choice(NAMES)
        if len(folder.parts) - len(root.parts) <= 4 and not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for folder in folders:
        for name in chance.sample(NAMES, 5):
            if not (folder / name).exists():
                fill(folder, name)
        if folder == root or chance.random() < 0.4:
            rules = chance.sample(PATTERNS, chance.randrange(1, 6))
            (folder / ".gitignore").write_text("\n".join(rules) + "\n")
    exclude = root / ".git" / "info" / "exclude"
    exclude.write_text("\n".join(chance.sample(PATTERNS, 2)) + "\n")


@pytest.mark.parametrize("seed", range(TREES))
def test_what_is_ignored_is_what_git_ignores(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".config" / "git").mkdir(parents=True)
    (tmp_path / ".config" / "git" / "ignore").write_text("*.txt\n!b.txt\n")
    root = tmp_path / "root"
    root.mkdir()
    git(root, "init", "-q")
    make_tree(root, random.Random(seed))
    wanted = git(root, "ls-files", "-o", "-z", "--exclude-standard").split("\0")
    index = Index(str(root.resolve()), Allowance(1_000), most=10_000)
    found = index.refresh(lambda: False)
    index.close()
    assert sorted(path for path, kind in found if kind == FILE) == sorted(wanted[:-1])
