"""What an agent asks of the store: who am I, what is there to do, may I go to sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roost.actors.errors import NotFound, WrongState
from roost.schemas.agent import Welcome
from roost.schemas.base import CallId, Done, MessageId, TurnId
from roost.schemas.turn import (
    CallCancelled,
    Cancelled,
    Cleared,
    Closing,
    Decision,
    Inbox,
    OpenTurn,
    SessionOpened,
    Steer,
)

if TYPE_CHECKING:
    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.turns import MessageRow
    from roost.schemas.turn import InboxItem, OpenSession

# An inbox is one message on a link; what does not fit is there again at the next pull.
INBOX_BYTES: Final = 8 * 1024 * 1024
LIMITS: Final = ("hung: ", "memory: ", "killed: ")


class Inboxes:
    """Agents' calls, in the transaction that is open (`read` also outside of one)."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._catalogue = lifecycle.catalogue
        self._limits_hit: dict[str, str] = {}

    def note_crash(self, agent_id: str, reason: str) -> None:
        """Remember why root ended an agent's process, for the turn that this closes; other crashes say nothing to clients."""
        if reason.startswith(LIMITS):
            # The rest is what the process wrote last.
            self._limits_hit[agent_id] = ": ".join(reason.split(": ")[:2])
        else:
            self._limits_hit.pop(agent_id, None)

    def hello(self, agent_id: str) -> Welcome:
        """Note that the agent is up."""
        row = self._lifecycle.need_agent(agent_id)
        if row.status == "stopped":
            raise NotFound("AGENT_NOT_FOUND", f"AgenC daemon agent not found: {agent_id}")
        if row.asleep or not row.started_at or self._catalogue.is_down(agent_id):
            started = row.started_at or self._journal.now()
            self._catalogue.set_agent(agent_id, asleep=0, down=0, started_at=started)
            row = self._lifecycle.need_agent(agent_id)
        return Welcome(
            agent=row,
            sessions=tuple(self._catalogue.sessions_with_work(agent_id)),
            grants=self._catalogue.grants(agent_id),
        )

    def sleep(self, agent_id: str) -> Done:
        """Note that the agent has no process on purpose, unless it has something to do."""
        if self._catalogue.sessions_with_work(agent_id):
            raise WrongState("TURN_IN_PROGRESS", "the agent has something to do")
        self._catalogue.set_agent(agent_id, asleep=1)
        return Done()

    def open_session(self, agent_id: str, request: OpenSession) -> SessionOpened:
        """Give a starting session actor its generation and all that is open."""
        session = self._session(agent_id, request.session_id)
        if session.state == "closed":
            text = f"AgenC daemon session is closed: {request.session_id}"
            raise WrongState("SESSION_CLOSED", text)
        session.generation += 1
        self._catalogue.set_session(session.session_id, generation=session.generation)
        row = self._lifecycle.session_row(session)
        return SessionOpened(
            session_id=session.session_id,
            agent_id=session.agent_id,
            generation=session.generation,
            last_sequence=session.last_sequence,
            cleared_after=row.cleared_after,
            cwd=row.spec.cwd,
            metadata=row.spec.metadata,
            turn=self._open_turn(session),
            inbox=self._items(session),
            grants=self._catalogue.grants(agent_id, session.key),
            model=row.spec.model,
        )

    def read(self, agent_id: str, session_id: str) -> Inbox:
        """Return all that is open for a session."""
        return Inbox(items=self._items(self._session(agent_id, session_id)))

    def _session(self, agent_id: str, session_id: str) -> Session:
        session = self._journal.session(session_id)
        if session is None or session.agent_id != agent_id:
            raise NotFound("SESSION_NOT_FOUND", f"AgenC daemon session not found: {session_id}")
        return session

    def _items(self, session: Session) -> tuple[InboxItem, ...]:
        row = self._lifecycle.session_row(session)
        items: list[InboxItem] = []
        if row.cleared_after:
            items.append(Cleared(after=row.cleared_after))
        waiting: list[InboxItem] = []
        unread: list[InboxItem] = []
        size = 0
        for message in self._turns.queued(session.key):
            size += len(message.text.encode()) + len(message.metadata) + len(message.input)
            if (waiting or unread) and size > INBOX_BYTES:
                break
            if not message.steering:
                waiting.append(message.queued())
            elif message.planned == session.turn_id:
                turn_id = TurnId(message.planned)
                unread.append(Steer(turn_id=turn_id, message=message.queued()))
            elif self._is_astray(session, message):
                waiting.append(message.queued())
        items += waiting
        turn = self._turns.open_turn(session.key)
        if turn is not None:
            items += unread
            rows = self._turns.pending_of_turn(session.key, turn.turn_id)
            items += [Decision(row=row) for row in rows if row.state != "open"]
            items += self._calls_to_stop(session)
            if turn.cancel_reason is not None:
                turn_id = TurnId(turn.turn_id)
                items.append(Cancelled(turn_id=turn_id, reason=turn.cancel_reason))
        if session.state != "open":
            items.append(Closing(reason=row.close_reason))
        return tuple(items)

    def _is_astray(self, session: Session, message: MessageRow) -> bool:
        """Return whether the turn of a message will never read it: damage has taken that. It gets one of its own."""
        promised = self._turns.promised(session.key, message.planned)
        return promised is None or promised.state != "queued"

    def _calls_to_stop(self, session: Session) -> list[InboxItem]:
        found: list[InboxItem] = []
        for call_id in sorted(session.calls):
            reason = self._lifecycle.ledger.to_stop(session.key, call_id)
            if reason is not None:
                found.append(CallCancelled(call_id=CallId(call_id), reason=reason))
        return found

    def _open_turn(self, session: Session) -> OpenTurn | None:
        turn = self._turns.open_turn(session.key)
        if turn is None:
            return None
        message = self._turns.message(session.key, MessageId(turn.message_id))
        assert message is not None
        return OpenTurn(
            turn_id=TurnId(turn.turn_id),
            message=message.queued(),
            first_sequence=turn.first_sequence,
            runner_state=turn.runner_state,
            cancel_reason=turn.cancel_reason,
            crash_reason=self._limits_hit.get(session.agent_id, ""),
            pending=tuple(self._turns.pending_of_turn(session.key, turn.turn_id)),
            steers=tuple(
                read.queued()
                for read in self._turns.messages_of(session.key, turn.turn_id)
                if read.steering
            ),
        )
