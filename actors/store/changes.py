"""The row changes that an agent's draft carries: whether they can be made, then making them around its event."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roost.actors.store.journal import CALL_CLOSED, CALL_OPENED
from roost.schemas.turn import (
    AddUsage,
    BeginTurn,
    Bell,
    ClaimCall,
    EndCall,
    EndTurn,
    OpenPending,
    SetRunnerState,
    SettleCall,
    SettlePending,
)

if TYPE_CHECKING:
    from roost.actors.store.journal import Head, Session
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.turns import MessageRow
    from roost.schemas.turn import Draft

INCOMPATIBLE = "EVENT_SCHEMA_INCOMPATIBLE"
SETTLED = "ALREADY_SETTLED"
STEERED = "TURN_STEERED"
CRASHED = "TURN_INTERRUPTED"
# No request costs that much; a sum of these stays a number.
MAX_COST = 1e9
PREVIEW = 200

_USAGE = """update sessions set input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
    total_tokens = total_tokens + ?, cost_usd = cost_usd + ?, cache_read = cache_read + ?,
    cache_creation = cache_creation + ?, requests = requests + 1 where key = ?"""


_BEGUN = """update sessions set updated_at = ?, preview = case when preview = '' then ? else preview end
    where key = ?"""


class Refusal(NamedTuple):
    """Why a draft is not written."""

    code: str
    message: str


class Changes:
    """Row changes in the transaction that is open."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns

    def check(self, session: Session, draft: Draft) -> Refusal | None:
        """Return why the draft's changes cannot be made, or None; nothing is written."""
        turn_id = session.turn_id
        for change in draft.changes:
            refusal: Refusal | None = None
            match change:
                case BeginTurn():
                    refusal = self._check_begin(session, draft, change, turn_id)
                    turn_id = change.turn_id
                case EndTurn():
                    refusal = self._check_end(session, draft, change, turn_id)
                    turn_id = ""
                case OpenPending(row=row):
                    known = self._turns.pending(session.key, row.request_id)
                    if row.turn_id != turn_id:
                        refusal = Refusal(INCOMPATIBLE, f"turn {row.turn_id} is not open")
                    elif known is not None and (draft.body or known.kind != row.kind):
                        text = f"request {row.request_id} exists already"
                        refusal = Refusal(INCOMPATIBLE, text)
                case SettlePending():
                    refusal = self._check_settle(session, draft, change)
                case SetRunnerState():
                    if change.turn_id != turn_id:
                        refusal = Refusal(INCOMPATIBLE, f"turn {change.turn_id} is not open")
                case AddUsage():
                    if not draft.body:
                        refusal = Refusal(INCOMPATIBLE, "usage comes with an event")
                case ClaimCall():
                    refusal = self._check_claim(session, draft, change)
                case EndCall():
                    pass  # of a call that does not run it changes nothing
                case SettleCall():
                    if draft.type not in CALL_CLOSED:
                        refusal = Refusal(INCOMPATIBLE, "a call is settled by its last event")
            if refusal is not None:
                return refusal
        return None

    def make_before(self, session: Session, draft: Draft) -> None:
        """Make the changes that clients hear of before the event."""
        for change in draft.changes:
            match change:
                case BeginTurn():
                    self._begin(session, change)
                case OpenPending():
                    self._open(session, draft, change)
                case SettlePending():
                    self._settle(session, draft, change)
                case SetRunnerState(turn_id=turn_id, state=state):
                    self._turns.set_runner_state(turn_id, state)
                case AddUsage():
                    self._journal.db.execute(_USAGE, (*_usage(change), session.key))
                case ClaimCall(call_id=call_id, fingerprint=fingerprint):
                    self._lifecycle.ledger.claim(session.key, call_id, fingerprint)
                case EndCall(call_id=call_id):
                    self._lifecycle.ledger.end(session.key, call_id)
                case SettleCall(call_id=call_id, state=state):
                    sequence = session.last_sequence + 1
                    self._lifecycle.ledger.settle(session.key, call_id, state, sequence)
                case EndTurn(turn_id=turn_id):
                    self._lifecycle.settle_rest(session, turn_id)
                    self._lifecycle.keep_unread(session, turn_id, change.outcome)

    def make_after(self, session: Session, draft: Draft, head: Head | None) -> None:
        """Make the changes that clients hear of after the event."""
        for change in draft.changes:
            if isinstance(change, EndTurn) and session.turn_id == change.turn_id:
                crashed = head is not None and head.error_code == CRASHED
                self._lifecycle.end_turn(
                    session, change.turn_id, change.outcome, change.error, crashed=crashed
                )

    def _check_begin(
        self, session: Session, draft: Draft, change: BeginTurn, turn_id: str
    ) -> Refusal | None:
        if not draft.body:
            return Refusal(INCOMPATIBLE, "a turn begins with an event")
        if turn_id and turn_id != change.turn_id:
            return Refusal(INCOMPATIBLE, f"turn {turn_id} is still open")
        if not turn_id and self._turns.turn_exists(change.turn_id):
            return Refusal(INCOMPATIBLE, f"turn {change.turn_id} has ended")
        message = self._turns.message(session.key, change.message_id)
        if message is None:
            return Refusal(INCOMPATIBLE, f"message {change.message_id} does not exist")
        if message.state != "queued":
            return Refusal(SETTLED, f"message {change.message_id} does not wait any more")
        return None

    def _check_end(
        self, session: Session, draft: Draft, change: EndTurn, turn_id: str
    ) -> Refusal | None:
        if change.turn_id == turn_id:
            # A turn that is closed without an event has said its last word before.
            may_go_on = change.outcome == "completed" and draft.body
            if may_go_on and self._turns.unread(session.key, turn_id):
                return Refusal(STEERED, f"turn {turn_id} has messages to read")
            return None
        if not draft.body and self._turns.turn_exists(change.turn_id):
            return None
        return Refusal(INCOMPATIBLE, f"turn {change.turn_id} is not open")

    def _check_claim(self, session: Session, draft: Draft, change: ClaimCall) -> Refusal | None:
        if draft.type != CALL_OPENED:
            return Refusal(INCOMPATIBLE, "a call is claimed by its start")
        ledger = self._lifecycle.ledger
        code = ledger.refusal(session.key, change.call_id, change.fingerprint)
        return Refusal(code, f"call {change.call_id} cannot start") if code else None

    def _check_settle(
        self, session: Session, draft: Draft, change: SettlePending
    ) -> Refusal | None:
        row = self._turns.pending(session.key, change.request_id)
        if row is None:
            return Refusal(INCOMPATIBLE, f"nothing waits as {change.request_id}")
        if row.state == "open" or self._turns.settled_with(session.key, draft.event_id):
            return None
        return Refusal(SETTLED, f"request {change.request_id} is settled: {row.state}")

    def _begin(self, session: Session, change: BeginTurn) -> None:
        message = self._turns.message(session.key, change.message_id)
        assert message is not None
        if not session.turn_id:
            self._turns.begin_turn(
                session.key,
                change.turn_id,
                change.message_id,
                session.generation,
                session.last_sequence + 1,
            )
            session.turn_id = change.turn_id
            now = self._journal.now()
            self._lifecycle.catalogue.set_agent(session.agent_id, failed=0, last_active_at=now)
            self._journal.db.execute(_BEGUN, (now, _preview(message), session.key))
            if self._turns.unread(session.key, change.turn_id):
                bell = Bell(session_id=session.session_id)
                self._journal.effects.ring(session.agent_id, bell)
        self._turns.begin_message(message, change.turn_id)
        self._lifecycle.message_changed(session, message, "begun", turn_id=change.turn_id)

    def _open(self, session: Session, draft: Draft, change: OpenPending) -> None:
        row = change.row
        if self._turns.pending(session.key, row.request_id) is not None:
            return
        if draft.body and row.kind == "approval":
            row = msgspec.structs.replace(
                row, event_id=draft.event_id, sequence=session.last_sequence + 1
            )
        self._turns.add_pending(session.key, row)
        self._lifecycle.publish_pending(session, row)

    def _settle(self, session: Session, draft: Draft, change: SettlePending) -> None:
        row = self._turns.pending(session.key, change.request_id)
        if row is None or row.state != "open":
            return
        settled = msgspec.structs.replace(
            row, state=change.state, reason=change.reason, settled_at=self._journal.now()
        )
        self._lifecycle.settle(session, settled, draft.event_id)


def _preview(message: MessageRow) -> str:
    """Return the beginning of what clients are shown of a message."""
    if message.hidden:
        return ""
    text = message.text if message.display is None else message.display
    return text[:PREVIEW]


def _usage(change: AddUsage) -> tuple[int | float, ...]:
    """Return what is added to a session's counters; none of them ever shrinks."""
    tokens_in, tokens_out = max(change.input_tokens, 0), max(change.output_tokens, 0)
    total = change.total_tokens if change.total_tokens >= 0 else tokens_in + tokens_out
    cache = max(change.cache_read, 0), max(change.cache_creation, 0)
    cost = change.cost_usd if 0 <= change.cost_usd < MAX_COST else 0.0
    return (tokens_in, tokens_out, total, cost, *cache)
