"""What the front knows of one session that somebody follows: where its stream is, and the state at that point."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from roost.actors.errors import NotFound
from roost.actors.front import notices
from roost.actors.front.clock import now_ms
from roost.actors.front.feed import Feed
from roost.actors.front.notify import Renderer
from roost.actors.front.peer import Batch
from roost.actors.front.promise import Promise
from roost.actors.front.shelf import Shelf
from roost.actors.front.waiting import Waiter, turn_of
from roost.schemas.base import SessionId

if TYPE_CHECKING:
    from roost.actors.errors import DaemonError
    from roost.actors.front.fanout import Fanout
    from roost.actors.front.peer import Peer
    from roost.schemas.agent import AgentChanged, AgentStatus
    from roost.schemas.approval import PendingRow
    from roost.schemas.notifications import RunStatus
    from roost.schemas.session import (
        EventBatch,
        MessageChanged,
        SessionCleared,
        SessionRow,
        TurnRef,
        Watched,
    )
    from roost.schemas.turn import AcceptMessage

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who follows a session in a way of its own."""

    def advanced(self, batch: EventBatch) -> None:
        """Committed events have been passed on."""
        ...

    def resumed(self, *, lost: bool) -> None:
        """The stream goes on after it stood still; `lost` says that events which were passed on are gone."""
        ...

    def message_changed(self, change: MessageChanged) -> None:
        """A message was accepted, begun or has ended."""
        ...

    def dropped(self, reason: str) -> None:
        """The session is gone with its events."""
        ...

    def failed(self, error: DaemonError) -> None:
        """The session cannot be followed any more."""
        ...


class Stream:
    """One followed session. `position` is the last sequence that has been passed on, or that a page must reach."""

    def __init__(self, fanout: Fanout, session_id: str) -> None:
        self.fanout = fanout
        self.session_id = SessionId(session_id)
        self.opened: Promise[None] = Promise()
        self.holds = 0
        self.followed = False
        self.position = 0
        self.epoch = ""
        self.delivered = 0
        self.reported = 0
        self.agent_status: AgentStatus = "idle"
        self.queued = 0
        self.turn: TurnRef | None = None
        self.pending: dict[str, PendingRow] = {}
        self.feeds: dict[Peer, Feed] = {}
        self.waiters: dict[str, list[Waiter]] = {}
        self.watchers: list[Watcher] = []
        self.where: notices.Where
        self.row: SessionRow
        self.shelf = Shelf()
        self._live: dict[Feed, None] = {}
        self._behind: dict[Feed, None] = {}
        self._renderer: Renderer

    def begin(self, watched: Watched) -> None:
        """Take the state from which `Published` goes on; feeds that are behind it read what they miss."""
        row = watched.row
        first_time = not self.opened.done
        lost = bool(self.epoch) and self.epoch != watched.epoch
        self.row = row
        self.where = notices.Where(session_id=self.session_id, agent_id=row.spec.agent_id)
        self.epoch = watched.epoch
        self.delivered = row.delivered if lost else max(self.delivered, row.delivered)
        self.reported = self.delivered
        self.agent_status = notices.known_status(watched.agent_status)
        self.queued = row.queued
        self.turn = watched.turn
        self.pending = {pending.request_id: pending for pending in watched.pending}
        self._renderer = self._fresh_renderer()
        before, self.position = self.position, row.last_sequence
        if lost:
            self.shelf.clear()
        self.followed = True
        for feed in list(self.feeds.values()):
            self._resume(feed, before, lost=lost)
        if first_time:
            # Who waits attaches now: a feed that begins here has nothing to resume.
            self.opened.resolve(None)
            return
        for watcher in list(self.watchers):
            watcher.resumed(lost=lost)

    def lose(self) -> None:
        """The store is away: the stream stands still until `begin`."""
        self.followed = False

    def attach(self, peer: Peer, after: int) -> Feed:
        """Return the feed of a connection, which begins after this sequence if it is new."""
        feed = self.feeds.get(peer)
        if feed is None:
            feed = self.feeds[peer] = Feed(self, peer, min(after, self.position))
            self.left(feed)
            feed.catch_up()
        return feed

    def detach(self, feed: Feed) -> None:
        """End a feed."""
        self.delivered = max(self.delivered, feed.last_written())
        feed.close()
        self._live.pop(feed, None)
        self._caught_up(feed)
        if self.feeds.get(feed.peer) is feed:
            del self.feeds[feed.peer]

    def joined(self, feed: Feed) -> None:
        """Count a feed among those that get every event at once."""
        if not self._live:
            self._renderer = self._fresh_renderer()
        self._live[feed] = None
        self._caught_up(feed)

    def left(self, feed: Feed) -> None:
        """Count a feed among those that read the log."""
        if feed not in self._behind:
            self._behind[feed] = None
            self.fanout.behind += 1

    def end_if_closed(self, feed: Feed) -> None:
        """End a feed that has got everything of a closed session."""
        if self.row.state == "closed" and not feed.closed:
            self.fanout.end_feed(feed)

    def written(self) -> int:
        """Return the last sequence written to any client."""
        for feed in self.feeds.values():
            self.delivered = max(self.delivered, feed.written())
        return self.delivered

    def await_progress(self) -> None:
        """Report what is written once any client takes more."""
        for feed in self.feeds.values():
            feed.await_progress()

    def wait_message(self, message: AcceptMessage) -> Waiter:
        """Return what is told when the message has ended."""
        waiter = Waiter(message)
        self.waiters.setdefault(message.message_id, []).append(waiter)
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """Drop a waiter."""
        waiting = self.waiters.get(waiter.message.message_id, [])
        if waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self.waiters[waiter.message.message_id]

    def publish(self, batch: EventBatch) -> list[bytes]:
        """Pass on committed events; return their lines, if anybody gets them."""
        lines = self._publish(batch)
        for watcher in list(self.watchers):
            watcher.advanced(batch)
        return lines

    def _publish(self, batch: EventBatch) -> list[bytes]:
        last = batch.first + len(batch.bodies) - 1
        if last <= self.position:
            return []
        before = self.position
        if batch.first > before + 1:
            _log.warning("%s jumps from %d to %d", self.session_id, before, batch.first)
            self.position = last
            for feed in list(self._live):
                self._drop_from_tail(feed, before)
            return []
        self.position = last
        if not self._live and not self.fanout.observers:
            self._push_on()
            return []
        lines: list[bytes] = []
        sequence = before + 1
        for body in batch.bodies[sequence - batch.first :]:
            lines.extend(self.render(self._renderer, sequence, body))
            sequence += 1
        self._tell(Batch(lines, session_id=self.session_id, first=before + 1), before)
        self._push_on()
        return lines

    def render(self, renderer: Renderer, sequence: int, body: bytes) -> list[bytes]:
        """Return the lines of an event; of one that cannot be read, a gap."""
        try:
            return renderer.render(sequence, body)
        except msgspec.MsgspecError as error:
            _log.error("event %d of %s cannot be read: %s", sequence, self.session_id, error)
            return [self.gap("unreadable", sequence, sequence)]

    def message_changed(self, change: MessageChanged) -> None:
        """Follow a message; `ended` answers those who wait for it."""
        for watcher in list(self.watchers):
            watcher.message_changed(change)
        match change.state:
            case "accepted":
                self.queued += 1
                if not change.hidden and self.feeds:
                    self.notice(
                        notices.message_accepted(self.where, notices.new_event_id(), change)
                    )
            case "begun":
                self.queued = max(0, self.queued - 1)
                turn = turn_of(change)
                self._renderer.begin(turn)
                self.agent_status = "running"
                if self.turn is None or self.turn.turn_id != turn.turn_id:
                    self.turn = turn
            case "ended":
                if not change.turn_id:
                    self.queued = max(0, self.queued - 1)
                elif self.turn is not None and self.turn.turn_id == change.turn_id:
                    self.turn = None
                    self.agent_status = "idle"
                    self.pending.clear()
                for waiter in self.waiters.pop(change.message_id, []):
                    waiter.ended.resolve(change)

    def pending_changed(self, row: PendingRow) -> None:
        """Follow what waits for a person; questions have no stored event and are told from here."""
        if row.state == "open":
            self.pending[row.request_id] = row
        else:
            self.pending.pop(row.request_id, None)
        self._renderer.pending[row.request_id] = row
        if row.kind == "approval" or not self.feeds:
            return
        if row.state == "open":
            self.notice(notices.pending_request(self.where, row, redelivered=False))
        else:
            self.notice(notices.question_settled(self.where, notices.new_event_id(), now_ms(), row))
        if self.turn is not None:
            run: RunStatus = "blocked" if self.pending else "running"
            self.notice(self._status_line("running", run, turn_id=self.turn.turn_id))

    def agent_changed(self, change: AgentChanged) -> None:
        """Follow the agent. That it is idle again is told by the end of a turn, and by the next attach."""
        self.agent_status = change.status
        if change.status != "idle" and self.feeds:
            run = notices.RUN_STATUS[change.status]
            self.notice(self._status_line(change.status, run, message=change.message))

    def session_changed(self, row: SessionRow) -> None:
        """Follow the session; a closed one lets go of every feed that has got all of it."""
        self.row = row
        if row.state == "closed":
            for feed in list(self._live):
                self.end_if_closed(feed)
            for feed in list(self.feeds.values()):
                feed.catch_up()

    def session_cleared(self, cleared: SessionCleared) -> None:
        """The conversation begins anew: every client is told, those behind the tail when they come to that place."""
        after, at = cleared.cleared_after, cleared.cleared_at
        self.row = msgspec.structs.replace(self.row, cleared_after=after, cleared_at=at)
        for feed in list(self.feeds.values()):
            if not feed.live:
                feed.catch_up()
            elif feed.peer.has_room:
                feed.tell_clear()
            else:
                self._drop_from_tail(feed, self.position)

    def cleared_line(self) -> bytes:
        """Return the line that tells of the last clear; who gets it twice knows it by its id."""
        return notices.history_cleared(self.where, self.row.cleared_at)

    def page_end(self, after: int) -> int:
        """Return up to where a page behind this sequence may go: it ends where a clear is to be told."""
        cleared = self.row.cleared_after
        return cleared if after < cleared < self.position else self.position

    def notice(self, line: bytes) -> None:
        """Pass on a line without a sequence."""
        batch = Batch((line,))
        for feed in self.feeds.values():
            feed.notice(batch)

    def gap(self, reason: str, first: int, last: int) -> bytes:
        """Return the marker of lost events."""
        return notices.event_gap(
            self.where,
            notices.new_event_id(),
            now_ms(),
            reason=reason,
            first=first,
            last=last,
            available=last + 1,
        )

    def begin_anew(self, peer: Peer) -> int:
        """Tell a connection that what it has may not be in the log; return after which sequence it goes on.

        That is the first event that is kept: which of those that it has are still there nobody knows.
        """
        after = self.row.first_sequence - 1
        peer.tell(Batch((self.gap("epoch", after + 1, after),)))
        return after

    def present_state(self, *, attach: bool) -> list[bytes]:
        """Return the present status, and all that waits for a person; who only comes back is not told of idleness."""
        waiting = [
            notices.pending_request(self.where, row, redelivered=True)
            for row in self.pending.values()
        ]
        if attach or self.turn is not None or self.queued:
            waiting.insert(0, self._present_status())
        return waiting

    def _present_status(self) -> bytes:
        if self.turn is not None:
            run: RunStatus = "blocked" if self.pending else "running"
            return self._status_line("running", run, turn_id=self.turn.turn_id, derived=True)
        if self.queued:
            return self._status_line("running", "pending", derived=True)
        status: AgentStatus = "idle" if self.agent_status == "running" else self.agent_status
        return self._status_line(status, notices.RUN_STATUS[status], derived=True)

    def _status_line(
        self,
        status: AgentStatus,
        run_status: RunStatus,
        *,
        turn_id: str = "",
        message: str = "",
        derived: bool = False,
    ) -> bytes:
        return notices.agent_status(
            self.where,
            notices.new_event_id(),
            now_ms(),
            status,
            run_status,
            turn_id=turn_id,
            message=message,
            derived=derived,
        )

    def _fresh_renderer(self) -> Renderer:
        renderer = Renderer(self.where)
        renderer.begin_with(self.turn, self.pending)
        return renderer

    def _tell(self, batch: Batch, before: int) -> None:
        leaving: list[Feed] = []
        for feed in self._live:
            peer = feed.peer
            if peer.has_room:
                peer.tell(batch)
                feed.position = self.position
            else:
                leaving.append(feed)
        for feed in leaving:
            self._drop_from_tail(feed, before)
        self.fanout.mark_delivered(self)

    def _drop_from_tail(self, feed: Feed, position: int) -> None:
        del self._live[feed]
        feed.leave_tail(position)

    def _caught_up(self, feed: Feed) -> None:
        if feed in self._behind:
            del self._behind[feed]
            self.fanout.behind -= 1
            if not self._behind:
                self.shelf.tidy()

    def _push_on(self) -> None:
        """A feed whose page failed waits for nothing but the next commit."""
        if self._behind:
            for feed in list(self._behind):
                feed.catch_up()

    def _resume(self, feed: Feed, before: int, *, lost: bool) -> None:
        was_live = self._live.pop(feed, 0) is None
        if lost:
            feed.position = self.begin_anew(feed.peer)
        elif was_live:
            feed.leave_tail(before, missed_notices=True)
            return
        feed.live = False
        self.left(feed)
        feed.catch_up()

    def dropped(self, reason: str) -> None:
        """The session is gone: whoever follows it learns of that, or is let go."""
        for watcher in list(self.watchers):
            watcher.dropped(reason)
        self.fail(NotFound("SESSION_NOT_FOUND", f"session not found: {self.session_id}"))

    def fail(self, error: DaemonError) -> None:
        """End everything that follows this session, because it cannot be followed any more."""
        for watcher in list(self.watchers):
            watcher.failed(error)
        if not self.opened.done:
            self.opened.fail(error)
        for waiting in list(self.waiters.values()):
            for waiter in waiting:
                waiter.ended.fail(error)
        self.waiters.clear()
        for feed in list(self.feeds.values()):
            self.fanout.end_feed(feed)
