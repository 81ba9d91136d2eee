"""The tool `list_files`."""

from __future__ import annotations

import fnmatch
import os
import threading
from typing import TYPE_CHECKING, Annotated

import msgspec
import trio

from roost.actors.agent.tools.paths import resolve
from roost.actors.agent.tools.tool import Arguments, Surroundings, Tool, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from roost.schemas.base import CallId

SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))
MAX_SEEN = 200_000


class ListFilesArguments(Arguments, frozen=True, kw_only=True):
    """`pattern` is matched against the path below `path`; one without a slash against the name alone."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] = "*"
    path: str = "."
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200


class ListFiles(Tool[ListFilesArguments]):
    """Finds files by name."""

    name = "list_files"
    description = (
        "List files below a folder whose path matches a glob pattern, such as *.py or src/**/*.c."
    )
    parallel = True
    arguments = ListFilesArguments

    async def run(
        self, call_id: CallId, arguments: ListFilesArguments, around: Surroundings
    ) -> object:
        """Return the paths in order. Cancelled, the search ends at the next file."""
        stop = threading.Event()
        try:
            return await trio.to_thread.run_sync(
                _list, arguments, around, stop, abandon_on_cancel=True
            )
        finally:
            stop.set()


def _list(
    arguments: ListFilesArguments, around: Surroundings, stop: threading.Event
) -> dict[str, object]:
    root = resolve(arguments.path, around)
    if not root.is_dir():
        raise ToolFailed("NOT_A_FOLDER", "There is no such folder")
    pattern = arguments.pattern.removeprefix("./").split("/")
    if len(pattern) == 1:
        pattern = ["**", *pattern]
    found: list[str] = []
    size = 0
    hides = _never if around.has_full_access else around.places().hides
    for seen, path in enumerate(_walk(root, stop, hides), 1):
        if _matches(path.split("/"), pattern):
            if len(found) >= arguments.limit or size > around.limits.result_bytes:
                return {"files": found, "truncated": True}
            found.append(path)
            size += len(path) + 4
        if seen >= MAX_SEEN:
            return {"files": found, "truncated": True}
    return {"files": found, "truncated": False}


def _never(_: str) -> bool:
    return False


def _walk(root: Path, stop: threading.Event, hides: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files below a folder, sorted within each folder; links to folders are not followed."""
    waiting = [""]
    while waiting and not stop.is_set():
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        below: list[str] = []
        for entry in here:
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and not hides(entry.path):
                    below.append(f"{path}/")
            elif path.isprintable():
                yield path
        waiting += reversed(below)


def _matches(path: list[str], pattern: list[str]) -> bool:
    """Return whether a path fits a pattern, part by part; `**` stands for any number of parts."""
    at = place = 0
    star, resume = -1, 0
    while place < len(path):
        if at < len(pattern) and pattern[at] == "**":
            star, resume = at, place
            at += 1
        elif at < len(pattern) and fnmatch.fnmatchcase(path[place], pattern[at]):
            at += 1
            place += 1
        elif star >= 0:
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return all(part == "**" for part in pattern[at:])
