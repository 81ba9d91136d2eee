"""A store in memory behind one end of a link: sequences, row changes, inbox; answers can be held back."""

from __future__ import annotations

import itertools
import socket
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from roost.schemas import event
from roost.schemas.agent import AgentRow, AgentSpec, Hello, Sleep, Welcome
from roost.schemas.base import (
    AgentId,
    CallId,
    Done,
    Message,
    MessageId,
    Refused,
    SessionId,
    TurnId,
)
from roost.schemas.session import Page, ReadPage
from roost.schemas.turn import (
    Acked,
    BeginTurn,
    Bell,
    CallRecalled,
    Cancelled,
    Closing,
    Decision,
    Draft,
    DraftRefused,
    EndTurn,
    Inbox,
    InboxItem,
    OpenPending,
    OpenSession,
    OpenTurn,
    PullInbox,
    QueuedMessage,
    RecallCall,
    SessionOpened,
    SetRunnerState,
    SettlePending,
    Steer,
    Withdrawn,
)
from roost.schemas.unions import event_decoder, event_encoder, store_from_agent
from roost.supervisor.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.schemas.approval import PendingRow, PendingState, Scope
    from roost.supervisor.poller import Poller

SESSION = SessionId("session-1")
AGENT = AgentId("agent-1")
E = TypeVar("E")
_numbers = itertools.count(1)


class FakeStore:
    """One agent with one session."""

    def __init__(self, poller: Poller, spec: AgentSpec) -> None:
        self.spec = spec
        self.holding = False
        self.refuse_next: dict[str, str] = {}
        self.recalled: event.AnyEvent | None = None
        self.bodies: list[bytes] = []
        self.drafts: list[Draft] = []
        self.refusals: list[str] = []
        self.generation = 0
        self.hellos = 0
        self.pulls = 0
        self.queued: dict[str, QueuedMessage] = {}
        self.unread: dict[str, QueuedMessage] = {}
        self.model = ""
        self.ended: dict[str, EndTurn] = {}
        self.pending: dict[str, PendingRow] = {}
        self.turn: OpenTurn | None = None
        self.closing = False
        self.forgotten = False
        self.may_sleep = True
        self._poller = poller
        self._link: Link | None = None
        self._known: dict[str, int] = {}
        self._held: list[Draft] = []
        self._changed = trio.Event()

    # What a test does.

    def connect(self) -> int:
        """Make a new link; return the agent's end as a descriptor."""
        mine, theirs = socket.socketpair()
        self._link = Link(mine, self._poller, name="agent", decoder=store_from_agent, handler=self)
        return theirs.detach()

    def disconnect(self) -> None:
        """Lose the link, and all drafts that are held."""
        self._held.clear()
        if self._link is not None:
            self._link.close()

    def accept(
        self,
        text: str,
        script: Sequence[object] | None = None,
        *,
        bell: bool = True,
        turn_id: str = "",
        model: str = "",
        texts: tuple[str, ...] = (),
    ) -> str:
        """Take a client's message."""
        message = _message(text, script, turn_id=turn_id, model=model, texts=texts)
        self.queued[message.message_id] = message
        if bell:
            self.ring(message)
        return message.message_id

    def steer(self, text: str, script: Sequence[object] | None = None, *, bell: bool = True) -> str:
        """Take a client's message for the turn that runs."""
        assert self.turn is not None
        message = _message(text, script)
        self.unread[message.message_id] = message
        if bell:
            self.ring()
        return message.message_id

    def withdraw(self, message_id: str, *, bell: bool = True) -> None:
        del self.queued[message_id]
        if bell:
            self.ring(Withdrawn(message_id=MessageId(message_id)))

    def settle(
        self,
        request_id: str,
        state: PendingState,
        *,
        scope: Scope = "once",
        answer: object = None,
        bell: bool = True,
    ) -> None:
        """Take a client's decision."""
        row = self.pending[request_id]
        assert row.state == "open"
        row = msgspec.structs.replace(
            row,
            state=state,
            scope=scope,
            reason="no thanks" if state == "denied" else "",
            answer=b"" if answer is None else msgspec.json.encode(answer),
        )
        self.pending[request_id] = row
        if row.kind == "approval":
            self._record(self._decision(row, approved=state == "approved"))
        if bell:
            self.ring(Decision(row=row))

    def cancel(self, reason: str = "session.cancelTurn") -> None:
        """Take a client's interrupt."""
        assert self.turn is not None
        self._record(
            event.CancellationRequested(
                id=f"cancel-{len(self.bodies)}",
                timestamp=1.0,
                session_id=SESSION,
                turn_id=self.turn.turn_id,
                reason=reason,
            )
        )
        self.turn = msgspec.structs.replace(self.turn, cancel_reason=reason)
        self.ring(Cancelled(turn_id=self.turn.turn_id, reason=reason))

    def close_session(self) -> None:
        self.closing = True
        self.queued.clear()
        self.ring(Closing())

    def ring(self, *items: InboxItem) -> None:
        """Ring the agent."""
        if self._link is not None:
            self._link.cast(Bell(session_id=SESSION, items=items))

    def release(self) -> None:
        """Answer what has been held, and from now on at once."""
        self.holding = False
        held, self._held = self._held, []
        for draft in held:
            self._commit(draft)

    def release_first(self) -> None:
        """Answer the oldest of what is held."""
        self._commit(self._held.pop(0))

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def events(self) -> list[event.AnyEvent]:
        return [event_decoder.decode(body) for body in self.bodies]

    @property
    def kinds(self) -> list[str]:
        """Return the types of all events, runs of deltas as one."""
        kinds: list[str] = []
        for found in self.events:
            kind = str(found.__struct_config__.tag)
            if kind != "agent.message.delta" or kinds[-1:] != [kind]:
                kinds.append(kind)
        return kinds

    @property
    def text(self) -> str:
        """Return all streamed text."""
        return "".join(e.delta for e in self.events if isinstance(e, event.AgentMessageDelta))

    def find(self, kind: type[E]) -> list[E]:
        return [found for found in self.events if isinstance(found, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at after each message."""
        while not condition():
            await self._changed.wait()

    async def until_ended(self, count: int = 1) -> EndTurn:
        """Wait for the end of that many turns; return the last end."""
        await self.until(lambda: len(self.ended) >= count)
        return list(self.ended.values())[-1]

    async def until_asked(self) -> PendingRow:
        """Wait until something waits for a person."""
        await self.until(lambda: any(r.state == "open" for r in self.pending.values()))
        return next(r for r in self.pending.values() if r.state == "open")

    # What the agent does.

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        if link is not self._link:
            return
        match message:
            case Draft() if self.holding:
                self._held.append(message)
            case Draft():
                self._commit(message)
            case Hello() if self.forgotten:
                link.reply(ref, Refused(code="AGENT_NOT_FOUND", message="no such agent"))
            case Hello():
                self.hellos += 1
                busy = self.turn is not None or bool(self.queued)
                row = AgentRow(spec=self.spec, status="idle")
                link.reply(ref, Welcome(agent=row, sessions=(SESSION,) if busy else ()))
            case OpenSession():
                self.generation += 1
                link.reply(ref, self._opened())
            case PullInbox():
                self.pulls += 1
                link.reply(ref, Inbox(items=self._items()))
            case RecallCall():
                body = event_encoder.encode(self.recalled) if self.recalled is not None else b""
                link.reply(ref, CallRecalled(body=body))
            case ReadPage(after=after, max_events=limit):
                bodies = tuple(self.bodies[after : after + limit])
                page = Page(
                    session_id=SESSION,
                    first=after + 1,
                    bodies=bodies,
                    last_sequence=len(self.bodies),
                )
                link.reply(ref, page)
            case Sleep():
                may = self.may_sleep and not self.queued and self.turn is None
                link.reply(ref, Done() if may else Refused(code="TURN_IN_PROGRESS", message="no"))
            case _:
                raise AssertionError(message)
        self._wake()

    def on_closed(self, link: Link) -> None:
        if link is self._link:
            self._link = None

    def _opened(self) -> SessionOpened:
        turn = self.turn
        if turn is not None:
            turn = msgspec.structs.replace(turn, pending=tuple(self.pending.values()))
        return SessionOpened(
            session_id=SESSION,
            agent_id=AGENT,
            generation=self.generation,
            last_sequence=len(self.bodies),
            cleared_after=0,
            cwd="",
            metadata=b"{}",
            turn=turn,
            inbox=self._items(),
            model=self.model,
        )

    def _items(self) -> tuple[InboxItem, ...]:
        items: list[InboxItem] = list(self.queued.values())
        if self.turn is not None:
            turn_id = self.turn.turn_id
            items += [Steer(turn_id=turn_id, message=each) for each in self.unread.values()]
        items += [Decision(row=row) for row in self.pending.values() if row.state != "open"]
        if self.turn is not None and self.turn.cancel_reason is not None:
            items.append(Cancelled(turn_id=self.turn.turn_id, reason=self.turn.cancel_reason))
        if self.closing:
            items.append(Closing())
        return tuple(items)

    def _commit(self, draft: Draft) -> None:
        self.drafts.append(draft)
        code = self._refusal(draft)
        assert self._link is not None
        if code:
            self.refusals.append(code)
            refused = DraftRefused(
                session_id=draft.session_id, event_id=draft.event_id, code=code, message=code
            )
            self._link.cast(refused)
        elif draft.event_id not in self._known:
            self._known[draft.event_id] = len(self.bodies)
            if draft.body:
                self.bodies.append(draft.body)
            for change in draft.changes:
                self._change(change)
        self._link.cast(
            Acked(
                session_id=draft.session_id,
                event_id=draft.event_id,
                sequence=len(self.bodies),
            )
        )
        self._wake()

    def _refusal(self, draft: Draft) -> str:
        if draft.event_id in self._known:
            return ""
        planned = self.refuse_next.pop(draft.type, "")
        if planned:
            return planned
        if draft.generation != self.generation:
            return "STALE_GENERATION"
        if draft.tied_to and draft.tied_to not in self._known:
            return "TIED"
        for change in draft.changes:
            if isinstance(change, SettlePending):
                if self.pending[change.request_id].state != "open":
                    return "ALREADY_SETTLED"
            elif isinstance(change, BeginTurn):
                if change.message_id not in self.queued and change.message_id not in self.unread:
                    return "ALREADY_SETTLED"
            elif isinstance(change, EndTurn) and self._must_go_on(change, draft):
                return "TURN_STEERED"
        return ""

    def _must_go_on(self, change: EndTurn, draft: Draft) -> bool:
        return bool(self.unread and draft.body) and change.outcome == "completed"

    def _change(self, change: object) -> None:
        match change:
            case BeginTurn(message_id=message_id) if message_id in self.unread:
                assert self.turn is not None
                read = (*self.turn.steers, self.unread.pop(message_id))
                self.turn = msgspec.structs.replace(self.turn, steers=read)
            case BeginTurn(turn_id=turn_id, message_id=message_id):
                message = self.queued.pop(message_id)
                self.turn = OpenTurn(
                    turn_id=turn_id, message=message, first_sequence=len(self.bodies)
                )
            case EndTurn(turn_id=turn_id):
                assert self.turn is not None
                assert self.turn.turn_id == turn_id
                assert turn_id not in self.ended
                self.turn = None
                self.unread.clear()
                self.pending.clear()
                self.ended[turn_id] = change
            case OpenPending(row=row):
                self.pending[row.request_id] = row
            case SettlePending(request_id=request_id, state=state):
                row = self.pending[request_id]
                self.pending[request_id] = msgspec.structs.replace(row, state=state)
            case SetRunnerState(state=state):
                assert self.turn is not None
                self.turn = msgspec.structs.replace(self.turn, runner_state=state)
            case _:
                pass

    def _decision(self, row: PendingRow, *, approved: bool) -> event.AnyEvent:
        assert self.turn is not None
        if approved:
            return event.ToolApprovalApproved(
                id=f"decision-{row.request_id}",
                timestamp=1.0,
                session_id=SESSION,
                turn_id=self.turn.turn_id,
                tool_name=row.tool_name,
                tool_call_id=CallId(row.request_id),
            )
        return event.ToolApprovalRejected(
            id=f"decision-{row.request_id}",
            timestamp=1.0,
            session_id=SESSION,
            turn_id=TurnId(row.turn_id),
            tool_name=row.tool_name,
            tool_call_id=CallId(row.request_id),
            error_code="APPROVAL_REJECTED",
            reason="denied",
        )

    def _record(self, found: event.AnyEvent) -> None:
        self.bodies.append(event_encoder.encode(found))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _message(
    text: str,
    script: Sequence[object] | None,
    *,
    turn_id: str = "",
    model: str = "",
    texts: tuple[str, ...] = (),
) -> QueuedMessage:
    number = next(_numbers)
    metadata = {} if script is None else {"script": script}
    return QueuedMessage(
        message_id=MessageId(f"message-{number}"),
        stream_id=f"stream-{number}",
        accepted_at=1,
        text=text,
        metadata=msgspec.json.encode(metadata),
        turn_id=turn_id,
        model=model,
        input=texts,
    )
