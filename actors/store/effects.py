"""What a transaction causes outside of the store, collected in order and released after its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.schemas.session import EventBatch

if TYPE_CHECKING:
    from roost.actors.store.audit import Decided
    from roost.schemas.base import AgentId, SessionId
    from roost.schemas.published import PublishedItem
    from roost.schemas.session import MessageChanged, PendingChanged
    from roost.schemas.turn import Bell


class Effects:
    """What the front is told, which agents are rung, which are to be started, and which decisions are recorded."""

    def __init__(self) -> None:
        self.items: list[PublishedItem] = []
        self.bells: list[tuple[AgentId, Bell]] = []
        self.starts: dict[AgentId, bool] = {}
        self.decided: list[Decided] = []
        # The bytes of all events.
        self.size = 0
        self._batches: dict[SessionId, EventBatch] = {}

    def event(self, session_id: SessionId, agent_id: AgentId, sequence: int, body: bytes) -> None:
        """Publish an event, together with those of its session right before it."""
        self.size += len(body)
        batch = self._batches.get(session_id)
        if batch is not None:
            batch.bodies.append(body)
            return
        batch = self._batches[session_id] = EventBatch(
            session_id=session_id, agent_id=agent_id, first=sequence, bodies=[body]
        )
        self.items.append(batch)

    def publish(self, item: MessageChanged | PendingChanged) -> None:
        """Publish something about one session, after the events so far and before the next one."""
        self._batches.pop(item.session_id, None)
        self.items.append(item)

    def announce(self, item: PublishedItem) -> None:
        """Publish something that is after everything so far, of any session."""
        self._batches.clear()
        self.items.append(item)

    def ring(self, agent_id: AgentId, bell: Bell) -> None:
        """Ring an agent if it is there; it misses nothing if not."""
        self.bells.append((agent_id, bell))

    def start(self, agent_id: AgentId, *, fresh: bool) -> None:
        """Have an agent started if it is not there; `fresh` gives one that had been given up a new budget."""
        self.starts[agent_id] = fresh or self.starts.get(agent_id, False)

    def extend(self, other: Effects) -> None:
        """Add what a later transaction causes."""
        self._batches.clear()
        self.items += other.items
        self.size += other.size
        self.bells += other.bells
        for agent_id, fresh in other.starts.items():
            self.start(agent_id, fresh=fresh)
