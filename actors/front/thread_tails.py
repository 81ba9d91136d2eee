"""One thread as its clients follow it: the fold of its open turn at the live end, and who gets what happens there.

A tail stands on a followed session (`Stream`). It folds each event once; its notifications go to all feeds that are at its
position. A feed without room leaves with a copy of the fold, reads the log from where it is and comes back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from roost.actors.errors import DaemonError
from roost.actors.front.promise import Promise, start
from roost.actors.front.thread_feeds import ThreadFeed
from roost.actors.front.thread_notes import Notes
from roost.actors.front.thread_pages import decode_seen, read_open_turn
from roost.actors.front.thread_shapes import thread_of
from roost.actors.threads.fold import Fold
from roost.actors.threads.items import request_id
from roost.schemas.session import Page, ReadPage
from roost.schemas.thread_events import SeenClosed
from roost.schemas.thread_notifications import (
    ApprovalRequestParams,
    ThreadClosed,
    ThreadStarted,
    ThreadStatusChanged,
    TurnCompleted,
)
from roost.schemas.thread_results import AppTurn, InputText

if TYPE_CHECKING:
    from roost.actors.front.fanout import Fanout
    from roost.actors.front.stream import Stream
    from roost.actors.front.thread_feeds import ThreadClient
    from roost.schemas.session import EventBatch, MessageChanged, SessionRow
    from roost.schemas.thread_notifications import Told

PAGE_EVENTS = 512
PAGE_BYTES = 262_144
RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ThreadTail:
    """The live end of a thread. It exists as long as somebody holds it or has a feed at it."""

    def __init__(self, threads: Threads, stream: Stream) -> None:
        self.threads = threads
        self.stream = stream
        self.thread_id: str = stream.session_id
        self.ready: Promise[None] = Promise()
        self.closed: Promise[None] = Promise()
        self.position = 0
        self.holds = 0
        self.fold = Fold(stream.session_id)
        self.feeds: dict[ThreadClient, ThreadFeed] = {}
        self._live = False
        self._reading = False
        self._gone = False
        self._based = False

    def begin(self) -> None:
        """Find the live end."""
        start(self._open(), self._opened)

    def feed(self, client: ThreadClient) -> ThreadFeed:
        """Return a client's feed; a new one begins at the live end and is held back until it is let go."""
        found = self.feeds.get(client)
        if found is None:
            found = self.feeds[client] = client.feeds[self.thread_id] = ThreadFeed(self, client)
        return found

    def drop_feed(self, feed: ThreadFeed) -> None:
        """End a feed."""
        feed.closed = True
        if self.feeds.get(feed.client) is feed:
            del self.feeds[feed.client]
            feed.client.feeds.pop(self.thread_id, None)
        self.threads.drop_if_idle(self)

    def is_open(self, request: str) -> bool:
        """Return whether a request still waits for a decision."""
        rows = self.stream.pending.values()
        return any(row.state == "open" and request_id(row.event_id) == request for row in rows)

    def dated(self, told: list[Told]) -> list[Told]:
        """Return the same with the time up to which what still waits for a decision does so."""
        if not self.threads.wait_ms:
            return told
        return [self._dated(o) if isinstance(o, ApprovalRequestParams) else o for o in told]

    def _dated(self, asked: ApprovalRequestParams) -> ApprovalRequestParams:
        for row in self.stream.pending.values():
            if row.state == "open" and request_id(row.event_id) == asked.request_id:
                return replace(asked, expires_at_ms=row.opened_at + self.threads.wait_ms)
        return asked

    def advanced(self, batch: EventBatch) -> None:
        """The stream has passed on committed events."""
        if not self._live:
            self._catch_up()
            return
        last = batch.first + len(batch.bodies) - 1
        if last <= self.position:
            return
        if batch.first > self.position + 1:
            self._live = False
            self._catch_up()
            return
        self._take(self.position + 1, batch.bodies[self.position + 1 - batch.first :])

    def resumed(self, *, lost: bool) -> None:
        """The stream goes on after its link was replaced; events that are gone are gone here too."""
        self._live = False
        if lost and self.ready.done:
            self._gone = True
            for feed in list(self.feeds.values()):
                feed.client.warn("event_stream", "stored events are lost; read again", self)
                self.drop_feed(feed)
            self.threads.forget(self)
            return
        self._catch_up()

    def message_changed(self, change: MessageChanged) -> None:
        """A turn that was promised and never began has no event; clients are told of its end all the same."""
        if change.state != "ended" or change.turn_id or not change.planned or change.steering:
            return
        said = (InputText(text=change.text),) if change.text else ()
        turn = AppTurn(
            id=change.planned,
            thread_id=self.thread_id,
            run_id=change.planned,
            status="interrupted",
            input=said,
        )
        told: list[Told] = []
        if self.ready.done and self.fold.turn is None:
            told.append(ThreadStatusChanged(thread_id=self.thread_id, status="idle"))
        told.append(TurnCompleted(thread_id=self.thread_id, turn=turn))
        notes = Notes(told, self.is_open)
        for feed in list(self.feeds.values()):
            feed.notice(notes)

    def dropped(self, reason: str) -> None:
        """The session is gone: its clients are told, and let go."""
        self._gone = True
        # Who waits for it to open waits for nothing.
        self.ready.fail(DaemonError("SESSION_NOT_FOUND", f"session {self.thread_id} is gone"))
        self._tell([ThreadClosed(thread_id=self.thread_id, reason=reason or UNSET)])
        self.closed.resolve(None)
        for feed in list(self.feeds.values()):
            self.drop_feed(feed)
        self.threads.forget(self)

    def failed(self, error: DaemonError) -> None:
        """The session cannot be followed any more."""
        self._gone = True
        self.ready.fail(error)
        self.closed.fail(error)
        for feed in list(self.feeds.values()):
            self.drop_feed(feed)
        self.threads.forget(self)

    async def _open(self) -> None:
        await self.stream.opened
        store = self.threads.fanout.store
        self.fold, self.position = await read_open_turn(store, self.thread_id)
        self._based = True

    def _opened(self, outcome: DaemonError | None) -> None:
        if self._gone:
            return
        if isinstance(outcome, DaemonError):
            self.failed(outcome)
            return
        if self.stream.row.state == "closed":
            self.closed.resolve(None)
        self._catch_up()

    def _catch_up(self) -> None:
        """Read what is between here and the stream's position; then everything comes by itself."""
        stream = self.stream
        if self._gone or self._reading or not self._based or not stream.followed:
            return
        if self.position >= stream.position:
            self._live = True
            self.ready.resolve(None)
            return
        self._reading = True
        request = ReadPage(
            session_id=stream.session_id,
            after=self.position,
            upto=stream.position,
            max_events=PAGE_EVENTS,
            max_bytes=PAGE_BYTES,
            skip_damaged=True,
        )
        answer = self.threads.fanout.store.ask_bulky(request, Page)
        answer.then(lambda: self._take_page(answer))

    def _take_page(self, answer: Promise[Page]) -> None:
        self._reading = False
        if self._gone:
            return
        try:
            page = answer.result()
        except DaemonError as error:
            if error.code == "SESSION_NOT_FOUND":
                self.failed(error)
                return
            # The next commit, or the next link to the store, tries again.
            _log.warning("no page of %s: %s", self.thread_id, error)
            if not self.ready.done:
                self.failed(error)
            return
        if page.bodies:
            self._take(page.first, page.bodies)
        else:
            self.position = max(self.position + 1, page.damaged_upto, page.lost_upto)
        self._catch_up()

    def _take(self, first: int, bodies: list[bytes] | tuple[bytes, ...]) -> None:
        leaving = [f for f in self.feeds.values() if f.live and not f.has_room]
        for feed in leaving:
            feed.leave(self.fold.fork())
        told: list[Told] = []
        for sequence, body in enumerate(bodies, first):
            event = decode_seen(self.thread_id, sequence, body)
            if isinstance(event, SeenClosed):
                self._pass_on(told, sequence - 1)
                told = []
                self._hold_archiving()
            told += self.fold.take(sequence, event)
            if isinstance(event, SeenClosed):
                self._pass_on(told, sequence)
                told = []
                self.closed.resolve(None)
        self._pass_on(told, first + len(bodies) - 1)
        for feed in leaving:
            feed.catch_up()

    def _hold_archiving(self) -> None:
        """Who has asked for the thread's end learns of it by the answer first."""
        for feed in self.feeds.values():
            if feed.live and feed.archiving:
                feed.hold_for_end()

    def _pass_on(self, told: list[Told], position: int) -> None:
        self.position = position
        self._tell(told)
        for feed in list(self.feeds.values()):
            if feed.live:
                feed.position = position
            elif feed.waits_for_tail:
                feed.catch_up()

    def _tell(self, told: list[Told]) -> None:
        if not told:
            return
        told = self.dated(told)
        notes = Notes(told, self.is_open)
        for feed in list(self.feeds.values()):
            if feed.live:
                feed.tell(notes)
            else:
                feed.keep(told, self.position)


class Threads:
    """The threads that somebody follows."""

    def __init__(self, fanout: Fanout) -> None:
        self.fanout = fanout
        self.wait_ms = 0
        """How long a call waits for a decision; 0: as long as it takes."""
        self.clients: dict[ThreadClient, None] = {}
        self._tails: dict[str, ThreadTail] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def hold(self, thread_id: str) -> ThreadTail:
        """Follow a thread until `release`; its `ready` promises the live end, or fails."""
        tail = self._tails.get(thread_id)
        if tail is None:
            stream = self.fanout.hold(thread_id)
            tail = self._tails[thread_id] = ThreadTail(self, stream)
            stream.watchers.append(tail)
            tail.holds += 1
            tail.begin()
        else:
            tail.holds += 1
        return tail

    def find(self, thread_id: str) -> ThreadTail | None:
        """Return a thread that is followed and ready."""
        tail = self._tails.get(thread_id)
        return tail if tail is not None and tail.ready.done else None

    def release(self, tail: ThreadTail) -> None:
        """Undo one `hold`."""
        tail.holds -= 1
        self.drop_if_idle(tail)

    def drop_if_idle(self, tail: ThreadTail) -> None:
        """Follow a thread no longer that nobody has any use for."""
        if not tail.holds and not tail.feeds and self._tails.get(tail.thread_id) is tail:
            self.forget(tail)

    def forget(self, tail: ThreadTail) -> None:
        """Follow a thread no longer."""
        if self._tails.get(tail.thread_id) is tail:
            del self._tails[tail.thread_id]
        if tail in tail.stream.watchers:
            tail.stream.watchers.remove(tail)
            self.fanout.release(tail.stream)

    def join(self, client: ThreadClient) -> None:
        """Know a connection that speaks the thread protocol."""
        self.clients[client] = None

    def announce(self, row: SessionRow, by: ThreadClient | None = None) -> None:
        """Tell all clients but one of a new thread; who does not read what it has got finds it in the list."""
        started = ThreadStarted(thread=thread_of(row), sequence=row.last_sequence)
        notes = Notes([started], lambda _: False)
        for client in self.clients:
            if client is not by and client.peer.has_room:
                client.pass_on(notes)

    def leave(self, client: ThreadClient) -> None:
        """End everything that a connection follows."""
        self.clients.pop(client, None)
        for feed in list(client.feeds.values()):
            feed.tail.drop_feed(feed)
