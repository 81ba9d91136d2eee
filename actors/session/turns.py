"""What a session needs of its surroundings: a process to live in, and somebody who makes turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.session.approvals import Grants
    from roost.actors.session.clock import Clock
    from roost.actors.session.outbox import Outbox
    from roost.schemas.approval import PendingRow
    from roost.schemas.base import CallId, Message, SessionId, TurnId
    from roost.schemas.event import AnyEvent
    from roost.schemas.turn import Draft, OpenTurn, QueuedMessage
    from roost.supervisor.errors import ActorGone


class Host(Protocol):
    """The process of a session."""

    @property
    def has_store(self) -> bool:
        """Return whether there is a link to the store."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Return whether no further turn is to begin."""
        ...

    @property
    def agent_grants(self) -> set[str]:
        """Return what has been approved for all sessions of the agent."""
        ...

    def send_draft(self, draft: Draft) -> bool:
        """Queue a draft; return False if there is no link, or no room on it."""
        ...

    def call_store(
        self, message: Message, on_answer: Callable[[Message | ActorGone], None]
    ) -> None:
        """Call the store; the answer, or that it is gone, comes exactly once."""
        ...

    async def ask_store(self, message: Message) -> Message:
        """Call the store with something idempotent; wait for a link, and repeat on the next one if it is lost."""
        ...

    def kill(self, reason: str) -> None:
        """Have this process killed and started again: something in it does not unwind."""
        ...

    def changed(self, session_id: SessionId) -> None:
        """Hear that this session has begun or ended work."""
        ...


class Session(Protocol):
    """What a turn needs of its session."""

    session_id: SessionId
    cwd: str
    metadata: bytes
    model: str
    cleared_after: int
    outbox: Outbox
    grants: Grants
    clock: Clock
    """What counts against the time limits of turns: not the time without the store, nor the wait for a person."""
    uptime: Clock
    """The time with a store."""

    def pull(self) -> None:
        """Ask the store for everything open; decisions come in by `Turn.decide`."""
        ...

    def turn_changed(self) -> None:
        """Hear that the turn has begun or ceased to wait for a person."""
        ...

    async def ask_store(self, message: Message) -> Message:
        """Call the store with something idempotent."""
        ...

    async def watch_unwind(self, has_ended: Callable[[], bool], what: str) -> None:
        """Have the process killed if something that was to stop does not."""
        ...


class Turn(Protocol):
    """A turn that runs or waits."""

    turn_id: TurnId

    @property
    def is_waiting(self) -> bool:
        """Return whether nothing happens until a person decides."""
        ...

    @property
    def has_ended(self) -> bool:
        """Return whether its last event has been handed over, though perhaps not answered."""
        ...

    async def run(self) -> None:
        """Run until the last event is on disk, or it turns out that the turn was never to begin.

        Cancelled, everything it has started is ended and nothing more is written.
        """
        ...

    def decide(self, row: PendingRow) -> None:
        """Take a settled pending row."""
        ...

    def steer(self, message: QueuedMessage) -> None:
        """Take a message that was sent into this turn; one that it has is ignored."""
        ...

    def cancel_call(self, call_id: CallId) -> None:
        """Stop one call that runs; the turn goes on. Any other is left alone."""
        ...

    def cancel(self) -> None:
        """Interrupt it; `run` returns when all has unwound."""
        ...


class TurnMaker(Protocol):
    """Makes the turns of an agent's sessions."""

    def begin(self, session: Session, message: QueuedMessage, since: float) -> Turn:
        """Return the turn of a message that has waited since then by the session's clock."""
        ...

    def resume(self, session: Session, turn: OpenTurn, events: Sequence[AnyEvent]) -> Turn:
        """Return a parked turn, rebuilt from its events."""
        ...

    def forget(self, session_id: str) -> None:
        """Drop what is kept of a session's conversation: the next turn reads it anew."""
        ...
