from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from roost.actors.search.ignore import MAX_RULES, MAX_RULES_BYTES, Rules, read_rules

if TYPE_CHECKING:
    from pathlib import Path

MANY = 60


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("*a" * 10 + "*b", "a" * 120),
        ("*?a[!b]" * 10 + "*b", "a" * 240),
        ("**/a/" * 12 + "b", "a/" * 200),
        ("x/" + "**/*a*a*a/" * 12 + "b", "x/" + "aaaaa/" * 200),
        ("a*/" * 40 + "b", "aaaa/" * 60),
    ],
)
def test_no_rule_takes_long(rule: str, path: str) -> None:
    began = time.process_time()
    assert Rules(rule).decide(path) is None
    assert time.process_time() - began < 1


def test_only_so_many_rules_count(tmp_path: Path) -> None:
    rules = Rules("\n".join(f"a{number}" for number in range(MAX_RULES + 1)))
    assert rules.decide(f"a{MAX_RULES - 1}")
    assert rules.decide(f"a{MAX_RULES}") is None
    file = tmp_path / "rules"
    file.write_text("first\n" + "#" * (MAX_RULES_BYTES - 9) + "\n*xy\n")
    found = read_rules(str(file))
    assert found.decide("first")
    assert found.decide("x") is None


def _some_rule(chance: random.Random) -> str:
    parts = ["a", "b", "*", "?", "[ab]", "[!a]", "[^b]", "**", "ab", "\\*", "[[]", "."]
    names = [
        "".join(chance.choice(parts) for _ in range(chance.randrange(1, 5)))
        if chance.random() < 0.7
        else "**"
        for _ in range(chance.randrange(1, 4))
    ]
    return chance.choice(["", "", "/"]) + "/".join(names) + chance.choice(["", "", "/"])


def test_rules_say_what_git_says(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git")
    chance = random.Random(5)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run([git, "init", "-q", tmp_path], check=True, env=environment)
    names = ["a", "b", "ab", "ba", "aab", "abab", "a.b", "[", "*", "a*"]
    (tmp_path / "bb").mkdir()
    paths = {"/".join(chance.choices(names, k=chance.randrange(1, 4))) for _ in range(300)}
    for _ in range(MANY):
        rule = _some_rule(chance)
        (tmp_path / ".gitignore").write_text(rule + "\n")
        shown = "\0".join(sorted(paths))
        told = subprocess.run(
            [git, "check-ignore", "--no-index", "-z", "--stdin"],
            cwd=tmp_path,
            env=environment,
            input=shown.encode(),
            capture_output=True,
            check=False,
        )
        expected = set(told.stdout.decode().split("\0")) - {""}
        rules = Rules(rule)
        assert {path for path in paths if _ignores(rules, path)} == expected, rule


def _ignores(rules: Rules, path: str) -> bool:
    """Whether a path, of a file, is ignored or lies in a directory that is."""
    names = path.split("/")
    above = ("/".join(names[:depth]) + "/" for depth in range(1, len(names)))
    return any(rules.decide(one) for one in (*above, path))
