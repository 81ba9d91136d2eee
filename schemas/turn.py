"""Messages and turns: how a client's message becomes a turn, and what the agent writes about it."""

from __future__ import annotations

from typing import Final, Literal

from roost.schemas.approval import PendingRow, PendingState
from roost.schemas.base import (
    AgentId,
    CallId,
    EventId,
    Message,
    MessageId,
    SessionId,
    TurnId,
)

TurnOutcome = Literal["completed", "failed", "interrupted"]

CUT_OFF: Final = "Agent turn interrupted"
"""Begins the error of a turn that lost the process it ran in (`TURN_INTERRUPTED` in the log)."""


class AcceptMessage(Message, frozen=True, kw_only=True, tag="turn.accept"):
    """Call front → store: a client's message. Answered with `Accepted`.

    `content` is the JSON of the client's content, `text` its text; `display` replaces the text shown to clients unless it
    is None, `hidden` keeps it from them. `metadata` is a JSON object. Refused `AGENT_NOT_FOUND`,
    `CLIENT_MESSAGE_ID_CONFLICT`, `TOO_MANY_QUEUED_MESSAGES`, `INPUT_TOO_LARGE`, `DISK_FULL`,
    `EVENT_STORE_CAPACITY_EXCEEDED`.
    """

    session_id: SessionId
    message_id: MessageId
    stream_id: str
    accepted_at: int
    content: bytes
    text: str
    client_message_id: str = ""
    sha256: bytes = b""
    display: str | None = None
    hidden: bool = False
    metadata: bytes = b"{}"


class StartTurn(Message, frozen=True, kw_only=True, tag="turn.start"):
    """Call front → store: a message whose turn is the next one, now, or not at all. Answered with `Accepted`.

    The turn's id is given here, and is that of every event of the turn. `model` is for this turn only. `input` are the
    texts that were joined into the message's text; the log keeps them (`metadata.input` of its `user.message`) if they are
    more than one. Checked in this order, without a trace: `CLIENT_MESSAGE_ID_CONFLICT`, `INPUT_TOO_LARGE`,
    `SESSION_NOT_FOUND`, `SESSION_CLOSED` (also while it is closing), `TURN_IN_PROGRESS` (`data.activeTurnId`, absent while
    only messages without a turn wait), `UNKNOWN_MODEL` unless `model_known`, `DISK_FULL`, `EVENT_STORE_CAPACITY_EXCEEDED`.
    """

    message: AcceptMessage
    turn_id: TurnId
    model: str = ""
    model_known: bool = True
    input: tuple[str, ...] = ()


class SteerTurn(Message, frozen=True, kw_only=True, tag="turn.steer"):
    """Call front → store: a message for the turn that runs or is about to. Answered with `Accepted` once it is durable.

    Its `user.message` (`metadata.source` is `steer`) is written into that turn before the next step, in order of
    acceptance; the turn does not end as completed before. If it ends in another way, the event comes right before the
    terminal one. Checked in this order: `CLIENT_MESSAGE_ID_CONFLICT`, `INPUT_TOO_LARGE`, `SESSION_NOT_FOUND`,
    `NO_ACTIVE_TURN` (`data.turnId`; `data.outcome` and `data.error` if there was such a turn), `TURN_ID_MISMATCH`
    (`data.expected`, `data.active`), `DISK_FULL`, `EVENT_STORE_CAPACITY_EXCEEDED`, `TOO_MANY_QUEUED_MESSAGES`.
    """

    message: AcceptMessage
    turn_id: TurnId
    input: tuple[str, ...] = ()


class InterruptTurn(Message, frozen=True, kw_only=True, tag="turn.interrupt"):
    """Call front → store: as `CancelTurn` for exactly this turn, which may be about to begin. Answered with `TurnCancelled`.

    Asked again while the turn unwinds it is answered alike and writes nothing. A turn that has not begun ends at once: its
    message is published as `ended`, `interrupted`, with the turn as `planned`, and no event is written. Refused
    `SESSION_NOT_FOUND`, and as `SteerTurn` with `NO_ACTIVE_TURN` and `TURN_ID_MISMATCH`.
    """

    session_id: SessionId
    turn_id: TurnId
    reason: str


class Accepted(Message, frozen=True, kw_only=True, tag="turn.accepted"):
    """The answer to `AcceptMessage`, `StartTurn` and `SteerTurn`. A duplicate carries the state of the first.

    `planned` is the turn that was named when it was accepted; `turn_id` the one that it has become part of.
    """

    message_id: MessageId
    stream_id: str
    accepted_at: int
    duplicate: bool = False
    state: Literal["queued", "begun", "ended"] = "queued"
    turn_id: str = ""
    outcome: str = ""
    error: str = ""
    position: int = 0
    planned: str = ""


class CancelTurn(Message, frozen=True, kw_only=True, tag="turn.cancel"):
    """Call front → store: interrupt the open turn, if it is this one (or any: empty). Answered with `TurnCancelled`.

    Without a `session_id` the turn's id alone says which session; the answer has a `turn_id` if there is such a turn.
    """

    session_id: SessionId
    reason: str
    turn_id: str = ""


class CancelMessage(Message, frozen=True, kw_only=True, tag="turn.cancel_message"):
    """Call front → store: withdraw a queued message, or interrupt its turn. Answered with `TurnCancelled`."""

    session_id: SessionId
    message_id: MessageId
    reason: str


class TurnCancelled(Message, frozen=True, kw_only=True, tag="turn.cancelled"):
    """The answer to `CancelTurn` and `CancelMessage`, never refused for an unknown session; and to `InterruptTurn`.

    `withdrawn` says that the turn had not begun, and never will.
    """

    cancelled: bool
    turn_id: str = ""
    withdrawn: bool = False


class CancelCall(Message, frozen=True, kw_only=True, tag="turn.cancel_call"):
    """Call front → store: abort one call that waits for a person or runs; its turn goes on. Answered with `CallCancelled`.

    Refused `INVALID_ARGUMENT` when it does neither or is being cancelled already, `AGENT_NOT_FOUND` for an unknown or
    closed session.
    """

    session_id: SessionId
    request_id: str
    reason: str = ""
    by: str = ""


class CallCancelled(Message, frozen=True, kw_only=True, tag="turn.call_cancelled"):
    """The answer to `CancelCall`, and what the agent is told of a call that runs: it is to stop."""

    call_id: CallId
    reason: str = ""


class QueuedMessage(Message, frozen=True, kw_only=True, tag="turn.queued"):
    """A message whose turn has not begun; that turn gets `turn_id`, or one of the agent's, and `model` if it is given."""

    message_id: MessageId
    stream_id: str
    accepted_at: int
    text: str
    client_message_id: str = ""
    metadata: bytes = b"{}"
    turn_id: str = ""
    model: str = ""
    input: tuple[str, ...] = ()


class Steer(Message, frozen=True, kw_only=True, tag="turn.steer_item"):
    """A message for the turn that runs; unread messages always come all together, in order."""

    turn_id: TurnId
    message: QueuedMessage


class Decision(Message, frozen=True, kw_only=True, tag="turn.decision"):
    """A pending row that has been settled."""

    row: PendingRow


class Cancelled(Message, frozen=True, kw_only=True, tag="turn.cancel_requested"):
    """The turn is to stop; `cancellation.requested` is in the log."""

    turn_id: TurnId
    reason: str


class Withdrawn(Message, frozen=True, kw_only=True, tag="turn.withdrawn"):
    """A queued message is not to be begun."""

    message_id: MessageId


class Closing(Message, frozen=True, kw_only=True, tag="turn.closing"):
    """The session takes no further message."""

    reason: str = ""


class Cleared(Message, frozen=True, kw_only=True, tag="turn.cleared"):
    """The conversation begins anew behind this sequence, and nothing is approved for the session any more."""

    after: int


InboxItem = (
    QueuedMessage | Steer | Decision | Cancelled | CallCancelled | Withdrawn | Cleared | Closing
)


class Bell(Message, frozen=True, kw_only=True, tag="turn.bell"):
    """Cast store → agent: something was committed for this session. May be lost; `PullInbox` repeats all that is open.

    A session that the agent does not have yet is to be opened. No items: pull.
    """

    session_id: SessionId
    items: tuple[InboxItem, ...] = ()
    grants: tuple[str, ...] = ()


class PullInbox(Message, frozen=True, kw_only=True, tag="turn.pull"):
    """Call agent → store: everything open for this session. Answered with `Inbox`."""

    session_id: SessionId


class Inbox(Message, frozen=True, kw_only=True, tag="turn.inbox"):
    """Where the conversation begins, queued messages in order, then of the open turn unread ones, decisions, cancels; closing."""

    items: tuple[InboxItem, ...]


class OpenTurn(Message, frozen=True, kw_only=True, tag="turn.open_turn"):
    """A turn without a terminal event, left by an older generation of its session actor.

    Its events have sequences from `first_sequence`; `pending` are its rows, settled ones included. `crash_reason` is why
    root ended the process (hung, too much memory), or empty. `steers` are the further messages that it has read, in order.
    """

    turn_id: TurnId
    message: QueuedMessage
    first_sequence: int
    runner_state: bytes = b""
    cancel_reason: str | None = None
    crash_reason: str = ""
    pending: tuple[PendingRow, ...] = ()
    steers: tuple[QueuedMessage, ...] = ()


class OpenSession(Message, frozen=True, kw_only=True, tag="turn.open_session"):
    """Call agent → store at each start of a session actor: gives it a new generation. Answered with `SessionOpened`.

    Refused `SESSION_NOT_FOUND` or `SESSION_CLOSED`.
    """

    session_id: SessionId


class SessionOpened(Message, frozen=True, kw_only=True, tag="turn.session_opened"):
    """The answer to `OpenSession`."""

    session_id: SessionId
    agent_id: AgentId
    generation: int
    last_sequence: int
    cleared_after: int
    cwd: str
    metadata: bytes
    turn: OpenTurn | None
    inbox: tuple[InboxItem, ...]
    grants: tuple[str, ...] = ()
    model: str = ""


class BeginTurn(Message, frozen=True, kw_only=True, tag="change.begin_turn"):
    """The message's turn begins with this draft; in an open turn, the message becomes part of it."""

    turn_id: TurnId
    message_id: MessageId


class EndTurn(Message, frozen=True, kw_only=True, tag="change.end_turn"):
    """The turn, and its messages, end with this draft; what of it is still pending is settled as `cancelled`.

    Refused `TURN_STEERED` if the turn would be completed and has a message to read. In any other end the store writes
    the `user.message` of those messages right before.
    """

    turn_id: TurnId
    outcome: TurnOutcome
    error: str = ""


class OpenPending(Message, frozen=True, kw_only=True, tag="change.open_pending"):
    """Something begins to wait for a person."""

    row: PendingRow


class SettlePending(Message, frozen=True, kw_only=True, tag="change.settle_pending"):
    """The actor settles a row itself (time-out, cancellation); refused `ALREADY_SETTLED` if a client was first."""

    request_id: CallId
    state: PendingState
    reason: str = ""


class SetRunnerState(Message, frozen=True, kw_only=True, tag="change.runner_state"):
    """What the runner needs to go on with this turn after a restart."""

    turn_id: TurnId
    state: bytes


class AddUsage(Message, frozen=True, kw_only=True, tag="change.usage"):
    """What one request to a model has used, to add to the session's totals.

    `total_tokens` of -1 is the sum of the other two; the cache counts are parts of the input.
    """

    input_tokens: int
    output_tokens: int
    cost_usd: float = 0.0
    total_tokens: int = -1
    cache_read: int = 0
    cache_creation: int = 0


class ClaimCall(Message, frozen=True, kw_only=True, tag="change.claim_call"):
    """The call starts with this draft, and never again: `fingerprint` says which tool it is with which arguments.

    Refused `CALL_ALREADY_STARTED`, `IDEMPOTENCY_CONFLICT` (the id belongs to another call),
    `IDEMPOTENCY_CAPACITY_EXCEEDED`.
    """

    call_id: CallId
    fingerprint: bytes


class SettleCall(Message, frozen=True, kw_only=True, tag="change.settle_call"):
    """The started call ends with this draft; `released` means that it has had no effect and may be claimed again."""

    call_id: CallId
    state: Literal["completed", "unknown", "released"]


class EndCall(Message, frozen=True, kw_only=True, tag="change.end_call"):
    """The handler of a call has ended, and its event is still to come: there is nothing left to cancel."""

    call_id: CallId


Change = (
    BeginTurn
    | EndTurn
    | OpenPending
    | SettlePending
    | SetRunnerState
    | AddUsage
    | ClaimCall
    | EndCall
    | SettleCall
)


class RecallCall(Message, frozen=True, kw_only=True, tag="turn.recall_call"):
    """Call agent → store: how a call that was started before has ended. Answered with `CallRecalled`."""

    session_id: SessionId
    call_id: CallId


class CallRecalled(Message, frozen=True, kw_only=True, tag="turn.call_recalled"):
    """The answer to `RecallCall`: the last event of the call, or nothing if there is none (any more)."""

    body: bytes = b""


class Draft(Message, frozen=True, kw_only=True, tag="turn.draft"):
    """Cast agent → store: one event as JSON without `sequence`, and row changes for the same transaction.

    With `type` and `body` empty there is no event, only changes; `event_id` still names the draft. `durable` asks for a
    commit at once. A draft whose `tied_to` draft was refused is refused with it. Answered with `Acked` or `DraftRefused`;
    a draft sent again under the same `event_id` is acknowledged and not written twice.
    """

    session_id: SessionId
    generation: int
    event_id: EventId
    type: str
    turn_id: str
    body: bytes
    durable: bool = True
    changes: tuple[Change, ...] = ()
    tied_to: str = ""


class Acked(Message, frozen=True, kw_only=True, tag="turn.acked"):
    """Cast store → agent: this draft, and all of its session sent before it on this link, are settled on disk."""

    session_id: SessionId
    event_id: EventId
    sequence: int


class DraftRefused(Message, frozen=True, kw_only=True, tag="turn.draft_refused"):
    """Cast store → agent: nothing was written for this draft; comes before the `Acked` that covers it.

    Codes: those of `ClaimCall`, `ALREADY_SETTLED`, `STALE_GENERATION`, `EVENT_ID_CONFLICT`, `EVENT_PAYLOAD_TOO_LARGE`,
    `EVENT_SCHEMA_INCOMPATIBLE`, `SESSION_CLOSED`, `TIED`, `TURN_STEERED`, `EVENT_APPEND_FAILED` (the disk; send it again).
    """

    session_id: SessionId
    event_id: EventId
    code: str
    message: str
