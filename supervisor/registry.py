"""Who is where: a name and what reaches it (a mailbox, a link, a running process), in one place.

A name stands for one incarnation at a time. What watches names is told when one comes and when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from roost.supervisor.errors import ActorGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class Entry(Generic[T]):
    """A name, the generation of the incarnation that has it, and what reaches it."""

    __slots__ = ("generation", "name", "target")

    def __init__(self, name: str, generation: int, target: T) -> None:
        self.name = name
        self.generation = generation
        self.target = target


class Registry(Generic[T]):
    """Names of running incarnations."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry[T]] = {}
        self._watchers: list[Callable[[Entry[T], str | None], None]] = []

    def register(self, name: str, generation: int, target: T) -> Entry[T]:
        """Let a name stand for a new incarnation and tell the watchers; an older one is told as ended first."""
        old = self._entries.get(name)
        if old is not None:
            self.ended(name, old.generation, "replaced")
        entry = self._entries[name] = Entry(name, generation, target)
        for watcher in self._watchers:
            watcher(entry, None)
        return entry

    def ended(self, name: str, generation: int, reason: str) -> None:
        """Forget an incarnation and tell the watchers why; one that is not the current one is ignored."""
        entry = self._entries.get(name)
        if entry is None or entry.generation != generation:
            return
        del self._entries[name]
        for watcher in self._watchers:
            watcher(entry, reason)

    def find(self, name: str) -> Entry[T]:
        """Return the incarnation that has a name now.

        Raises:
            ActorGone: no one has it.
        """
        try:
            return self._entries[name]
        except KeyError:
            raise ActorGone(f"{name} does not run") from None

    def watch(self, watcher: Callable[[Entry[T], str | None], None]) -> None:
        """Call `watcher(entry, None)` when a name comes and `watcher(entry, reason)` when it ends. It must not raise."""
        self._watchers.append(watcher)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)
