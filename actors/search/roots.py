"""Which directories a search looks into (P 10.1): real paths, each once, the deepest first; and what overlaps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roost.actors.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Root:
    """A directory to be searched, and the text that named it first."""

    __slots__ = ("real", "text")

    def __init__(self, text: str, real: str) -> None:
        self.text = text
        self.real = real

    def real_of(self, path: str, aliases: Mapping[str, str]) -> str:
        """Return the real path of what was found below this root, which may lie behind links that were followed."""
        link = _link_above(path, aliases)
        if link:
            return aliases[link] + path[len(link) :]
        return f"{self.real.rstrip('/')}/{path}"


def resolve(texts: Iterable[str], allowed: Sequence[str]) -> list[Root]:
    """Return the directories among the texts, which are absolute paths; what is no directory is left out.

    Raises:
        InvalidArgument: a directory is not inside one of `allowed`, which is empty if all are.
    """
    limits = [_limit(path) for path in allowed]
    found: dict[str, Root] = {}
    for text in texts:
        try:
            real = os.path.realpath(text)
            if limits and not any(is_inside(real, limit) for limit in limits):
                raise InvalidArgument(
                    "fs.fuzzy_search param 'roots' has a directory that may not be searched",
                    {"path": "/roots"},
                )
            if os.path.isdir(real):
                found.setdefault(real, Root(text, real))
        except (OSError, ValueError):  # such as a NUL, or too many links
            continue
    return sorted(found.values(), key=lambda root: (-root.real.rstrip("/").count("/"), root.real))


def _limit(path: str) -> str:
    """Return the real path of a directory that may be searched; a link that vanishes meanwhile stands for itself."""
    expanded = os.path.expanduser(path)
    try:
        return os.path.realpath(expanded)
    except OSError:
        return os.path.normpath(expanded)


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


class Seen:
    """What has been reported under the roots that came before."""

    def __init__(self) -> None:
        self._roots: list[str] = []
        self._behind_links: set[str] = set()

    def add(self, root: Root, aliases: Mapping[str, str]) -> None:
        """Note a root whose paths are reported."""
        self._roots.append(root.real.rstrip("/") + "/")
        self._behind_links.update(aliases.values())

    def hides(self, root: Root, aliases: Mapping[str, str]) -> Callable[[str], bool] | None:
        """Return what tells whether a path below a root has been reported already; None if none can have been."""
        outer = root.real.rstrip("/") + "/"
        before = [one for one in self._roots if aliases or one.startswith(outer)]
        behind = self._behind_links
        if not before and not behind:
            return None

        def hidden(path: str) -> bool:
            real = root.real_of(path, aliases)
            return real in behind or any(real.startswith(one) for one in before)

        return hidden


def _link_above(path: str, aliases: Mapping[str, str]) -> str:
    """Return the link that a path begins with, the longest if there are several; or nothing."""
    if not aliases:
        return ""
    end = len(path)
    while end > 0:
        if path[:end] in aliases:
            return path[:end]
        end = path.rfind("/", 0, end)
    return ""
