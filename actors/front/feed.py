"""One connection's way through the events of one session: pages from the log first, then the live tail.

A feed catches up page by page, one page in flight, and joins the tail in the very pass in which its position is that
of the tail. When its connection has no room it leaves the tail and comes back the same way. How much it may queue of
pages depends on how many feeds there are behind the tail. However many names a connection attaches, it has one feed, so
each event is sent to it once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front.peer import Batch
from roost.actors.front.promise import Promise

if TYPE_CHECKING:
    from roost.actors.front.attachments import Attachment
    from roost.actors.front.notify import Renderer
    from roost.actors.front.peer import Peer
    from roost.actors.front.shelf import SharedPage
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
        self._awaiting_clear: list[Promise[None]] = []
        # Who begins right behind a clear may have missed it.
        row = stream.row
        self._cleared_at = row.cleared_at if after > row.cleared_after else 0
        self._mark: tuple[int, int] | None = None
        self._awaited = False

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

    def await_progress(self) -> None:
        """Report what is written once the transport takes more."""
        if self.peer.unsent and not self._awaited:
            self._awaited = True
            self.peer.when_room(self._progress, self.peer.unsent - 1)

    def _progress(self) -> None:
        self._awaited = False
        if not self.closed:
            self.stream.fanout.mark_delivered(self.stream)

    def notice(self, batch: Batch) -> None:
        """Pass on something without a sequence; a feed behind the tail gets the state instead when it joins."""
        if self.live and self.peer.has_room:
            self.peer.tell(batch)
        else:
            self._missed_notices = True

    def told_clear(self, cleared_at: int) -> Promise[None]:
        """Promise that the clear of this time, or a later one, is queued, or never will be."""
        promise: Promise[None] = Promise()
        if self.closed or self._cleared_at >= cleared_at:
            promise.resolve(None)
        else:
            self._awaiting_clear.append(promise)
        return promise

    def tell_clear(self) -> None:
        """Say that the conversation begins anew, once, where that stands between the events."""
        row = self.stream.row
        if self._cleared_at != row.cleared_at and self.position >= row.cleared_after:
            self._cleared_at = row.cleared_at
            self.peer.tell(Batch((self.stream.cleared_line(),)))
            self._answer_clears()

    def _answer_clears(self) -> None:
        waiting, self._awaiting_clear = self._awaiting_clear, []
        for promise in waiting:
            promise.resolve(None)

    def leave_tail(self, position: int, *, missed_notices: bool = False) -> None:
        """Go on from the log after this position, once there is room."""
        self.live = False
        self._missed_notices = self._missed_notices or missed_notices
        self.position = position
        self._joined = Promise()
        self.stream.left(self)
        self._wait_for_room(None)

    def catch_up(self) -> None:
        """Queue pages as long as there is room; join the tail if nothing is left to read."""
        stream = self.stream
        while not (self.closed or self.live or self._reading) and stream.followed:
            self.tell_clear()
            if self.position >= stream.position:
                self._join()
                return
            allowance = stream.fanout.allowance
            if self.peer.unsent >= allowance:
                self._wait_for_room(allowance // 2)
                return
            page = stream.shelf.get(self.position)
            if page is None or page.last > stream.page_end(self.position):
                self._read()
            else:
                self._pass_on(page)

    def close(self) -> None:
        """Follow no longer; what waits for this feed waits no more."""
        self.closed = True
        self.live = False
        self._joined.resolve(None)
        self._answer_clears()
        self._keep_promises()

    def _wait_for_room(self, most: int | None) -> None:
        """Go on when there is room; every commit comes by here, and the connection is to call once."""
        if not self._blocked:
            self._blocked = True
            self.peer.when_room(self._unblock, most)

    def _unblock(self) -> None:
        self._blocked = False
        self.catch_up()

    def _read(self) -> None:
        self._reading = True
        promise = self.stream.shelf.read(self.stream, self.position, self._renderer)
        promise.then(lambda: self._take(promise))

    def _take(self, promise: Promise[SharedPage]) -> None:
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
        if page.after == self.position and not self.live:
            self._pass_on(page)
        self.catch_up()

    def _pass_on(self, page: SharedPage) -> None:
        self.position = page.last
        self._renderer = page.renderer
        if page.lines:
            self.peer.tell(page)
            self.stream.fanout.mark_delivered(self.stream)
        self._keep_promises()

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
