"""Clients' messages and cancels, and their decisions about what waits; each in the transaction that is open.

Whether a request is refused is decided before anything of it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from roost.actors.errors import (
    DaemonError,
    InvalidArgument,
    NotFound,
    Overloaded,
    WrongState,
)
from roost.actors.store.capacity import full
from roost.actors.store.turns import Plan
from roost.schemas import event
from roost.schemas.base import MessageId
from roost.schemas.turn import (
    Accepted,
    Bell,
    Decision,
    TurnCancelled,
    Withdrawn,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.turns import MessageRow
    from roost.schemas.approval import PendingRow, Settle
    from roost.schemas.turn import AcceptMessage, CancelMessage, CancelTurn, InboxItem

# What an event has besides the text of the message.
ENVELOPE_BYTES: Final = 2_048
BELL_BYTES: Final = 65_536
RETRY_MS: Final = 1_000
MAX_REASON: Final = 200
ALLOWED: Final = {
    "approval": ("approved", "denied", "cancelled"),
    "question": ("answered", "cancelled"),
}

_encode = msgspec.json.Encoder().encode


class Messages:
    """Requests about messages and turns."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        check_room: Callable[[], None],
        *,
        max_queued: int,
        max_event_bytes: int,
    ) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._check_room = check_room
        self.set_bounds(max_queued, max_event_bytes)

    def set_bounds(self, max_queued: int, max_event_bytes: int) -> None:
        """Let so many messages of a session wait, each of them of at most this size, from now on."""
        self._max_queued = max_queued
        self._max_bytes = max_event_bytes

    def check_size(self, message: AcceptMessage, more: tuple[str, ...] = ()) -> None:
        """See that a message fits one stored event, with further texts that are stored beside its own.

        Raises:
            DaemonError: it does not (`INPUT_TOO_LARGE`).
        """
        size = len(message.content)
        if len(message.text) * 6 > size:
            size = max(size, len(_encode(message.text)))
        ids = (message.message_id, message.stream_id, message.client_message_id)
        size += len(message.metadata) + len(_encode(ids)) + ENVELOPE_BYTES
        if more:
            size += len(_encode(more))
        if size > self._max_bytes:
            text = f"the message is too large: {size} bytes, at most {self._max_bytes} are stored"
            data = {"limit": self._max_bytes, "size": size}
            raise DaemonError("INPUT_TOO_LARGE", text, data)

    def accept(self, request: AcceptMessage) -> Accepted:
        """Queue a message; one that is known already is answered with what became of it."""
        known = self.known(request)
        if known is not None:
            return known
        session = self._lifecycle.need_session(request.session_id)
        self.check_size(request)
        return self.add(session, request, Plan())

    def add(self, session: Session, request: AcceptMessage, plan: Plan) -> Accepted:
        """Queue a message that is not known yet, if there is room; its agent hears of it."""
        self._check_room()
        if not self._lifecycle.capacity.has_room(session, "user.message", len(request.content)):
            raise full(session.session_id)
        queued = self._turns.queued_count(session.key)
        if queued >= self._max_queued:
            raise Overloaded(
                "TOO_MANY_QUEUED_MESSAGES",
                "the session has too many queued messages",
                {"maxQueuedMessages": self._max_queued, "retryAfterMs": RETRY_MS},
            )
        self._turns.add_message(session.key, request, plan)
        row = self._turns.message(session.key, request.message_id)
        assert row is not None
        position = 0 if plan.steering else queued + bool(session.turn_id)
        self._lifecycle.message_changed(session, row, "accepted", position=position)
        if plan.steering:
            # It pulls: what it has not read comes all together, and so in order. One that is not there needs not be.
            self._journal.effects.ring(session.agent_id, Bell(session_id=session.session_id))
            return _accepted(row, position=position, duplicate=False)
        fits = len(row.text) + len(row.metadata) <= BELL_BYTES
        items: tuple[InboxItem, ...] = (row.queued(),) if fits else ()
        bell = Bell(session_id=session.session_id, items=items)
        self._lifecycle.wake(session, bell)
        return _accepted(row, position=position, duplicate=False)

    def cancel_turn(self, request: CancelTurn) -> TurnCancelled:
        """Ask the open turn to stop, if it is the one meant."""
        if not request.session_id:
            return self._cancel_by_id(request)
        session = self._journal.session(request.session_id)
        if session is None or not session.turn_id:
            return TurnCancelled(cancelled=False)
        if request.turn_id not in {"", session.turn_id}:
            return TurnCancelled(cancelled=False)
        return self.cancel_open(session, request.reason)

    def _cancel_by_id(self, request: CancelTurn) -> TurnCancelled:
        session = self._journal.session(self._turns.session_of(request.turn_id))
        if session is None:
            return TurnCancelled(cancelled=False)
        if session.turn_id != request.turn_id:
            return TurnCancelled(cancelled=False, turn_id=request.turn_id)
        return self.cancel_open(session, request.reason)

    def cancel_message(self, request: CancelMessage) -> TurnCancelled:
        """Withdraw a waiting message, or ask its turn to stop."""
        session = self._journal.session(request.session_id)
        message = session and self._turns.message(session.key, request.message_id)
        if not session or not message:
            return TurnCancelled(cancelled=False)
        if message.state == "queued" and message.steering:
            return TurnCancelled(cancelled=False, turn_id=message.planned)
        if message.state == "queued":
            self.withdraw(session, message, request.reason)
            return TurnCancelled(cancelled=True)
        if message.state == "begun" and message.turn_id == session.turn_id:
            return self.cancel_open(session, request.reason)
        return TurnCancelled(cancelled=False, turn_id=message.turn_id)

    def withdraw(self, session: Session, message: MessageRow, reason: str) -> None:
        """End a message whose turn has not begun, with those for that turn."""
        self._lifecycle.end_message(session, message, "interrupted", reason)
        if message.planned:
            for steer in self._turns.unread(session.key, message.planned):
                self._lifecycle.end_message(session, steer, "interrupted", reason)
        withdrawn = Withdrawn(message_id=MessageId(message.message_id))
        bell = Bell(session_id=session.session_id, items=(withdrawn,))
        self._journal.effects.ring(session.agent_id, bell)

    def settle(self, request: Settle) -> PendingRow:
        """Write a client's decision or answer; the first one counts."""
        session = self._journal.session(request.session_id)
        if session is None or session.state == "closed":
            text = f"AgenC daemon session not found or closed: {request.session_id}"
            raise NotFound("AGENT_NOT_FOUND", text)
        row = self.find_pending(session, request.request_id)
        open_here = row is not None and row.state == "open" and row.turn_id == session.turn_id
        if row is None or not open_here or row.kind != request.kind:
            what = "tool" if request.kind == "approval" else "elicitation"
            text = f"AgenC daemon {what} request is not pending: {request.request_id}"
            raise InvalidArgument(text)
        if request.state not in ALLOWED[row.kind]:
            raise InvalidArgument(f"a request of kind {row.kind} cannot be {request.state}")
        kind = f"tool.approval.{'approved' if request.state == 'approved' else 'rejected'}"
        if row.kind == "approval" and not self._lifecycle.capacity.has_room(session, kind):
            raise full(session.session_id)
        now = self._journal.now()
        settled = msgspec.structs.replace(
            row,
            state=request.state,
            scope=request.scope,
            reason=request.reason,
            by=request.by,
            answer=request.answer,
            settled_at=now,
        )
        self._lifecycle.settle(session, settled, by_client=True)
        grants = self._grant(session, settled, now)
        if row.kind == "approval":
            self._journal.record(session, self._decision_event(session, settled))
        decision = Decision(row=settled)
        bell = Bell(session_id=session.session_id, items=(decision,), grants=grants)
        self._lifecycle.wake(session, bell)
        return settled

    def known(self, request: AcceptMessage) -> Accepted | None:
        """Return what became of a message that is known already.

        Raises:
            WrongState: its client's id was used for other content.
        """
        session = self._journal.session(request.session_id)
        if session is None:
            return None
        row = None
        if request.client_message_id:
            row = self._turns.client_message(session.key, request.client_message_id)
        if row is None:
            row = self._turns.message(session.key, request.message_id)
        if row is None:
            return None
        if row.sha256 != request.sha256:
            text = f"client message id {request.client_message_id} was used for other content"
            raise WrongState("CLIENT_MESSAGE_ID_CONFLICT", text)
        # The front repeats a call whose answer was lost: the same request, not a second one of the client.
        again = row.message_id == request.message_id and row.accepted_at == request.accepted_at
        position = 0
        if row.state == "queued" and not row.steering:
            before = self._turns.queued_before(session.key, row.key)
            position = before + bool(session.turn_id)
        return _accepted(row, position=position, duplicate=not again)

    def cancel_open(self, session: Session, reason: str) -> TurnCancelled:
        """Ask the open turn to stop."""
        turn = self._turns.open_turn(session.key)
        assert turn is not None
        self._lifecycle.request_cancel(session, turn, reason, wake=True)
        return TurnCancelled(cancelled=True, turn_id=turn.turn_id)

    def find_pending(self, session: Session, request_id: str) -> PendingRow | None:
        """Return what waits or waited under this id, which may also be made of the id of the event that asked."""
        row = self._turns.pending(session.key, request_id)
        if row is None and request_id.startswith("apr_"):
            event_id = request_id.removeprefix("apr_")
            row = self._turns.pending_of_event(session.key, event_id)
        return row

    def _grant(self, session: Session, row: PendingRow, now: int) -> tuple[str, ...]:
        """Keep what a decision covers beyond its call; return what is new for the whole agent."""
        if row.state != "approved" or row.scope == "once":
            return ()
        scope = 0 if row.scope == "agent" else session.key
        self._lifecycle.catalogue.grant(session.agent_id, scope, row.grant_keys, now)
        return row.grant_keys if row.scope == "agent" else ()

    def _decision_event(
        self, session: Session, row: PendingRow
    ) -> event.ToolApprovalApproved | event.ToolApprovalRejected:
        metadata: dict[str, object] = {"scope": row.scope}
        if row.by:
            metadata["by"] = row.by[:MAX_REASON]
        if row.state == "approved":
            return event.ToolApprovalApproved(
                id=self._journal.new_id(),
                timestamp=self._journal.clock(),
                session_id=session.session_id,
                turn_id=row.turn_id,
                tool_name=row.tool_name,
                tool_call_id=row.request_id,
                metadata=metadata,
            )
        denied = row.state == "denied"
        default = "Denied by the user" if denied else "Cancelled by the user"
        reason = row.reason.strip()[:MAX_REASON]
        return event.ToolApprovalRejected(
            id=self._journal.new_id(),
            timestamp=self._journal.clock(),
            session_id=session.session_id,
            turn_id=row.turn_id,
            tool_name=row.tool_name,
            tool_call_id=row.request_id,
            error_code="APPROVAL_REJECTED" if denied else "TOOL_CANCELLED",
            reason=reason if event.has_ink(reason) else default,
            metadata=metadata,
        )


def _accepted(row: MessageRow, *, position: int, duplicate: bool) -> Accepted:
    return Accepted(
        message_id=MessageId(row.message_id),
        stream_id=row.stream_id,
        accepted_at=row.accepted_at,
        duplicate=duplicate,
        state=row.state,  # type: ignore[arg-type] # only these three are ever stored
        turn_id=row.turn_id,
        outcome=row.outcome,
        error=row.error,
        position=position,
        planned=row.planned,
    )
