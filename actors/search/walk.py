"""The walk through a root (P 10.2): directories in name order, depth first, without recursion; it can be interrupted.

Symbolic links are followed unless they lead to a directory outside the root. Each real path is visited once, by the
path by which it is reached first. What the kernel mounts to show itself below the root is not entered.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from roost.actors.search.corpus import DIRECTORY, FILE
from roost.actors.search.deep import Opener
from roost.actors.search.ignore import GITIGNORE, IGNORE, Chain, read_rules
from roost.actors.search.mounts import read_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roost.actors.search.watch import Watcher

GIT = ".git"
LONG_PATH = 1_000
"""Characters in a path beyond which it is opened piece by piece."""
LOOK_EVERY = 256
IS_FILE = -1

Signature = tuple[int, ...] | None


class Folder:
    """A directory that has been walked: its path below the root (empty for the root), and what was found in it.

    `entries` has the number of the inode of each directory, or `IS_FILE`.
    """

    __slots__ = (
        "aliased",
        "chain",
        "entries",
        "gone",
        "inside",
        "path",
        "racy",
        "real",
        "rules",
        "signature",
        "watch",
    )

    def __init__(self, path: str, real: str, chain: Chain, *, aliased: bool = False) -> None:
        self.path = path
        self.real = real
        self.chain = chain
        self.aliased = aliased
        self.entries: dict[str, int] = {}
        self.inside: dict[str, Folder] = {}
        self.rules: tuple[str, ...] = ()
        self.watch = -1
        self.gone = False
        self.signature: Signature = None
        self.racy = False

    def below(self, name: str) -> str:
        """Return the path of an entry."""
        return f"{self.path}/{name}" if self.path else name

    def real_of(self, name: str) -> str:
        """Return the real path of an entry that is no link, and of a link itself."""
        return f"{self.real}/{name}" if self.real != "/" else f"/{name}"


class Listing:
    """What is in a directory: (name, kind of entry, inode), in name order; kinds are `f`, `d` and `l`."""

    __slots__ = ("entries", "names")

    def __init__(self, entries: list[tuple[str, str, int]]) -> None:
        self.entries = entries
        self.names = {name for name, _, _ in entries}


class Walk:
    """The state of a walk. `found` collects paths with their kinds; whoever runs it takes them out.

    `links` has every link that was looked at with what it led to, `rules` every file of rules with its state.
    """

    def __init__(
        self, root: str, chain: Chain, *, in_tree: bool, watcher: Watcher | None, most: int
    ) -> None:
        self.root = root
        self.top = Folder("", root, chain)
        self.found: dict[str, int] = {}
        self.links: dict[str, Signature] = {}
        self.aliases: dict[str, str] = {}
        self.rules: dict[str, Signature] = {}
        self.by_watch: dict[int, Folder] = {}
        self.link_is_new = False
        self._first = True
        self.rule_names = (IGNORE, GITIGNORE) if in_tree else (IGNORE,)
        self._watcher = watcher
        self._opener = Opener()
        self._left = most
        self._claimed: set[str] = {root}
        self._mounts = read_mounts()
        state = sign_target(root)
        if state is not None:
            self._mounts.allow(state[0])
        # Of each directory what is still to be looked at, the next one last.
        self._stack: list[tuple[Folder, list[tuple[str, str, int]]]] = []
        self._looked = 0
        self.enter(self.top)

    def run(self, cancelled: Callable[[], bool]) -> bool:
        """Go on until everything has been visited; return False if it was cancelled before."""
        while self._stack:
            folder, entries = self._stack[-1]
            while entries:
                self._looked += 1
                if self._looked % LOOK_EVERY == 0 and cancelled():
                    return False
                if self._visit(folder, *entries.pop()):
                    break
            else:
                self._stack.pop()
        self._first = False
        return True

    def enter(self, folder: Folder) -> None:
        """Visit a directory next. Raises `NoWatches` if it should be watched and cannot be."""
        listing = self.list(folder)
        if listing is None:
            return
        self.take_rules(folder, listing)
        self._stack.append((folder, listing.entries[::-1]))

    def list(self, folder: Folder) -> Listing | None:
        """Return what is in a directory, watched from now on; None if it cannot be read."""
        path: str | int = folder.real
        try:
            if len(folder.real) > LONG_PATH:
                path = self._opener.open(folder.real)
            if self._watcher is not None:
                named = path if isinstance(path, str) else f"/proc/self/fd/{path}"
                folder.watch = self._watcher.add(named)
                self.by_watch[folder.watch] = folder
            else:
                now = time.time_ns()
                folder.signature = _sign_folder(path)
                folder.racy = is_racy(folder.signature, now)
            return _read(path)
        except OSError:
            return None

    def sign(self, folder: Folder) -> Signature:
        """Return what tells whether the entries of a directory have changed; None if it cannot be read."""
        try:
            long = len(folder.real) > LONG_PATH
            return _sign_folder(self._opener.open(folder.real) if long else folder.real)
        except OSError:
            return None

    def sign_link(self, link: str) -> Signature:
        """Return device, inode and kind of what a link leads to; None if that is nothing to be looked into."""
        found = sign_target(link)
        return None if found is None or self._mounts.has_device(found[0]) else found

    def rest(self) -> None:
        """Close what need not stay open between searches."""
        self._opener.close()

    def take_rules(self, folder: Folder, listing: Listing) -> None:
        """Put the rules of a directory before those that apply in it already."""
        folder.rules = self.rules_in(listing)
        for name in folder.rules:
            self._looked = (
                -1
            )  # many rules take a while: look next whether the search is still wanted
            path = folder.real_of(name)
            self.rules[path] = sign(path)
            folder.chain = folder.chain.add(read_rules(path))

    def rules_in(self, listing: Listing) -> tuple[str, ...]:
        """Return the names of the files of rules in a directory, in increasing priority."""
        return tuple(name for name in self.rule_names if name in listing.names)

    def forget(self, folder: Folder, name: str) -> None:
        """Drop an entry that is gone, and all below it, from what is watched; others may take its room."""
        del folder.entries[name]
        self._left += 1
        inner = folder.inside.pop(name, None)
        waiting = [inner] if inner is not None else []
        while waiting:
            one = waiting.pop()
            waiting += one.inside.values()
            one.gone = True
            self._left += len(one.entries)
            self.by_watch.pop(one.watch, None)
            if self._watcher is not None:
                self._watcher.remove(one.watch)
            for rule in one.rules:
                self.rules.pop(one.real_of(rule), None)

    def folders(self) -> Iterator[Folder]:
        """Yield every directory that has been walked."""
        waiting = [self.top]
        while waiting:
            one = waiting.pop()
            waiting += one.inside.values()
            yield one

    def visit(self, folder: Folder, name: str, kind: str, inode: int) -> None:
        """Look at one entry; a directory is walked by the next `run`."""
        self._visit(folder, name, kind, inode)

    def _visit(self, folder: Folder, name: str, kind: str, inode: int) -> bool:
        """Look at one entry; return whether it is a directory that is to be walked now."""
        if name == GIT or folder.chain.ignores(name, directory=kind == "d"):
            return False
        real = folder.real_of(name)
        aliased = folder.aliased
        if kind == "l":
            resolved = self._follow(folder, name, real)
            if resolved is None:
                return False
            real, kind, inode = resolved
            aliased = True
        elif real in self._claimed or (kind == "d" and self._mounts.has_at(real)):
            return False
        if self._left <= 0:
            return False
        self._left -= 1
        path = folder.below(name)
        if aliased:
            self._claimed.add(real)
        self.found[path] = DIRECTORY if kind == "d" else FILE
        if kind != "d":
            folder.entries[name] = IS_FILE
            return False
        folder.entries[name] = inode
        inner = Folder(path, real, folder.chain.enter(name), aliased=aliased)
        folder.inside[name] = inner
        self.enter(inner)
        return True

    def _follow(self, folder: Folder, name: str, link: str) -> tuple[str, str, int] | None:
        """Return where a link leads: real path, kind and inode; None if it is not to be followed."""
        self.links[link] = signature = self.sign_link(link)
        if not self._first:
            self.link_is_new = True
        if signature is None:
            return None
        try:
            real = os.path.realpath(link)
        except OSError:  # it is gone by now
            return None
        directory = stat.S_ISDIR(signature[2])
        if not directory and not stat.S_ISREG(signature[2]):
            return None
        inside = real.startswith(self.root.rstrip("/") + "/")
        if real in self._claimed or (directory and not inside):
            return None
        if inside and real[len(self.root.rstrip("/")) + 1 :] in self.found:
            return None
        self.aliases[folder.below(name)] = real
        return real, "d" if directory else "f", signature[1]


def sign(path: str) -> Signature:
    """Return what tells whether the text of a file has changed; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return (found.st_dev, found.st_ino)
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def sign_target(link: str) -> Signature:
    """Return device, inode and kind of what a link leads to; None if it leads nowhere."""
    try:
        found = os.stat(link)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode))


def _sign_folder(path: str | int) -> Signature:
    found = os.stat(path)
    return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def is_racy(signature: Signature, now: int) -> bool:
    """Return whether a change so soon before `now` may have had the same time as one after it."""
    return signature is not None and max(signature[1], signature[2]) > now - 2_100_000_000


def _read(directory: str | int) -> Listing:
    entries: list[tuple[str, str, int]] = []
    with os.scandir(directory) as found:
        for entry in found:
            if entry.is_symlink():
                entries.append((entry.name, "l", 0))
            elif entry.is_dir(follow_symlinks=False):
                entries.append((entry.name, "d", entry.inode()))
            elif entry.is_file(follow_symlinks=False):
                entries.append((entry.name, "f", 0))
    entries.sort()
    return Listing(entries)
