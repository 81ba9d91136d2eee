"""What clients' requests, agents' drafts and repairs have in common: how messages, turns, sessions and agents end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import NotFound
from roost.actors.store.audit import Decided
from roost.schemas import event
from roost.schemas.agent import AgentChanged
from roost.schemas.base import AgentId, MessageId, TurnId
from roost.schemas.said import said_with
from roost.schemas.session import MessageChanged, PendingChanged, SessionChanged
from roost.schemas.turn import Bell, Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from roost.actors.store.capacity import Capacity
    from roost.actors.store.catalogue import Catalogue
    from roost.actors.store.journal import Journal, Session
    from roost.actors.store.ledger import Ledger
    from roost.actors.store.turns import MessageRow, TurnRow, Turns
    from roost.schemas.agent import AgentRow, AgentStatus
    from roost.schemas.approval import PendingRow
    from roost.schemas.session import SessionRow
    from roost.schemas.turn import TurnOutcome


class Lifecycle:
    """Changes that belong together, all in the transaction that is open."""

    def __init__(
        self,
        journal: Journal,
        catalogue: Catalogue,
        turns: Turns,
        ledger: Ledger,
        capacity: Capacity,
    ) -> None:
        self.journal = journal
        self.catalogue = catalogue
        self.turns = turns
        self.ledger = ledger
        self.capacity = capacity
        # Told of each session that is to go as soon as it is closed; its transaction may still fail.
        self.on_ephemeral_closed: Callable[[str], None] = lambda session_id: None

    def need_session(self, session_id: str) -> Session:
        """Return an open session of a live agent.

        Raises:
            NotFound: it does not exist, takes no further message, or its agent has ended.
        """
        session = self.journal.session(session_id)
        if session is None or session.state != "open":
            text = f"AgenC daemon session not found or closed: {session_id}"
            raise NotFound("AGENT_NOT_FOUND", text)
        if self.catalogue.agent_state(session.agent_id) != "live":
            raise NotFound("AGENT_NOT_FOUND", f"AgenC daemon agent not found: {session.agent_id}")
        return session

    def need_agent(self, agent_id: str) -> AgentRow:
        """Return an agent's record.

        Raises:
            NotFound: there is none.
        """
        row = self.catalogue.agent(agent_id)
        if row is None:
            raise NotFound("AGENT_NOT_FOUND", f"AgenC daemon agent not found: {agent_id}")
        return row

    def session_row(self, session: Session) -> SessionRow:
        """Return the record of a session as it is within this transaction."""
        self.journal.flush()
        row = self.catalogue.session(session.session_id)
        assert row is not None
        return row

    def message_changed(
        self,
        session: Session,
        message: MessageRow,
        state: Literal["accepted", "begun", "ended"],
        *,
        turn_id: str = "",
        outcome: str = "",
        error: str = "",
        position: int = 0,
    ) -> None:
        """Publish a message's new state."""
        changed = MessageChanged(
            session_id=session.session_id,
            agent_id=session.agent_id,
            message_id=MessageId(message.message_id),
            stream_id=message.stream_id,
            state=state,
            accepted_at=message.accepted_at,
            turn_id=turn_id,
            outcome=outcome,
            error=error,
            position=position,
            text=message.text,
            display=message.display,
            hidden=bool(message.hidden),
            planned=message.planned,
            steering=bool(message.steering),
        )
        self.journal.effects.publish(changed)

    def end_message(
        self, session: Session, message: MessageRow, outcome: TurnOutcome, error: str = ""
    ) -> None:
        """End a message and publish it."""
        self.turns.end_message(message, outcome, error)
        turn_id = message.turn_id
        self.message_changed(
            session, message, "ended", turn_id=turn_id, outcome=outcome, error=error
        )

    def end_queue(self, session: Session, outcome: TurnOutcome, error: str = "") -> None:
        """End all messages whose turn has not begun; those for the open turn go with it."""
        for message in self.turns.queued(session.key):
            if not (message.steering and message.planned == session.turn_id):
                self.end_message(session, message, outcome, error)

    def keep_unread(self, session: Session, turn_id: str, outcome: TurnOutcome) -> None:
        """Write the messages that a turn has not read, right before its last event: the next turn reads them."""
        for message in self.turns.unread(session.key, turn_id):
            read = self._steer_event(session, turn_id, message)
            size = len(message.text.encode()) + len(message.input)
            if not self.capacity.has_room(session, "user.message", size):
                self.end_message(session, message, outcome, "the log of the session is full")
                continue
            self.turns.begin_message(message, turn_id)
            self.message_changed(session, message, "begun", turn_id=turn_id)
            self.journal.record(session, read)

    def _steer_event(
        self, session: Session, turn_id: str, message: MessageRow
    ) -> event.UserMessage:
        return event.UserMessage(
            id=self.journal.new_id(),
            timestamp=self.journal.clock(),
            session_id=session.session_id,
            turn_id=turn_id,
            metadata=said_with(message.queued(), steering=True),
            content=message.text,
        )

    def settle(
        self, session: Session, row: PendingRow, settled_by: str = "", *, by_client: bool = False
    ) -> None:
        """Write a settled request and publish it; the end of an approval is recorded as a decision."""
        self.turns.settle_pending(session.key, row, settled_by)
        self.publish_pending(session, row)
        if row.kind == "approval":
            decided = Decided(session.session_id, session.agent_id, row, by_client)
            self.journal.effects.decided.append(decided)

    def publish_pending(self, session: Session, row: PendingRow) -> None:
        """Publish a request that has been opened or settled."""
        changed = PendingChanged(session_id=session.session_id, agent_id=session.agent_id, row=row)
        self.journal.effects.publish(changed)

    def settle_rest(
        self, session: Session, turn_id: str, reason: str = "the turn has ended"
    ) -> None:
        """Settle what still waits in a turn."""
        at = self.journal.now()
        for row in self.turns.pending_of_turn(session.key, turn_id):
            if row.state == "open":
                replace = msgspec.structs.replace
                self.settle(session, replace(row, state="cancelled", reason=reason, settled_at=at))

    def request_cancel(self, session: Session, turn: TurnRow, reason: str, *, wake: bool) -> None:
        """Write that the open turn is to stop, once, and ring its agent."""
        if turn.cancel_reason is None:
            self.turns.cancel_turn(turn.turn_id, reason)
            requested = event.CancellationRequested(
                id=self.journal.new_id(),
                timestamp=self.journal.clock(),
                session_id=session.session_id,
                turn_id=turn.turn_id,
                reason=reason[: event.MAX_REASON],
            )
            # A turn can be cancelled without it; what room is left is for its end.
            if self.capacity.has_room(session, "cancellation.requested"):
                self.journal.record(session, requested)
        cancelled = Cancelled(turn_id=TurnId(turn.turn_id), reason=turn.cancel_reason or reason)
        bell = Bell(session_id=session.session_id, items=(cancelled,))
        if wake:
            self.wake(session, bell)
        else:
            self.journal.effects.ring(session.agent_id, bell)

    def wake(self, session: Session, bell: Bell) -> None:
        """Ring the agent of a session, which is started if it is not there, even when it was given up."""
        down = self.catalogue.is_down(session.agent_id)
        if down:
            self.catalogue.set_agent(session.agent_id, down=0)
        self.journal.effects.ring(session.agent_id, bell)
        self.journal.effects.start(session.agent_id, fresh=down)

    def end_turn(
        self, session: Session, turn_id: str, outcome: TurnOutcome, error: str, *, crashed: bool
    ) -> None:
        """End the open turn, whose last event is written, with its messages; close a closing session."""
        self.turns.end_turn(turn_id, outcome, error)
        session.turn_id = ""
        session.calls.clear()
        now = self.journal.now()
        self.journal.db.execute(
            "update sessions set turns = turns + 1, completed = completed + ?, updated_at = ?"
            " where key = ?",
            (outcome == "completed", now, session.key),
        )
        self.catalogue.set_agent(session.agent_id, failed=crashed, last_active_at=now)
        for message in self.turns.messages_of(session.key, turn_id):
            self.end_message(session, message, outcome, error)
        ending = session.state == "closing"
        if ending and self.catalogue.agent_state(session.agent_id) == "live":
            self.close_now(session)

    def start_closing(self, session: Session, reason: str) -> None:
        """Let the session take no further message; those that wait end."""
        session.state = "closing"
        self.catalogue.set_session(
            session.session_id, state="closing", close_reason=reason, closed_at=self.journal.now()
        )
        self.end_queue(session, "interrupted", reason)
        self.journal.effects.announce(SessionChanged(row=self.session_row(session)))

    def close_now(self, session: Session) -> None:
        """Write `session.closed` for a closing session without an open turn."""
        row = self.session_row(session)
        closed = event.SessionClosed(
            id=self.journal.new_id(),
            timestamp=self.journal.clock(),
            session_id=session.session_id,
            reason=(row.close_reason or "")[: event.MAX_REASON] or None,
        )
        self.journal.record(session, closed)
        session.state = "closed"
        now = self.journal.now()
        self.catalogue.set_session(session.session_id, state="closed", updated_at=now)
        if row.spec.ephemeral:
            self.on_ephemeral_closed(session.session_id)
        self.journal.effects.announce(SessionChanged(row=self.session_row(session)))

    def announce_agent(self, agent_id: str, status: AgentStatus, message: str) -> None:
        """Publish a status of an agent that no event says."""
        sessions = tuple(self.catalogue.live_sessions(agent_id))
        changed = AgentChanged(
            agent_id=AgentId(agent_id), status=status, message=message, sessions=sessions
        )
        self.journal.effects.announce(changed)
