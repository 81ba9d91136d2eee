"""Cancelled turns that do not end: their processes are killed, for one whose loop is blocked cannot ask for it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from roost.schemas.turn import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.file import StoreFile
    from roost.schemas.turn import Bell

MARGIN: Final = 1.0


class Unwinding:
    """The turns that were asked to stop; `kill` is told the agent, the generation of its process, and why."""

    def __init__(
        self,
        nursery: trio.Nursery,
        file: StoreFile,
        seconds: float,
        kill: Callable[[str, int, str], None],
    ) -> None:
        self._nursery = nursery
        self._file = file
        self.seconds = seconds
        self._kill = kill
        self._turns: set[str] = set()

    def watch(self, agent_id: str, generation: int, bell: Bell) -> None:
        """Give the turns that this bell cancels their time."""
        for item in bell.items:
            if isinstance(item, Cancelled) and item.turn_id not in self._turns:
                self._turns.add(item.turn_id)
                self._nursery.start_soon(
                    self._wait, agent_id, generation, bell.session_id, item.turn_id
                )

    async def _wait(self, agent_id: str, generation: int, session_id: str, turn_id: str) -> None:
        await trio.sleep(self.seconds + MARGIN)
        self._turns.discard(turn_id)
        desk = self._file.desk
        session = desk.journal.session(session_id) if desk is not None else None
        if session is not None and session.turn_id == turn_id:
            self._kill(agent_id, generation, "a cancelled turn did not unwind")
