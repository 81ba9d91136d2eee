"""Where the front of a session's log may be cut off: only between two turns; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TURNS: Final = 256


class Cut(NamedTuple):
    """What goes: everything up to a sequence (0 for nothing), what it takes, and whose turns it was."""

    upto: int = 0
    size: int = 0
    turn_ids: tuple[str, ...] = ()


class Cutter:
    """Reads a log from its first event on and finds how many of its first turns go.

    A turn begins with the first event that names it. What no turn wrote belongs to the turn before it; what stands in
    front of all turns goes with the first. A turn is known to be complete when the next one begins, or when the
    caller says that the log ends there.
    """

    def __init__(
        self,
        excess: float,
        may_go: Callable[[int], bool] = lambda _: True,
        max_turns: int = MAX_TURNS,
    ) -> None:
        """Cut until at least `excess` bytes are gone; `may_go` is asked for each turn, by its last sequence."""
        self.cut = Cut()
        self._excess = excess
        self._may_go = may_go
        self._max_turns = max_turns
        self._turn = ""
        self._size = 0
        self._last = 0

    def take(self, sequence: int, turn_id: str, size: int) -> bool:
        """Take the next event; return whether the cut is found."""
        if turn_id and turn_id != self._turn:
            if self._turn and self._end_turn():
                return True
            self._turn = turn_id
        self._size += size
        self._last = sequence
        return False

    def take_end(self) -> None:
        """The log ends here, and so has its last turn."""
        if self._last:
            self._end_turn()

    def _end_turn(self) -> bool:
        if not self._may_go(self._last):
            return True
        turns = (*self.cut.turn_ids, self._turn) if self._turn else self.cut.turn_ids
        self.cut = Cut(self._last, self._size, turns)
        return self._size >= self._excess or len(turns) >= self._max_turns
