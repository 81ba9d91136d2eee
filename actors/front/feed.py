"""One connection's way through the events of one session: pages from the log first, then the live tail.

A feed catches up page by page, one page in flight, and joins the tail in the very pass in which its position is that
of the tail. When its connection has no room it leaves the tail and comes back the same way. However many names a
connection attaches, it has one feed, so each event is sent to it once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front.notify import Renderer
from roost.actors.front.peer import Batch
from roost.actors.front.promise import Promise
from roost.schemas.session import Page, ReadPage

if TYPE_CHECKING:
    from roost.actors.front.attachments import Attachment
    from roost.actors.front.peer import Peer
    from roost.actors.front.stream import Stream

_log = logging.getLogger(__name__)


class Feed:
    """A connection that is attached to a session. `position` is the last sequence queued for it."""

    def __init__(self, stream: Stream, peer: Peer, after: int) -> None:
        self.stream = stream
        self.peer = peer
        self.position = after
        self.live = False
        self.closed = False
        self.attachments: dict[str, Attachment] = {}
        self._reading = False
        self._blocked = False
        self._renderer: Renderer | None = None
        self._missed_notices = True
        self._was_live = False
        self._joined: Promise[None] = Promise()
        self._passed: list[tuple[int, Promise[None]]] = []
        self._after = after
        self._written = after
        self._mark: tuple[int, int] | None = None

    def joined(self) -> Promise[None]:
        """Promise the pass in which the feed is at the live tail; kept at once if it is."""
        if self.live or self.closed:
            done: Promise[None] = Promise()
            done.resolve(None)
            return done
        return self._joined

    def passed(self, sequence: int) -> Promise[None]:
        """Promise that everything up to this sequence is queued, or never will be."""
        promise: Promise[None] = Promise()
        if self.live or self.closed or self.position >= sequence:
            promise.resolve(None)
        else:
            self._passed.append((sequence, promise))
        return promise

    def written(self) -> int:
        """Return the last sequence known to have been taken by the transport; it may be low, never high.

        0 while there is none: a cursor that the client has named says nothing of what was written to it.
        """
        peer = self.peer
        if self._mark is not None and self._mark[0] <= peer.sent_total:
            self._written, self._mark = self._mark[1], None
        if not peer.unsent and not peer.lost:
            self._written, self._mark = self.position, None
        elif self._mark is None and not peer.closed:
            self._mark = (peer.queued_total, self.position)
        return self._written if self._written > self._after else 0

    def last_written(self) -> int:
        """Return the last sequence that the transport has taken, exactly; it costs a look at all that is queued.

        0 while there is none, as for `written`.
        """
        first = self.peer.first_unwritten(self.stream.session_id)
        written = first - 1 if first else self.position
        return written if written > self._after else 0

    def notice(self, batch: Batch) -> None:
        """Pass on something without a sequence; a feed behind the tail gets the state instead when it joins."""
        if self.live and self.peer.has_room:
            self.peer.tell(batch)
        else:
            self._missed_notices = True

    def leave_tail(self, position: int, *, missed_notices: bool = False) -> None:
        """Go on from the log after this position, once there is room."""
        self.live = False
        self._missed_notices = self._missed_notices or missed_notices
        self.position = position
        self._joined = Promise()
        self._wait_for_room()

    def catch_up(self) -> None:
        """Read the next page, unless one is on its way; join the tail if nothing is left to read."""
        if self.closed or self.live or self._reading or not self.stream.followed:
            return
        if self.position >= self.stream.position:
            self._join()
            return
        if not self.peer.has_room:
            self._wait_for_room()
            return
        self._reading = True
        stream = self.stream
        request = ReadPage(
            session_id=stream.session_id,
            after=self.position,
            upto=stream.position,
            max_events=stream.fanout.page_events,
            skip_damaged=True,
        )
        page = stream.fanout.store.ask_bulky(request, Page)
        page.then(lambda: self._take(page))

    def close(self) -> None:
        """Follow no longer; what waits for this feed waits no more."""
        self.closed = True
        self.live = False
        self._joined.resolve(None)
        self._keep_promises()

    def _wait_for_room(self) -> None:
        """Go on when there is room; every commit comes by here, and the connection is to call once."""
        if not self._blocked:
            self._blocked = True
            self.peer.when_room(self._unblock)

    def _unblock(self) -> None:
        self._blocked = False
        self.catch_up()

    def _take(self, promise: Promise[Page]) -> None:
        self._reading = False
        if self.closed:
            return
        try:
            page = promise.result()
        except DaemonError as error:
            if error.code == "SESSION_NOT_FOUND":
                # It has been removed whole.
                self.stream.fail(error)
                return
            _log.warning("no page of %s: %s", self.stream.session_id, error)
            # The next commit, or the next link to the store, tries again.
            return
        first = self.position + 1
        lines = self._lines(page)
        if lines:
            self.peer.tell(Batch(lines, session_id=self.stream.session_id, first=first))
            self.stream.fanout.mark_delivered(self.stream)
        self._keep_promises()
        self.catch_up()

    def _lines(self, page: Page) -> list[bytes]:
        stream = self.stream
        lines: list[bytes] = []
        if page.lost_upto > self.position:
            lines.append(stream.gap("retention", self.position + 1, page.lost_upto))
            self.position = page.lost_upto
        if page.damaged_upto > self.position:
            lines.append(stream.gap("damaged", self.position + 1, page.damaged_upto))
            self.position = page.damaged_upto
        renderer = self._renderer
        if renderer is None:
            renderer = self._renderer = Renderer(stream.where)
            renderer.pending = dict(stream.pending)
        renderer.turns.update((turn.turn_id, turn) for turn in page.turns)
        sequence = page.first
        for body in page.bodies:
            if sequence > self.position:
                lines.extend(stream.render(renderer, sequence, body))
                self.position = sequence
            sequence += 1
        if not page.bodies and not page.damaged_upto and self.position < stream.position:
            lines.append(stream.gap("unavailable", self.position + 1, stream.position))
            self.position = stream.position
        return lines

    def _join(self) -> None:
        self.position = self.stream.position
        self.live = True
        self._renderer = None
        self.stream.joined(self)
        if self._missed_notices:
            self._missed_notices = False
            lines = self.stream.present_state(attach=not self._was_live)
            if lines:
                self.peer.tell(Batch(lines))
        self._was_live = True
        self._joined.resolve(None)
        self._keep_promises()
        self.stream.end_if_closed(self)

    def _keep_promises(self) -> None:
        if not self._passed:
            return
        waiting, self._passed = self._passed, []
        for sequence, promise in waiting:
            if self.live or self.closed or self.position >= sequence:
                promise.resolve(None)
            else:
                self._passed.append((sequence, promise))
