"""Turns that clients start, steer and interrupt by name; each request in the transaction that is open.

Whether a request is refused is decided before anything of it is written, in the very transaction that would carry it out:
of two clients that start a turn at once one gets it, and a turn that has ended takes no message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, NotFound, WrongState
from roost.actors.store.turns import Plan
from roost.schemas.turn import TurnCancelled

if TYPE_CHECKING:
    from roost.actors.store.journal import Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.messages import Messages
    from roost.schemas.turn import Accepted, InterruptTurn, StartTurn, SteerTurn


class Steering:
    """Requests that name a turn."""

    def __init__(self, lifecycle: Lifecycle, messages: Messages) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._messages = messages

    def start(self, request: StartTurn) -> Accepted:
        """Queue a message whose turn is the next one, if nothing runs or waits; a known one as `Messages.accept`."""
        known = self._messages.known(request.message)
        if known is not None:
            return known
        self._messages.check_size(request.message, _stored(request.input))
        session = self._need(request.message.session_id)
        live = self._lifecycle.catalogue.agent_state(session.agent_id) == "live"
        if session.state != "open" or not live:
            text = f"AgenC daemon session is closed: {session.session_id}"
            raise WrongState("SESSION_CLOSED", text)
        self._check_free(session)
        if not request.model_known:
            text = f"there is no model {request.model!r}"
            raise DaemonError("UNKNOWN_MODEL", text, {"model": request.model})
        plan = Plan(request.turn_id, model=request.model, input=request.input)
        return self._messages.add(session, request.message, plan)

    def steer(self, request: SteerTurn) -> Accepted:
        """Keep a message for the turn that is open or promised; a known one is answered with what became of it."""
        known = self._messages.known(request.message)
        if known is not None:
            return known
        self._messages.check_size(request.message, _stored(request.input))
        session = self._need(request.message.session_id)
        self._check_active(session, request.turn_id)
        plan = Plan(request.turn_id, steering=True, input=request.input)
        return self._messages.add(session, request.message, plan)

    def interrupt(self, request: InterruptTurn) -> TurnCancelled:
        """Ask a turn to stop, or withdraw one that has not begun."""
        session = self._need(request.session_id)
        self._check_active(session, request.turn_id)
        if session.turn_id == request.turn_id:
            return self._messages.cancel_open(session, request.reason)
        promised = self._turns.promised(session.key, request.turn_id)
        assert promised is not None
        self._messages.withdraw(session, promised, request.reason)
        return TurnCancelled(cancelled=True, turn_id=request.turn_id, withdrawn=True)

    def _need(self, session_id: str) -> Session:
        session = self._journal.session(session_id)
        if session is None:
            raise NotFound("SESSION_NOT_FOUND", f"AgenC daemon session not found: {session_id}")
        return session

    def _check_free(self, session: Session) -> None:
        """See that no turn is open and none waits.

        Raises:
            WrongState: there is one (`TURN_IN_PROGRESS`).
        """
        active = session.turn_id
        waiting = self._turns.queued(session.key) if not active else []
        if not active and not waiting:
            return
        active = active or waiting[0].planned
        text = f"AgenC daemon session has a turn in flight: {session.session_id}"
        raise WrongState("TURN_IN_PROGRESS", text, {"activeTurnId": active} if active else {})

    def _check_active(self, session: Session, turn_id: str) -> None:
        """See that this turn is open, or the next one.

        Raises:
            WrongState: it is not (`NO_ACTIVE_TURN`), and another one is (`TURN_ID_MISMATCH`).
        """
        active: str = session.turn_id
        if session.state == "open" and not active:
            promised = self._turns.promised(session.key, turn_id)
            if promised is not None and promised.state == "queued":
                return
            # Clients see the thread run the turn that is next.
            waiting = self._turns.queued(session.key)
            active = waiting[0].planned if waiting else ""
        if active == turn_id and turn_id:
            return
        if active:
            text = f"turn {turn_id} is not the active one"
            raise WrongState("TURN_ID_MISMATCH", text, {"expected": turn_id, "active": active})
        raise WrongState(
            "NO_ACTIVE_TURN", "no matching active turn", self._outcome(session, turn_id)
        )

    def _outcome(self, session: Session, turn_id: str) -> dict[str, object]:
        found: dict[str, object] = {"turnId": turn_id}
        ended = self._turns.ended_turn(session.key, turn_id)
        if ended is None:
            promised = self._turns.promised(session.key, turn_id)
            ended = (promised.outcome, promised.error) if promised is not None else None
        if ended is not None and ended[0]:
            found["outcome"], error = ended
            if error:
                found["error"] = error
        return found


def _stored(texts: tuple[str, ...]) -> tuple[str, ...]:
    return texts if len(texts) > 1 else ()
