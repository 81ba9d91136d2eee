"""From the store to the clients: one subscription per session that anybody follows, whatever the number of clients."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front.clock import now_ms
from roost.actors.front.notices import RUN_STATUS, STATUS_HEAD, Where, agent_status, new_event_id
from roost.actors.front.notify import Renderer
from roost.actors.front.peer import Batch
from roost.actors.front.stream import Stream
from roost.actors.front.waiting import Waiter, ended_of
from roost.schemas.agent import AgentChanged
from roost.schemas.session import (
    Delivered,
    EventBatch,
    MessageChanged,
    PendingChanged,
    SessionChanged,
    SessionCleared,
    SessionDropped,
    Unwatch,
    Watch,
    WatchAll,
    Watched,
)
from roost.schemas.turn import Accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.front.feed import Feed
    from roost.actors.front.gateway import Gateway
    from roost.actors.front.peer import Peer
    from roost.actors.front.promise import Promise
    from roost.actors.front.timers import Timers
    from roost.schemas.published import Published, PublishedItem

REPORT_SECONDS = 1.0
# What all feeds behind the tail may have queued together, and what each may have at least.
BEHIND_BYTES = 16 * 1024 * 1024
LEAST_BYTES = 16 * 1024

_log = logging.getLogger(__name__)


class Fanout:
    """The followed sessions, and who observes the status of all others."""

    def __init__(
        self, store: Gateway, timers: Timers, *, page_events: int, queue_bytes: int
    ) -> None:
        self.store = store
        self.page_events = page_events
        self.observers: dict[Peer, None] = {}
        self.behind = 0
        self.on_feed_end: Callable[[Feed], None] = lambda _: None
        self.queue_bytes = queue_bytes
        self._timers = timers
        self._streams: dict[str, Stream] = {}
        self._undelivered: dict[str, Stream] = {}
        self._reporting = False

    @property
    def allowance(self) -> int:
        """How many bytes may wait for a client before the next page of the log is queued for it."""
        return min(self.queue_bytes, max(LEAST_BYTES, BEHIND_BYTES // max(1, self.behind)))

    @property
    def followed(self) -> int:
        """How many sessions are followed."""
        return len(self._streams)

    def hold(self, session_id: str) -> Stream:
        """Follow a session, and go on until `release`; its `opened` promises the state, or fails."""
        stream = self._streams.get(session_id)
        if stream is None:
            stream = self._streams[session_id] = Stream(self, session_id)
            self._watch(stream)
        stream.holds += 1
        return stream

    def find(self, session_id: str) -> Stream | None:
        """Return a session that is followed already."""
        stream = self._streams.get(session_id)
        return stream if stream is not None and stream.opened.done else None

    def session_of(self, turn_id: str) -> str:
        """Return the followed session in which this turn is open, or nothing."""
        for stream in self._streams.values():
            if stream.turn is not None and stream.turn.turn_id == turn_id:
                return stream.session_id
        return ""

    def release(self, stream: Stream) -> None:
        """Undo one `hold`."""
        stream.holds -= 1
        self._drop_if_idle(stream)

    def end_feed(self, feed: Feed) -> None:
        """End a feed with all of its attachments."""
        stream = feed.stream
        stream.detach(feed)
        self.on_feed_end(feed)
        self._report(stream)
        self._drop_if_idle(stream)

    def observe(self, peer: Peer) -> None:
        """Send a connection the status of every session's agent."""
        if not self.observers:
            self.store.cast(WatchAll(wanted=True))
        self.observers[peer] = None

    def leave(self, peer: Peer) -> None:
        """Forget an observer."""
        if peer in self.observers:
            del self.observers[peer]
            if not self.observers:
                self.store.cast(WatchAll(wanted=False))

    def take(self, published: Published) -> None:
        """Handle what one commit has caused."""
        for item in published.items:
            try:
                self._take(item)
            except Exception:  # noqa: BLE001
                _log.exception("a published %s could not be handled", type(item).__name__)

    def unlink(self) -> None:
        """The link to the store is gone: every stream stands still."""
        for stream in self._streams.values():
            stream.lose()

    def relink(self) -> None:
        """There is a new link to the store: follow everything again, from where each stream stands."""
        if self.observers:
            self.store.cast(WatchAll(wanted=True))
        for stream in list(self._streams.values()):
            # A session that was being opened is in the calls that wait for the link.
            if stream.opened.done:
                self._watch(stream)

    def mark_delivered(self, stream: Stream) -> None:
        """Tell the store within a second what has been written of this session."""
        self._undelivered[stream.session_id] = stream
        if not self._reporting:
            self._reporting = True
            self._timers.after(REPORT_SECONDS, self._report_all)

    def report_now(self) -> None:
        """Tell the store what has been written so far; where nothing has, look again when something is."""
        sequences: dict[str, int] = {}
        undelivered, self._undelivered = self._undelivered, {}
        for stream in undelivered.values():
            before = stream.reported
            stream.reported = stream.written()
            if stream.reported > before:
                sequences[stream.session_id] = stream.reported
            if stream.reported < stream.position and stream.feeds:
                if stream.reported > before:
                    self._undelivered[stream.session_id] = stream
                else:
                    stream.await_progress()
        if sequences:
            self.store.cast(Delivered(sequences=sequences))

    def _report_all(self) -> None:
        self._reporting = False
        self.report_now()
        if self._undelivered:
            self._reporting = True
            self._timers.after(REPORT_SECONDS, self._report_all)

    def _report(self, stream: Stream) -> None:
        delivered = stream.written()
        if delivered > stream.reported:
            stream.reported = delivered
            self.store.cast(Delivered(sequences={stream.session_id: delivered}))

    def _watch(self, stream: Stream) -> None:
        answer = self.store.ask(Watch(session_id=stream.session_id), Watched)
        answer.then(lambda: self._watched(stream, answer))

    def _watched(self, stream: Stream, answer: Promise[Watched]) -> None:
        if self._streams.get(stream.session_id) is not stream:
            if stream.session_id not in self._streams:
                # Nobody waited for it to open.
                self.store.cast(Unwatch(session_id=stream.session_id))
            return
        try:
            watched = answer.result()
        except DaemonError as error:
            del self._streams[stream.session_id]
            stream.fail(error)
            return
        again = stream.opened.done
        stream.begin(watched)
        if again:
            for waiting in list(stream.waiters.values()):
                for waiter in waiting:
                    self._ask_again(stream, waiter)

    def _ask_again(self, stream: Stream, waiter: Waiter) -> None:
        """The end of a message may have been published while there was no link."""
        answer = self.store.ask(waiter.message, Accepted)

        def take() -> None:
            try:
                accepted = answer.result()
            except DaemonError as error:
                waiter.ended.fail(error)
                return
            if accepted.state == "ended":
                stream.forget(waiter)
                agent_id = stream.row.spec.agent_id
                waiter.ended.resolve(ended_of(stream.session_id, agent_id, accepted))

        answer.then(take)

    def _drop_if_idle(self, stream: Stream) -> None:
        if stream.holds or stream.feeds or self._streams.get(stream.session_id) is not stream:
            return
        del self._streams[stream.session_id]
        self._undelivered.pop(stream.session_id, None)
        if stream.opened.done:
            self.store.cast(Unwatch(session_id=stream.session_id))

    def _take(self, item: PublishedItem) -> None:
        if isinstance(item, AgentChanged):
            self._agent_changed(item)
            return
        session_id = (
            item.row.spec.session_id if isinstance(item, SessionChanged) else item.session_id
        )
        stream = self._streams.get(session_id)
        if stream is None or not stream.followed:
            if isinstance(item, EventBatch) and self.observers:
                self._observe_batch(item)
            return
        match item:
            case EventBatch():
                self._show_status(stream.publish(item), stream)
            case MessageChanged():
                stream.message_changed(item)
            case PendingChanged(row=row):
                stream.pending_changed(row)
            case SessionChanged(row=row):
                stream.session_changed(row)
            case SessionCleared():
                stream.session_cleared(item)
            case SessionDropped(reason=reason):
                stream.dropped(reason)

    def _agent_changed(self, change: AgentChanged) -> None:
        told = set(change.sessions)
        for stream in list(self._streams.values()):
            if not stream.followed:
                continue
            if stream.session_id in told or stream.row.spec.agent_id == change.agent_id:
                stream.agent_changed(change)
        if self.observers and change.status != "idle":
            for session_id in change.sessions:
                line = agent_status(
                    Where(session_id=session_id, agent_id=change.agent_id),
                    new_event_id(),
                    now_ms(),
                    change.status,
                    RUN_STATUS[change.status],
                    message=change.message,
                )
                self._show_status([line], self._streams.get(session_id))

    def _observe_batch(self, batch: EventBatch) -> None:
        renderer = Renderer(Where(session_id=batch.session_id, agent_id=batch.agent_id))
        lines: list[bytes] = []
        for at, body in enumerate(batch.bodies):
            lines.extend(renderer.render(batch.first + at, body))
        self._show_status(lines, None)

    def _show_status(self, lines: Sequence[bytes], stream: Stream | None) -> None:
        if not self.observers or not lines:
            return
        shown = [line for line in lines if line.startswith(STATUS_HEAD)]
        if not shown:
            return
        batch = Batch(shown)
        for peer in self.observers:
            if (stream is None or peer not in stream.feeds) and peer.has_room:
                peer.tell(batch)
