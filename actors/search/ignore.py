"""What Git's ignore rules say of a path (P 10.3): rules of one file, and the chain of all that apply in a directory."""

from __future__ import annotations

import configparser
import os
import re
import stat
from typing import TYPE_CHECKING

from roost.actors.search.globs import translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_RULES_BYTES = 128 * 1024
MAX_RULES = 2_000
"""Of a longer file, or one with more rules, what comes first counts."""
IGNORE, GITIGNORE = ".ignore", ".gitignore"


class Rules:
    """The rules of one file; paths are relative to its directory, those of directories end with a slash."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], bool]] = []
        sources: list[str] = []
        for line in text.removeprefix("\ufeff").split("\n"):
            if len(sources) == MAX_RULES:
                break
            found = translate(line)
            if found is not None:
                source, ignored = found
                try:
                    self._rules.append((re.compile(source, re.DOTALL), ignored))
                except re.error:  # such as a range that ends before it begins
                    continue
                sources.append(source)
        self._rules.reverse()
        self._any = re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, path: str) -> bool | None:
        """Return whether the last rule that fits a path ignores it or re-includes it; None if none fits."""
        if self._any.search(path) is None:
            return None
        for pattern, ignored in self._rules:
            if pattern.search(path) is not None:
                return ignored
        return None


class Chain:
    """The rules that apply in a directory: its own over those of the directories above.

    `prefix` is what a path below this directory begins with, seen from the directory of the rules.
    """

    __slots__ = ("_levels",)

    def __init__(self, levels: tuple[tuple[Rules, str], ...] = ()) -> None:
        self._levels = levels

    def enter(self, name: str) -> Chain:
        """Return the chain of a directory inside, without that one's own rules."""
        if not self._levels:
            return self
        return Chain(tuple((rules, f"{prefix}{name}/") for rules, prefix in self._levels))

    def add(self, rules: Rules) -> Chain:
        """Return a chain in which these rules, of this directory, come first."""
        return Chain(((rules, ""), *self._levels)) if rules else self

    def ignores(self, name: str, *, directory: bool) -> bool:
        """Return whether an entry of this directory is ignored."""
        shown = f"{name}/" if directory else name
        for rules, prefix in self._levels:
            decided = rules.decide(prefix + shown)
            if decided is not None:
                return decided
        return False


def read_rules(path: str) -> Rules:
    """Return the rules in a file; none if it cannot be read."""
    return Rules(_read(path))


def work_tree_of(root: str) -> str | None:
    """Return the top of the Git work tree that a directory is in, or None."""
    for directory in _upwards(root):
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
    return None


def chain_above(root: str, top: str | None, environment: Mapping[str, str]) -> Chain:
    """Return the chain of a search root without the rules of the root itself; `top` is its work tree's top."""
    chain = Chain()
    inside = False
    above = [*_upwards(root)][::-1]
    for position, directory in enumerate(above):
        if directory == top:
            inside = True
            for path in global_files(directory, environment):
                chain = chain.add(read_rules(path))
        if directory != root:
            chain = chain.add(read_rules(os.path.join(directory, IGNORE)))
            if inside:
                chain = chain.add(read_rules(os.path.join(directory, GITIGNORE)))
            chain = chain.enter(os.path.basename(above[position + 1]))
    return chain


def global_files(top: str, environment: Mapping[str, str]) -> list[str]:
    """Return the files of rules that apply to a whole work tree, in increasing priority."""
    home = environment.get("HOME") or os.path.expanduser("~")
    found: list[str] = []
    excludes = _excludes_file(os.path.join(home, ".gitconfig"))
    if excludes:
        tilde = excludes.startswith("~/")
        found.append(os.path.join(home, excludes[2:] if tilde else excludes))
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    found.append(os.path.join(config, "git", "ignore"))
    found.append(os.path.join(_git_directory(top), "info", "exclude"))
    return found


def sources_above(root: str, top: str | None, environment: Mapping[str, str]) -> list[str]:
    """Return every file outside the root whose change may change what its chain says."""
    found: list[str] = []
    for directory in _upwards(root):
        found.append(os.path.join(directory, ".git"))
        if directory != root:
            found += [os.path.join(directory, IGNORE), os.path.join(directory, GITIGNORE)]
    if top is not None:
        home = environment.get("HOME") or os.path.expanduser("~")
        found += [os.path.join(home, ".gitconfig"), *global_files(top, environment)]
    return found


def _upwards(directory: str) -> Iterator[str]:
    """Yield a directory and all above it."""
    while True:
        yield directory
        above = os.path.dirname(directory)
        if above == directory:
            return
        directory = above


def _git_directory(top: str) -> str:
    """Return the Git directory of a work tree, which a file `.git` may name."""
    git = os.path.join(top, ".git")
    if os.path.isdir(git):
        return git
    key, _, named = _read(git).partition(":")
    if key != "gitdir":
        return git
    found = os.path.join(top, named.strip())
    common = _read(os.path.join(found, "commondir")).strip()
    return os.path.normpath(os.path.join(found, common)) if common else found


def _excludes_file(config: str) -> str:
    """Return `core.excludesfile` of a Git configuration, or nothing."""
    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, inline_comment_prefixes=("#", ";")
    )
    try:
        parser.read_string("\n".join(line.strip() for line in _read(config).splitlines()))
    except configparser.Error:
        return ""
    for section in parser.sections():
        if section.lower() == "core" and parser.has_option(section, "excludesfile"):
            return (parser.get(section, "excludesfile") or "").strip().strip('"')
    return ""


def _read(path: str) -> str:
    """Return the text of a regular file; of anything else nothing, and without a wait for whoever writes to a pipe."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            text = file.read(MAX_RULES_BYTES + 1)
            if len(text) > MAX_RULES_BYTES:  # half a line may be a rule of its own
                text = text[: text.rfind(b"\n", 0, MAX_RULES_BYTES) + 1]
            return text.decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
