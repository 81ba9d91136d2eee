from __future__ import annotations

import pytest

from roost.supervisor.errors import ActorGone
from roost.supervisor.registry import Entry, Registry


def watched() -> tuple[Registry[str], list[tuple[str, int, str | None]]]:
    registry: Registry[str] = Registry()
    seen: list[tuple[str, int, str | None]] = []

    def watcher(entry: Entry[str], ended: str | None) -> None:
        seen.append((entry.name, entry.generation, ended))

    registry.watch(watcher)
    return registry, seen


def test_a_name_leads_to_its_current_incarnation() -> None:
    registry, seen = watched()
    registry.register("store", 1, "first")
    assert registry.find("store").target == "first"
    assert "store" in registry
    assert seen == [("store", 1, None)]


def test_an_unknown_name_is_gone() -> None:
    registry, _ = watched()
    with pytest.raises(ActorGone, match="store"):
        registry.find("store")


def test_watchers_are_told_why_an_incarnation_ended() -> None:
    registry, seen = watched()
    registry.register("store", 1, "first")
    registry.ended("store", 1, "ended by SIGKILL")
    assert "store" not in registry
    assert seen[-1] == ("store", 1, "ended by SIGKILL")
    assert len(registry) == 0


def test_the_end_of_an_older_incarnation_is_ignored() -> None:
    registry, seen = watched()
    registry.register("store", 2, "second")
    registry.ended("store", 1, "late news")
    assert registry.find("store").generation == 2
    assert len(seen) == 1


def test_a_new_incarnation_ends_the_one_before_it_first() -> None:
    registry, seen = watched()
    registry.register("store", 1, "first")
    registry.register("store", 2, "second")
    assert seen == [("store", 1, None), ("store", 1, "replaced"), ("store", 2, None)]
    assert [entry.target for entry in registry] == ["second"]
