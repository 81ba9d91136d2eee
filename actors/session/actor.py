"""One session: its messages in order, at most one turn at a time, and what is still to be written about it.

At its start it gets a new generation from the store and deals with a turn that an older one has left: a parked one goes
on, any other is closed. What the store tells comes through a bounded mailbox; when that is full, nothing is lost: the
session asks the store for everything open.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from roost.actors.session.approvals import Grants
from roost.actors.session.clock import Clock
from roost.actors.session.outbox import Outbox
from roost.actors.session.queue import Queue
from roost.actors.store.recovery import plan_recovery, repair_drafts
from roost.schemas.base import Message, Refused, SessionId
from roost.schemas.event import AgentMessageDelta, AnyEvent
from roost.schemas.session import Page, ReadPage
from roost.schemas.turn import (
    CallCancelled,
    Cancelled,
    Cleared,
    Closing,
    Decision,
    Draft,
    Inbox,
    InboxItem,
    OpenSession,
    OpenTurn,
    PullInbox,
    QueuedMessage,
    SessionOpened,
    Steer,
    Withdrawn,
)
from roost.schemas.unions import event_decoder
from roost.supervisor.errors import ActorGone, MailboxFull
from roost.supervisor.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.actors.session.turns import Host, Turn, TurnMaker

MAX_MAIL = 1024
RETRY_SECONDS = 1.0
# The store has ended the turn, or somebody else has the session.
EXPECTED = frozenset(("ALREADY_SETTLED", "TIED", "TURN_STEERED"))
LOST = frozenset(("STALE_GENERATION", "SESSION_CLOSED", "EVENT_STORE_CAPACITY_EXCEEDED"))

_log = logging.getLogger(__name__)

Mail = InboxItem | Inbox | None
"""What a session hears: an item, everything that is open, or (None) that something inside has changed."""


class SessionActor:
    """A session while its agent's process runs."""

    def __init__(
        self, session_id: SessionId, host: Host, turns: TurnMaker, unwind_timeout: float
    ) -> None:
        self.session_id = session_id
        self.cwd = ""
        self.model = ""
        self.metadata = b"{}"
        self.cleared_after = 0
        self.outbox = Outbox(session_id, self)
        self.grants = Grants(host.agent_grants)
        self._host = host
        self._turns = turns
        self.unwind_timeout = unwind_timeout
        self._mail: Mailbox[Mail, None] = Mailbox(f"session {session_id}", MAX_MAIL)
        self.clock = Clock(trio.current_time)
        self.uptime = Clock(trio.current_time)
        self._queue = Queue(self.clock.now)
        self._turn: Turn | None = None
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._opened = False
        self._closing = False
        self._pulling = False
        self._pull_wanted = False
        self._revoked_after = 0

    @property
    def is_busy(self) -> bool:
        """Return whether the session has a turn, or does not know yet whether it has."""
        return not self._opened or self._turn is not None or bool(self._queue)

    @property
    def is_active(self) -> bool:
        """Return whether something happens here that a stop of the process should wait for."""
        turn = self._turn
        return turn is not None and not turn.is_waiting

    @property
    def _has_store(self) -> bool:
        return self._host.has_store and not self.outbox.is_holding

    def deliver(self, item: InboxItem) -> None:
        """Take an item from the store; if there is no room for it, ask for all of them later."""
        if isinstance(item, Cleared):
            self._clear(item.after)  # before any message that is behind it
        try:
            self._mail.cast_nowait(item)
        except MailboxFull:
            self._pull_wanted = True
        except ActorGone:
            pass  # it has ended; a new actor of this session asks the store itself

    def acked(self, event_id: str) -> None:
        """A draft and all before it are settled."""
        self.outbox.acked(event_id)

    def refused(self, event_id: str, code: str) -> None:
        """A draft was not written."""
        if code in LOST:
            _log.info("session %s: %s", self.session_id, code)
            self.outbox.drop()
            self._scope.cancel()
        else:
            if code not in EXPECTED:
                _log.error("session %s: draft %s refused: %s", self.session_id, event_id, code)
            self.outbox.refused(event_id, code)

    def link_up(self) -> None:
        """There is a new link to the store: send again what is unanswered, and ask what was missed."""
        self._set_clocks()
        self.outbox.resend()
        if self._opened:
            self.pull()

    def link_down(self) -> None:
        """There is no link to the store."""
        self._set_clocks()

    def pull(self) -> None:
        """Ask the store for everything open."""
        if self._pulling:
            self._pull_wanted = True
            return
        self._pulling = True
        self._pull_wanted = False
        self._host.call_store(PullInbox(session_id=self.session_id), self._pulled)

    def turn_changed(self) -> None:
        """The turn has begun or ceased to wait for a person."""
        self._set_clocks()
        self._host.changed(self.session_id)

    def send_draft(self, draft: Draft) -> bool:
        """Hand a draft to the link."""
        return self._host.send_draft(draft)

    def retry_later(self) -> None:
        """The store's disk has failed."""
        self._set_clocks()
        if self._nursery is not None:
            self._nursery.start_soon(self._retry)

    async def ask_store(self, message: Message) -> Message:
        """Call the store with something idempotent."""
        return await self._host.ask_store(message)

    async def run(self) -> None:
        """Serve the session until it is closed, or another actor has it. Cancelled, its turn is left to recovery."""
        try:
            with self._scope:
                await self._run()
        finally:
            self._mail.close()
            self._turn = None
            self._queue.clear()
            self._opened = True
            self._host.changed(self.session_id)

    async def _run(self) -> None:
        opened = await self._host.ask_store(OpenSession(session_id=self.session_id))
        if not isinstance(opened, SessionOpened):
            if isinstance(opened, Refused):
                _log.info("session %s: %s", self.session_id, opened.code)
            return
        self.cwd = opened.cwd
        self.model = opened.model
        self.metadata = opened.metadata
        self.cleared_after = self._revoked_after = opened.cleared_after
        self.outbox.generation = opened.generation
        self.grants.session.update(opened.grants)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if opened.turn is not None:
                await self._recover(opened.turn, opened.last_sequence)
            self._queue.replace(i for i in opened.inbox if isinstance(i, QueuedMessage))
            for item in opened.inbox:
                self._handle(item)
            self._opened = True
            await self._serve()
            nursery.cancel_scope.cancel()

    async def _serve(self) -> None:
        while True:
            self._begin_next()
            self._host.changed(self.session_id)
            if self._closing and self._turn is None:
                await self.outbox.settled()
                return
            if self._pull_wanted and not len(self._mail):
                self.pull()
            mail = (await self._mail.receive()).message
            if isinstance(mail, Inbox):
                self._queue.replace(i for i in mail.items if isinstance(i, QueuedMessage))
                for item in mail.items:
                    self._handle(item)
            elif mail is not None:
                self._handle(mail)

    def _begin_next(self) -> None:
        if self._turn is not None or self._closing or self._host.is_stopping:
            return
        if self._queue:
            message, since = self._queue.begin()
            self._start(self._turns.begin(self, message, since))
        elif self._queue.may_be_partial:
            self._queue.may_be_partial = False
            self.pull()

    def _handle(self, item: InboxItem) -> None:
        match item:
            case QueuedMessage():
                self._queue.add(item)
            case Withdrawn(message_id=message_id):
                self._queue.withdraw(message_id)
            case Decision(row=row):
                self.grants.add(row.grant_keys if row.state == "approved" else (), row.scope)
                if self._turn is not None:
                    self._turn.decide(row)
            case Cancelled(turn_id=turn_id):
                if self._turn is not None and self._turn.turn_id == turn_id:
                    self._cancel(self._turn)
            case Steer(turn_id=turn_id, message=message):
                # One for a turn that has ended has been written by the store.
                if self._turn is not None and self._turn.turn_id == turn_id:
                    self._turn.steer(message)
            case CallCancelled(call_id=call_id):
                if self._turn is not None:
                    self._turn.cancel_call(call_id)
            case Cleared(after=after):
                self._clear(after)
                if after > self._revoked_after:
                    # Decisions that came before have been taken in by now.
                    self._revoked_after = after
                    self.grants.session.clear()
            case Closing():
                self._closing = True
                self._queue.clear()

    def _clear(self, after: int) -> None:
        """Let the next turn begin with an empty conversation; the store clears none with an open turn."""
        if after > self.cleared_after:
            self.cleared_after = after
            self._turns.forget(self.session_id)

    def _cancel(self, turn: Turn) -> None:
        turn.cancel()
        if self._nursery is not None and not turn.has_ended:
            self._nursery.start_soon(
                self.watch_unwind,
                lambda: self._turn is not turn or turn.has_ended,
                "a cancelled turn",
            )

    async def watch_unwind(self, has_ended: Callable[[], bool], what: str) -> None:
        """Have the process killed if something that was to stop does not; while the store is away it cannot."""
        while True:
            await trio.sleep(self.unwind_timeout)
            if has_ended():
                return
            if self._has_store:
                self._host.kill(f"{what} did not unwind")
                return

    def _set_clocks(self) -> None:
        up = self._has_store
        self.uptime.run(up)
        self.clock.run(up and (self._turn is None or not self._turn.is_waiting))

    def _start(self, turn: Turn) -> None:
        assert self._nursery is not None
        self._turn = turn
        self._nursery.start_soon(self._run_turn, turn)

    async def _run_turn(self, turn: Turn) -> None:
        await turn.run()
        self._turn = None
        self._set_clocks()
        self._nudge()

    def _nudge(self) -> None:
        """Wake the actor's task; a full mailbox wakes it by itself."""
        with suppress(MailboxFull, ActorGone):
            self._mail.cast_nowait(None)

    def _pulled(self, answer: Message | ActorGone) -> None:
        self._pulling = False
        if isinstance(answer, Inbox):
            try:
                self._mail.cast_nowait(answer)
            except MailboxFull:
                self._pull_wanted = True
            except ActorGone:
                pass
        elif isinstance(answer, Refused):
            _log.warning("session %s: %s", self.session_id, answer.message)
        elif self._turn is not None and self._nursery is not None:
            # A turn may wait for what it was to bring, and no new link need come: the store may only have been slow.
            self._nursery.start_soon(self._pull_later)

    async def _pull_later(self) -> None:
        await trio.sleep(RETRY_SECONDS)
        if self._has_store:
            self.pull()

    async def _retry(self) -> None:
        await trio.sleep(RETRY_SECONDS)
        self.outbox.resend()
        self._set_clocks()

    async def _recover(self, turn: OpenTurn, last_sequence: int) -> None:
        events, whole = await self._read_turn(turn, last_sequence)
        plan = plan_recovery(
            self.session_id,
            turn.turn_id,
            events,
            turn.pending,
            cancelled=turn.cancel_reason is not None,
            timestamp=time.time(),
            reason=turn.crash_reason,
            may_park=whole,
            whole=whole,
        )
        if plan.parked:
            self._start(self._turns.resume(self, turn, events))
            return
        drafts = repair_drafts(
            plan, self.session_id, turn.turn_id, self.outbox.generation, turn.pending
        )
        for draft in drafts:
            self.outbox.push_draft(draft)
        await self.outbox.settled()

    async def _read_turn(self, turn: OpenTurn, last_sequence: int) -> tuple[list[AnyEvent], bool]:
        """Return the turn's events without its text deltas, and whether all of them can be read."""
        events: list[AnyEvent] = []
        whole = True
        after = turn.first_sequence - 1
        while after < last_sequence:
            page = await self._host.ask_store(
                ReadPage(
                    session_id=self.session_id, after=after, upto=last_sequence, skip_damaged=True
                )
            )
            if not isinstance(page, Page) or not (page.bodies or page.damaged_upto):
                break
            whole = whole and not page.damaged_upto
            for body in page.bodies:
                event = event_decoder.decode(body)
                if not isinstance(event, AgentMessageDelta) and event.turn_id == turn.turn_id:
                    events.append(event)
            after = max(page.damaged_upto, page.first + len(page.bodies) - 1)
        return events, whole
