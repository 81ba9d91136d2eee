"""The index of one root: walked once, then kept in step with the file system whenever somebody searches.

Nothing runs between searches. Before a search is answered, what the kernel has noted about the watched directories is
read, so a file that was created before the request was sent is found. Where the kernel does not note it, every
directory's times are compared instead. What a change may mean beyond its directory (rules, links) leads to a new walk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roost.actors.search import watch
from roost.actors.search.corpus import Corpus
from roost.actors.search.ignore import chain_above, sources_above, work_tree_of
from roost.actors.search.matching import Cancelled
from roost.actors.search.walk import (
    GIT,
    IS_FILE,
    Folder,
    Listing,
    Signature,
    Walk,
    sign,
)
from roost.actors.search.watch import Allowance, NoWatches, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
"""How often a root that changes all the time is looked at again before the search is answered anyway."""
LOOK_EVERY = 256


class IsCold(Exception):
    """The root has to be walked through, and that was not wanted."""


class Index:
    """One root, which must be a real path. Not for two threads at once."""

    def __init__(self, root: str, allowance: Allowance, *, most: int, watched: bool = True) -> None:
        self.root = root
        self._allowance = allowance
        self._most = most
        self._may_watch = self._watched = watched
        self._watcher: Watcher | None = None
        self._walk: Walk | None = None
        self._done = False
        self._above: dict[str, Signature] = {}
        self.corpus = Corpus(())

    def __len__(self) -> int:
        """Return how many paths it has."""
        return len(self.corpus)

    @property
    def watched(self) -> bool:
        """Return whether the kernel notes what changes."""
        return self._watcher is not None

    @property
    def is_cold(self) -> bool:
        """Return whether the next search has to walk through the root first."""
        return not self._done

    @property
    def aliases(self) -> dict[str, str]:
        """Return the links that were followed: the path of each, and the real path that it stands for."""
        return self._walk.aliases if self._walk is not None else {}

    def refresh(self, cancelled: Callable[[], bool], *, walks: bool = True) -> Corpus:
        """Return what is below the root now.

        Raises:
            Cancelled: `cancelled` said so; the next call goes on from there.
            IsCold: all must be walked, and `walks` does not allow that.
        """
        try:
            for _ in range(ROUNDS):
                if self._walk is None and not walks:
                    raise IsCold
                walk = self._walk or self._begin()
                if self._finish(walk, cancelled) and self._catch_up(walk, cancelled):
                    break
        finally:
            if self._walk is not None:
                self._walk.rest()
        self.corpus.settle()
        return self.corpus

    def close(self) -> None:
        """Forget everything, which takes a while with many watches; the next search begins anew."""
        self._reset()
        self.corpus = Corpus(())

    def renew(self, most: int) -> None:
        """Begin anew with the next search: with so many paths, and with watches again if there may be any."""
        self.close()
        self._most = most
        self._watched = self._may_watch

    def _reset(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        if self._walk is not None:
            self._walk.rest()
            self._walk = None
        self._done = False

    def _begin(self) -> Walk:
        top = work_tree_of(self.root)
        above = [self.root, *sources_above(self.root, top, os.environ)]
        self._above = {path: sign(path) for path in above}
        chain = chain_above(self.root, top, os.environ)
        if self._watched:
            try:
                self._watcher = Watcher(self._allowance)
            except NoWatches:
                self._watched = False
        try:
            self._walk = Walk(
                self.root,
                chain,
                in_tree=top is not None,
                watcher=self._watcher,
                most=self._most,
            )
        except NoWatches:
            return self._go_without()
        return self._walk

    def _go_without(self) -> Walk:
        """Begin again without watches."""
        self._reset()
        self._watched = False
        return self._begin()

    def _finish(self, walk: Walk, cancelled: Callable[[], bool]) -> bool:
        """Walk what is still to be walked and take what was found; return False if all must be walked again."""
        try:
            if not walk.run(cancelled):
                raise Cancelled
        except NoWatches:
            self._go_without()
            return False
        if walk.link_is_new:
            self._reset()
            return False
        if self._done:
            for path, kind in walk.found.items():
                self.corpus.add(path, kind)
        else:
            self.corpus = Corpus(walk.found.items())
            self._done = True
        walk.found.clear()
        return True

    def _catch_up(self, walk: Walk, cancelled: Callable[[], bool]) -> bool:
        """Take over what has changed; return False if all must be walked again."""
        try:
            changed = None if self._has_new_rules(walk) else self._changed(walk, cancelled)
            if changed is not None and all(
                self._relist(walk, folder) for folder in changed if not folder.gone
            ):
                return self._finish(walk, cancelled)
        except NoWatches:
            self._go_without()
            return False
        self._reset()
        return False

    def _has_new_rules(self, walk: Walk) -> bool:
        if any(walk.sign_link(path) != known for path, known in walk.links.items()):
            return True
        return any(
            sign(path) != known
            for states in (walk.rules, self._above)
            for path, known in states.items()
        )

    def _changed(self, walk: Walk, cancelled: Callable[[], bool]) -> list[Folder] | None:
        """Return the directories whose entries may have changed; None if that is not known."""
        if self._watcher is None:
            return self._compare(walk, cancelled)
        if walk.top.watch < 0:
            return None
        changed: dict[Folder, None] = {}
        for event in self._watcher.read():
            if event.mask & watch.OVERFLOW or (
                event.watch == walk.top.watch
                and event.mask & (watch.DELETE_SELF | watch.MOVE_SELF | watch.IGNORED)
            ):
                return None
            folder = walk.by_watch.get(event.watch)
            if folder is not None and _note(folder, event):
                changed[folder] = None
        return list(changed)

    def _compare(self, walk: Walk, cancelled: Callable[[], bool]) -> list[Folder]:
        changed: list[Folder] = []
        for number, folder in enumerate(walk.folders()):
            if number % LOOK_EVERY == 0 and cancelled():
                raise Cancelled
            if folder.racy or walk.sign(folder) != folder.signature:
                changed.append(folder)
        return changed

    def _relist(self, walk: Walk, folder: Folder) -> bool:
        """Take over what is in a directory now; return False if only a new walk can tell what it means."""
        listing = walk.list(folder)
        if listing is None:
            listing = Listing([])
        if walk.rules_in(listing) != folder.rules or self._has_new_link(walk, folder, listing):
            return False
        now = {name: (kind, inode) for name, kind, inode in listing.entries}
        for name, known in list(folder.entries.items()):
            kind, inode = now.get(name, ("", 0))
            inner = folder.inside.get(name)
            same = inode == known if kind == "d" else kind == "f" and known == IS_FILE
            if kind == "l" or (same and not (inner is not None and inner.gone)):
                continue
            if folder.aliased:
                return False
            self._drop(walk, folder, name)
        for name, kind, inode in listing.entries:
            if name not in folder.entries and kind != "l":
                walk.visit(folder, name, kind, inode)
        return True

    def _has_new_link(self, walk: Walk, folder: Folder, listing: Listing) -> bool:
        return any(
            folder.real_of(name) not in walk.links
            and name != GIT
            and not folder.chain.ignores(name, directory=False)
            for name, kind, _ in listing.entries
            if kind == "l"
        )

    def _drop(self, walk: Walk, folder: Folder, name: str) -> None:
        walk.forget(folder, name)
        self.corpus.remove(folder.below(name))


def _note(folder: Folder, event: watch.Event) -> bool:
    """Note what an event says of the directories inside; return whether the directory must be listed again."""
    if event.mask & (watch.IGNORED | watch.DELETE_SELF | watch.MOVE_SELF):
        # Its own directory is listed too, or it is the root.
        folder.gone = folder.gone or bool(event.mask & watch.IGNORED)
        return False
    if event.mask & watch.ATTRIB:
        inner = folder.inside.get(event.name)
        if inner is None or inner.watch >= 0:
            return False
    if event.mask & watch.IS_DIRECTORY:
        inner = folder.inside.get(event.name)
        if inner is not None:
            inner.gone = True  # whatever has its name now is walked anew
    return True
