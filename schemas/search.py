"""What the front and the search service say to each other."""

from __future__ import annotations

from typing import Literal

from roost.schemas.base import Message

MAX_QUERY = 256
MAX_ROOTS = 64
MAX_FOUND = 50


class Search(Message, frozen=True, kw_only=True, tag="search.search"):
    """Call front → search: the paths below `roots` (absolute) that fit `query` best; answered with `Found` or `Refused`.

    `number` names the search for `StopSearch`; a stopped one is answered soon, with nothing.
    """

    number: int
    query: str
    roots: tuple[str, ...]


class StopSearch(Message, frozen=True, kw_only=True, tag="search.stop"):
    """Cast front → search: nobody waits for that search any more."""

    number: int


class FoundPath(Message, frozen=True, kw_only=True, tag="search.path"):
    """One path; `root` is the text that was given, `indices` are code points of `path`."""

    root: str
    path: str
    kind: Literal["file", "directory"]
    score: int
    indices: tuple[int, ...]


class Found(Message, frozen=True, kw_only=True, tag="search.found"):
    """The answer to `Search`, best first."""

    paths: tuple[FoundPath, ...] = ()
