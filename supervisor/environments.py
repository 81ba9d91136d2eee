"""Environments that are kept in this process's memory, bounded in bytes; none is ever written to a disk. Pure."""

from __future__ import annotations

MAX_BYTES = 16 * 1024 * 1024


class Environments:
    """One environment for each child that was given one."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: dict[str, dict[str, str]] = {}

    def keep(self, child_id: str, env: dict[str, str]) -> bool:
        """Keep an environment in place of an earlier one; return False, and keep the earlier one, if there is no room."""
        size = self._size - _size(self.of(child_id)) + _size(env)
        if size > self._limit:
            return False
        self._size = size
        self._kept[child_id] = env
        return True

    def of(self, child_id: str) -> dict[str, str]:
        """Return what is kept for a child, empty if nothing is."""
        return self._kept.get(child_id, {})


def _size(env: dict[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in env.items())
