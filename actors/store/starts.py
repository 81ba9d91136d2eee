"""Which agents root has been asked to start, and those that still wait for their turn after a cold start."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from roost.schemas.control import StartChild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roost.schemas.control import ChildReport


class Starts:
    """Requests to root; an agent asked for is not asked for again before something has become of it."""

    def __init__(self, ask: Callable[[StartChild], None], at_once: int) -> None:
        self._ask = ask
        self.at_once = at_once
        self._asked: set[str] = set()
        self._queue: deque[str] = deque()
        self._slots: set[str] = set()

    def start(self, agent_id: str, *, fresh: bool) -> None:
        """Ask root for an agent."""
        if fresh or agent_id not in self._asked:
            self._asked.add(agent_id)
            self._ask(StartChild(child_id=agent_id, fresh=fresh))

    def asked(self, agent_id: str) -> bool:
        """Return whether root has been asked for an agent of which nothing has been heard yet."""
        return agent_id in self._asked

    def queue(self, agents: Iterable[str]) -> None:
        """Ask for these agents, a few at once."""
        self._queue.extend(agents)
        self._next()

    def linked(self, agent_id: str) -> None:
        """Note that the agent is there."""
        self._asked.discard(agent_id)

    def report(self, report: ChildReport) -> None:
        """Note what happened to an agent."""
        if report.event in {"ended", "gave_up"}:
            self._asked.discard(report.child_id)
        if report.event != "started" and report.child_id in self._slots:
            self._slots.discard(report.child_id)
            self._next()

    def _next(self) -> None:
        while self._queue and len(self._slots) < self.at_once:
            agent_id = self._queue.popleft()
            self._slots.add(agent_id)
            self.start(agent_id, fresh=False)
