"""Who is linked to whom: makes the socket pair of each link and hands out both ends, again after each start.

No link has a name in the file system, so nothing but a process of the tree can be at its other end. A link exists
from the moment at which both its processes have a control link.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from roost.schemas import control
from roost.supervisor import kernel
from roost.supervisor.errors import ActorGone, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roost.supervisor.registry import Entry, Registry

BUFFER_BYTES = 1024 * 1024


class Target(Protocol):
    """A process that can be handed an end of a link."""

    def hand_over(self, message: control.Handle, handle: socket.socket | int) -> None:
        """Send a descriptor, which is closed here in any case."""
        ...


P = TypeVar("P", bound=Target)


class Table:
    """Pairs of names that are linked; `prefix*` stands for every name that begins so. Pure."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        for pair in pairs:
            if any("*" in name[:-1] or not name for name in pair):
                raise SpecError(f"a star may only end a name: {pair}")
        self._sides = [*pairs, *((b, a) for a, b in pairs if a != b)]

    def peers(self, name: str) -> tuple[str, ...]:
        """Return the patterns of the names that a name is linked to, each once."""
        found = (theirs for ours, theirs in self._sides if _fits(name, ours))
        return tuple(dict.fromkeys(found))


def _fits(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


class Switchboard(Generic[P]):
    """Hands out link ends as processes come."""

    def __init__(self, pairs: Sequence[tuple[str, str]], registry: Registry[P]) -> None:
        self._table = Table(pairs)
        self._registry = registry
        registry.watch(self._on_change)

    def _on_change(self, entry: Entry[P], ended: str | None) -> None:
        if ended is None:
            for peer in self._peers(entry):
                _connect(entry, peer)

    def relink(self, name: str, other: str) -> None:
        """Make a new link between two that are linked by the table; nothing if one of them does not run."""
        if name in self._registry:
            entry = self._registry.find(name)
            for peer in self._peers(entry):
                if peer.name == other:
                    _connect(entry, peer)

    def _peers(self, entry: Entry[P]) -> Iterator[Entry[P]]:
        seen = {entry.name}
        for pattern in self._table.peers(entry.name):
            for peer in self._matching(pattern):
                if peer.name not in seen:
                    seen.add(peer.name)
                    yield peer

    def _matching(self, pattern: str) -> Iterator[Entry[P]]:
        if pattern.endswith("*"):
            yield from (peer for peer in self._registry if _fits(peer.name, pattern))
            return
        try:
            yield self._registry.find(pattern)
        except ActorGone:
            return


def _connect(one: Entry[P], other: Entry[P]) -> None:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        kernel.widen(end, BUFFER_BYTES)
    one.target.hand_over(control.Handle(name=other.name, generation=other.generation), ours)
    other.target.hand_over(control.Handle(name=one.name, generation=one.generation), theirs)
