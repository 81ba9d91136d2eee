"""One thread client, and its way through the events of one thread: the live tail, or the log until it is there again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from roost.actors.errors import DaemonError
from roost.actors.front.thread_notes import Notes, View
from roost.actors.front.thread_pages import decode_seen
from roost.schemas.session import Page, ReadPage
from roost.schemas.thread_notifications import ErrorWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.actors.front.peer import Peer
    from roost.actors.front.promise import Promise
    from roost.actors.front.thread_tails import ThreadTail
    from roost.actors.threads.fold import Fold
    from roost.schemas.thread_notifications import Told, WarningCode

PAGE_EVENTS = 512
PAGE_BYTES = 131_072
MAX_NOTICES = 16
BEHIND = "what is told is not read fast enough; it goes on from the log, later than it happens"

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class ThreadClient:
    """A connection that speaks the thread protocol: what it said of itself, and what it follows."""

    def __init__(self, peer: Peer, view: View, name: str) -> None:
        self.peer = peer
        self.view = view
        self.name = name
        self.feeds: dict[str, ThreadFeed] = {}

    def tell(self, told: Sequence[Told], is_open: Callable[[str], bool]) -> None:
        """Queue notifications, and what is asked with them."""
        self.pass_on(Notes(told, is_open))

    def pass_on(self, notes: Notes) -> None:
        """Queue notifications that others get, too."""
        batch = notes.batch(self.view)
        if batch is not None:
            self.peer.tell(batch)

    def warn(self, code: WarningCode, text: str, tail: ThreadTail | None = None) -> None:
        """Queue a warning."""
        thread_id = tail.thread_id if tail is not None else UNSET
        self.tell([ErrorWarning(message=text, code=code, thread_id=thread_id)], _never)


class ThreadFeed:
    """A client that follows a thread. `position` is the last event it has been told of; a new one is held back."""

    def __init__(self, tail: ThreadTail, client: ThreadClient) -> None:
        self.tail = tail
        self.client = client
        self.position = tail.position
        self.closed = False
        self.live = False
        self.archiving = False
        """Whether the client waits for the thread's end: it is told of that after the answer."""
        self._notices: list[Notes] = []
        self._held = 1
        self._kept: list[Told] | None = None
        self._fold: Fold | None = tail.fold.fork()
        self._reading = False
        self._blocked = False
        self._behind = False
        """Whether the client has been told that it does not keep up."""

    @property
    def has_room(self) -> bool:
        """Whether the client's connection takes more."""
        return self.client.peer.has_room

    @property
    def waits_for_tail(self) -> bool:
        """Whether the feed only waits for more to happen."""
        return not (self.live or self.closed or self._held or self._reading or self._blocked)

    def state(self) -> Fold:
        """Return the fold at the feed's position, as it is; it goes on."""
        return self.tail.fold if self._fold is None else self._fold

    def tell(self, notes: Notes) -> None:
        """Queue what happens at the live end."""
        self.client.pass_on(notes)

    def notice(self, notes: Notes) -> None:
        """Queue what no event stands behind; one that is not at the live end is told of it when it is."""
        if self.live:
            self.tell(notes)
        elif len(self._notices) < MAX_NOTICES:
            self._notices.append(notes)

    def leave(self, fold: Fold) -> None:
        """Go on from the log, with this fold."""
        self.live = False
        self._fold = fold

    def hold_back(self) -> None:
        """Tell nothing until `let_go`: an answer comes first."""
        self._held += 1
        if self.live:
            self.leave(self.tail.fold.fork())

    def let_go(self) -> None:
        """Undo one `hold_back`."""
        self._held -= 1
        self.catch_up()

    def hold_for_end(self) -> None:
        """The thread ends with the next event: what is told of that is kept until the client has been answered."""
        self._kept = []
        self.hold_back()

    def keep(self, told: Sequence[Told], position: int) -> bool:
        """Keep what is told of the end; return whether this feed waits for that. The log may be gone by then."""
        if self._kept is None:
            return False
        self._kept += told
        self.position = max(self.position, position)
        return True

    def end_archiving(self) -> None:
        """The client has been answered."""
        self.archiving = False
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self.client.tell(kept, _never)
            self.let_go()

    def catch_up(self) -> None:
        """Queue pages as long as there is room; join the tail where it is."""
        while not (self.closed or self.live or self._held or self._reading or self._blocked):
            if self.position >= self.tail.position:
                self.live = True
                self._behind = False
                self._fold = None
                notices, self._notices = self._notices, []
                for notes in notices:
                    self.tell(notes)
                return
            if not self.has_room:
                self._blocked = True
                self.client.peer.when_room(self._unblock)
                return
            self._read()

    def _unblock(self) -> None:
        self._blocked = False
        if not (self._behind or self.closed):
            self._behind = True
            self.client.warn("slow_consumer", BEHIND, self.tail)
        self.catch_up()

    def _read(self) -> None:
        self._reading = True
        request = ReadPage(
            session_id=self.tail.stream.session_id,
            after=self.position,
            upto=self.tail.position,
            max_events=PAGE_EVENTS,
            max_bytes=PAGE_BYTES,
            skip_damaged=True,
        )
        answer = self.tail.threads.fanout.store.ask_bulky(request, Page)
        answer.then(lambda: self._take(answer))

    def _take(self, answer: Promise[Page]) -> None:
        self._reading = False
        if self.closed:
            return
        try:
            page = answer.result()
        except DaemonError as error:
            # The next event tries again.
            _log.warning("no page of %s: %s", self.tail.thread_id, error)
            return
        fold = self._fold
        assert fold is not None
        told: list[Told] = []
        for sequence, body in enumerate(page.bodies, page.first):
            if sequence > self.position:
                told += fold.take(sequence, decode_seen(self.tail.thread_id, sequence, body))
                self.position = sequence
        if not page.bodies:
            self.position = max(self.position + 1, page.damaged_upto, page.lost_upto)
        if told:
            self.client.tell(self.tail.dated(told), self.tail.is_open)
        self.catch_up()


def _never(_request_id: str) -> bool:
    return False
