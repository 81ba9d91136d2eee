"""A client's wish that one call ends: one that waits for a person is settled, one that runs is asked to stop.

The row is written before the agent hears of it, and says no to whoever comes second. A handler that ends while the wish
is on the way keeps what it has done: the call's own event says how it ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import InvalidArgument, NotFound
from roost.schemas.approval import Settle
from roost.schemas.base import CallId
from roost.schemas.turn import Bell, CallCancelled

if TYPE_CHECKING:
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.messages import Messages
    from roost.schemas.turn import CancelCall


class Calls:
    """Requests about single calls, in the transaction that is open."""

    def __init__(self, lifecycle: Lifecycle, messages: Messages) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._messages = messages

    def cancel(self, request: CancelCall) -> CallCancelled:
        """Abort a call of the open turn."""
        session = self._journal.session(request.session_id)
        if session is None or session.state == "closed":
            text = f"AgenC daemon session not found or closed: {request.session_id}"
            raise NotFound("AGENT_NOT_FOUND", text)
        row = self._messages.find_pending(session, request.request_id)
        call_id = CallId(row.request_id if row is not None else request.request_id)
        if row is not None and row.state == "open" and row.turn_id == session.turn_id:
            settle = Settle(
                session_id=request.session_id,
                request_id=call_id,
                kind=row.kind,
                state="cancelled",
                reason=request.reason,
                by=request.by,
            )
            self._messages.settle(settle)
            return CallCancelled(call_id=call_id, reason=request.reason)
        ledger = self._lifecycle.ledger
        runs = call_id in session.calls
        if not runs or not ledger.ask_to_stop(session.key, call_id, request.reason):
            text = f"AgenC daemon tool request is not pending: {request.request_id}"
            raise InvalidArgument(text)
        cancelled = CallCancelled(call_id=call_id, reason=request.reason)
        bell = Bell(session_id=session.session_id, items=(cancelled,))
        self._lifecycle.wake(session, bell)
        return cancelled
