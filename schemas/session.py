"""Sessions: their records, what is asked of the store about them, and what the store tells the front."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from roost.schemas.approval import PendingRow
from roost.schemas.base import AgentId, Message, MessageId, SessionId, TurnId
from roost.schemas.turn import AcceptMessage

IDLE: Final = "idle"
"""Why the store itself closes an ephemeral session: nobody has followed it for a while, and nothing was done in it."""

SessionState = Literal["open", "closing", "closed"]
SessionStatus = Literal["idle", "running", "waiting", "closed", "error"]


class SessionSpec(Message, frozen=True, kw_only=True, tag="session.spec"):
    """What a session was created with; never changes. `metadata` is a JSON object."""

    session_id: SessionId
    agent_id: AgentId
    created_at: int
    cwd: str = ""
    title: str = ""
    model: str = ""
    source: str = ""
    ephemeral: bool = False
    metadata: bytes = b"{}"


class SessionRow(Message, frozen=True, kw_only=True, tag="session.row"):
    """A session as the store knows it. `delivered` is the last sequence ever written to a client.

    `updated_at` moves when a turn begins or ends and when the session closes; `preview` is the beginning of the first
    message that clients are shown. `turn_id` is the open turn, or the one that was promised and has not begun (also of a
    session that only has messages without a promised turn it is empty, though its `status` is `running`); `cancelling`
    says that it has been asked to stop. One that is `waiting` waits for a decision (`to_decide`), an answer, or both.
    """

    spec: SessionSpec
    state: SessionState
    status: SessionStatus
    last_sequence: int = 0
    first_sequence: int = 1
    delivered: int = 0
    turns: int = 0
    queued: int = 0
    closed_at: int = 0
    close_reason: str = ""
    cleared_after: int = 0
    recovered: bool = False
    cleared_at: int = 0
    updated_at: int = 0
    preview: str = ""
    turn_id: str = ""
    cancelling: bool = False
    to_decide: bool = False
    to_answer: bool = False


class CreateSession(Message, frozen=True, kw_only=True, tag="session.create"):
    """Call front → store: record a session on a live agent (and a first message); idempotent by its id.

    Answered with `SessionRow`; refused `AGENT_NOT_FOUND`. A session with an agent of its own is `CreateAgent`.
    """

    session: SessionSpec
    message: AcceptMessage | None = None


class GetSession(Message, frozen=True, kw_only=True, tag="session.get"):
    """Call front → store; answered with `SessionRow`, refused `SESSION_NOT_FOUND`."""

    session_id: SessionId


class ListSessions(Message, frozen=True, kw_only=True, tag="session.list"):
    """Call front → store: sessions, closed ones included, by (created_at, session_id), strictly after `after`.

    With `newest` those of one agent backwards: from the one made last, or strictly before `after`.
    """

    limit: int
    agent_id: str = ""
    after: tuple[int, str] = (0, "")
    newest: bool = False


class ListThreads(Message, frozen=True, kw_only=True, tag="session.list_threads"):
    """Call front → store: sessions by (updated_at, session_id), newest first; `limit` of them behind the first `offset`.

    `archived` wants the closed ones (True), the others (False), or both (None). Answered with `Threads`.
    """

    limit: int
    offset: int = 0
    archived: bool | None = False


class Threads(Message, frozen=True, kw_only=True, tag="session.threads"):
    """The answer to `ListThreads`; `total` is how many there are without `offset` and `limit`.

    At most 1,000, and fewer than asked for where they are large: ask for the rest behind those.
    """

    threads: tuple[SessionRow, ...]
    total: int


class FindEvent(Message, frozen=True, kw_only=True, tag="session.find_event"):
    """Call front → store: where in this session's log an event is. Answered with `EventFound`, or `SESSION_NOT_FOUND`."""

    session_id: SessionId
    event_id: str


class EventFound(Message, frozen=True, kw_only=True, tag="session.event_found"):
    """The answer to `FindEvent`: 0 if the session has no such event (any more).

    `turn_first` is the first event of its turn that is kept; for an event without a turn the event itself.
    """

    sequence: int = 0
    turn_id: str = ""
    turn_first: int = 0


class Sessions(Message, frozen=True, kw_only=True, tag="session.sessions"):
    """The answer to `ListSessions`."""

    sessions: tuple[SessionRow, ...]
    more: bool = False


class CloseSession(Message, frozen=True, kw_only=True, tag="session.close"):
    """Call front → store: take no further message; `session.closed` is written when the open turn has ended.

    Answered with `SessionClosing`.
    """

    session_id: SessionId
    reason: str = ""


class SessionClosing(Message, frozen=True, kw_only=True, tag="session.closing"):
    """The answer to `CloseSession`; `last` if it was the agent's last live session (the front then ends the agent)."""

    terminated: bool
    agent_id: AgentId
    closed_at: int
    reason: str = ""
    last: bool = False


class ClearSession(Message, frozen=True, kw_only=True, tag="session.clear"):
    """Call front → store: the conversation begins anew behind the last event. Answered with `SessionCleared`.

    The same `at` again is the same request. Refused `AGENT_NOT_FOUND`, or `TURN_IN_PROGRESS` while a turn is open or a
    message waits for its own.
    """

    session_id: SessionId
    at: int


class SessionCleared(Message, frozen=True, kw_only=True, tag="session.cleared"):
    """The answer to `ClearSession`, which those who watch the session are told before; times are ms since 1970."""

    session_id: SessionId
    agent_id: AgentId
    cleared_after: int
    cleared_at: int


class GetSnapshot(Message, frozen=True, kw_only=True, tag="session.get_snapshot"):
    """Call front → store; answered with `SessionSnapshot`, refused `SESSION_NOT_FOUND`."""

    session_id: SessionId


class SessionSnapshot(Message, frozen=True, kw_only=True, tag="session.snapshot"):
    """The answer to `GetSnapshot`: what the session has done and used since it was created."""

    session_id: SessionId
    completed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float = 0.0
    requests: int = 0
    cache_read: int = 0
    cache_creation: int = 0


class ReadTexts(Message, frozen=True, kw_only=True, tag="session.read_texts"):
    """Call front → store: what was said (and with `outputs` how calls ended), read backwards from `upto` (0: the newest).

    Only what is behind `floor` is read (-1: behind the last clear). Answered with `Texts`, refused `SESSION_NOT_FOUND`.
    """

    session_id: SessionId
    upto: int = 0
    floor: int = -1
    outputs: bool = False


class Texts(Message, frozen=True, kw_only=True, tag="session.texts"):
    """Events as (sequence, JSON body without `sequence`), newest first.

    The next page goes on at `upto`; 0 if nothing is left. `damaged` are ranges of events that cannot be read, newest
    first. `removed` says that retention has taken events from behind the floor.
    """

    session_id: SessionId
    epoch: str
    floor: int
    last_sequence: int
    events: tuple[tuple[int, bytes], ...]
    upto: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    removed: bool = False


class TurnRef(Message, frozen=True, kw_only=True, tag="session.turn_ref"):
    """Which message a turn belongs to, and with which event it begins (0 where that is not said)."""

    turn_id: TurnId
    message_id: MessageId
    stream_id: str
    accepted_at: int
    first_sequence: int = 0


class Watch(Message, frozen=True, kw_only=True, tag="session.watch"):
    """Call front → store: tell me of everything in this session from now on. Answered with `Watched`."""

    session_id: SessionId


class Watched(Message, frozen=True, kw_only=True, tag="session.watched"):
    """The answer to `Watch`: the state at the point in the stream from which `Published` follows without a gap.

    `epoch` is the store's word that is renewed only when committed events are found to be gone.
    """

    row: SessionRow
    agent_status: str
    epoch: str
    turn: TurnRef | None = None
    pending: tuple[PendingRow, ...] = ()


class Unwatch(Message, frozen=True, kw_only=True, tag="session.unwatch"):
    """Cast front → store: no more of this session."""

    session_id: SessionId


class WatchAll(Message, frozen=True, kw_only=True, tag="session.watch_all"):
    """Cast front → store: tell me of every session, watched or not (a client observes status), or no longer."""

    wanted: bool


class ReadPage(Message, frozen=True, kw_only=True, tag="session.read_page"):
    """Call → store: events with `after` < sequence ≤ `upto` (0: no bound), oldest first.

    At most `max_events` and, but for the first event, `max_bytes`. A page ends before a damaged event; one that would
    begin with it is refused (`EVENT_SCHEMA_INCOMPATIBLE`), or with `skip_damaged` begins behind it. Answered with `Page`.
    """

    session_id: SessionId
    after: int
    upto: int = 0
    max_events: int = 200
    max_bytes: int = 262_144
    skip_damaged: bool = False


class Page(Message, frozen=True, kw_only=True, tag="session.page"):
    """Consecutive events as JSON bodies without `sequence`; the first has sequence `first`.

    `lost_upto` is the highest sequence that retention removed out of the range asked for, or 0. `damaged_upto` is the
    highest sequence of the damaged events that were skipped, or 0: they lie between `after` (or `lost_upto`) and `first`.
    """

    session_id: SessionId
    first: int
    bodies: tuple[bytes, ...]
    last_sequence: int
    turns: tuple[TurnRef, ...] = ()
    lost_upto: int = 0
    damaged_upto: int = 0


class Delivered(Message, frozen=True, kw_only=True, tag="session.delivered"):
    """Cast front → store: the last sequences written to any client of these sessions."""

    sequences: dict[str, int]


class Count(Message, frozen=True, kw_only=True, tag="session.count"):
    """Call front → store: figures for `health.stats`. Answered with `Counts`."""


class AgentWork(msgspec.Struct, frozen=True, array_like=True):
    """What an agent has to do: open turns, messages that wait for theirs, requests that wait for a person."""

    agent_id: str
    turns: int
    queued: int
    waiting: int


class Counts(Message, frozen=True, kw_only=True, tag="session.counts"):
    """The answer to `Count`. `mailbox` is what lies before the store itself; `work` names the agents that have any."""

    active: int
    closed: int
    agents: int
    turns_open: int
    calls_open: int
    pending: int
    events: int
    queued: int = 0
    mailbox: int = 0
    work: tuple[AgentWork, ...] = ()


class EventBatch(Message, frozen=True, kw_only=True, tag="published.events"):
    """Committed events of one session in order; the first has sequence `first`. The list grows until the commit."""

    session_id: SessionId
    agent_id: AgentId
    first: int
    bodies: list[bytes]


class MessageChanged(Message, frozen=True, kw_only=True, tag="published.message"):
    """A message was accepted, begun (with its turn) or has ended (with the turn's outcome).

    `planned` is the turn that was promised to it by `StartTurn`, or that it steers (`steering`), from the first change on;
    `turn_id` is empty until it has begun. One that ends without has been withdrawn.
    """

    session_id: SessionId
    agent_id: AgentId
    message_id: MessageId
    stream_id: str
    state: Literal["accepted", "begun", "ended"]
    accepted_at: int
    turn_id: str = ""
    outcome: str = ""
    error: str = ""
    position: int = 0
    text: str = ""
    display: str | None = None
    hidden: bool = False
    planned: str = ""
    steering: bool = False


class PendingChanged(Message, frozen=True, kw_only=True, tag="published.pending"):
    """A question was opened, or an approval or a question was settled; `row.state` says which.

    An approval's opening is its stored event; its row comes here right before that event.
    """

    session_id: SessionId
    agent_id: AgentId
    row: PendingRow


class SessionChanged(Message, frozen=True, kw_only=True, tag="published.session"):
    """A session is closing or closed."""

    row: SessionRow


class SessionDropped(Message, frozen=True, kw_only=True, tag="published.dropped"):
    """A session is gone with all of its events: an ephemeral one that was closed, soon after; `reason` is why it was."""

    session_id: SessionId
    agent_id: AgentId
    reason: str = ""
