"""Who is attached to what: client names, attachments, and where the events of an attachment begin."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import uuid_utils

from roost.actors.errors import DaemonError, InvalidArgument, NotFound, Overloaded, WrongState
from roost.actors.front.clock import now_ms
from roost.actors.front.peer import Batch

if TYPE_CHECKING:
    from roost.actors.front.fanout import Fanout
    from roost.actors.front.feed import Feed
    from roost.actors.front.peer import Peer
    from roost.actors.front.stream import Stream

RETRY_AFTER_MS = 1000
MAX_LEFT = 4096

_log = logging.getLogger(__name__)


class Visitor:
    """What attaching needs to know of a connection."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.cursors: dict[str, int] = {}
        self.epoch = ""
        self.names: set[str] = set()
        self.attachments: dict[str, Attachment] = {}
        self.left: dict[tuple[str, str], int] = {}
        """Up to where a name had got when it was detached, by (session, name); the oldest are forgotten."""

    def leave_at(self, session_id: str, client_id: str, sequence: int) -> None:
        """Remember up to where a name had got."""
        self.left.pop((session_id, client_id), None)
        self.left[session_id, client_id] = sequence
        if len(self.left) > MAX_LEFT:
            del self.left[next(iter(self.left))]


class Attachment:
    """One client name, or a caller without one, at one session."""

    __slots__ = ("attached_at", "client_id", "feed", "id", "visitor")

    def __init__(self, visitor: Visitor, client_id: str, feed: Feed) -> None:
        self.id = f"attachment_{uuid_utils.uuid7()}"
        self.visitor = visitor
        self.client_id = client_id
        self.feed = feed
        self.attached_at = now_ms()


class AttachResult(NamedTuple):
    """An attachment whose replay is queued."""

    attachment: Attachment
    stream: Stream
    resumed_after: int


class Attachments:
    """All attachments of the daemon."""

    def __init__(self, fanout: Fanout, *, clients: int, per_session: int) -> None:
        self._fanout = fanout
        self.clients = clients
        self.per_session = per_session
        self._by_id: dict[str, Attachment] = {}
        self._names: dict[str, Visitor] = {}
        fanout.on_feed_end = self._feed_ended

    def __len__(self) -> int:
        return len(self._by_id)

    async def attach(self, visitor: Visitor, session_id: str, client_id: str) -> AttachResult:
        """Attach and wait until all that came before is queued for the connection.

        Raises:
            InvalidArgument: another connection has the name.
            NotFound: there is no such session.
            WrongState: it is closed.
            Overloaded: there are too many names on the connection, or attachments at the session.
        """
        claimed = self._claim(visitor, client_id)
        stream = self._fanout.hold(session_id)
        try:
            await self._open(stream)
            attachment, resumed_after = self._enter(visitor, stream, client_id)
            claimed = False
            await attachment.feed.joined()
            if attachment.feed.closed:
                raise _closed(session_id)
            return AttachResult(attachment, stream, resumed_after)
        finally:
            if claimed:
                self._unclaim(visitor, client_id)
            self._fanout.release(stream)

    def detach(self, session_id: str, attachment_id: str, client_id: str) -> str:
        """End an attachment by its id, else by the client's name; return its id, or nothing if there is none."""
        found = (
            self._by_id.get(attachment_id) if attachment_id else self._named(session_id, client_id)
        )
        if found is None or found.feed.stream.session_id != session_id:
            return ""
        feed = found.feed
        if found.client_id:
            found.visitor.leave_at(session_id, found.client_id, feed.position)
        self._forget(found.id)
        feed.attachments.pop(found.id, None)
        _log.info("attachment %s of %s is detached", found.id, session_id)
        if not feed.attachments:
            self._fanout.end_feed(feed)
        return found.id

    def ids_of(self, session_id: str) -> tuple[str, ...]:
        """Return the attachments of a session, oldest first."""
        stream = self._fanout.find(session_id)
        if stream is None:
            return ()
        return tuple(key for feed in stream.feeds.values() for key in feed.attachments)

    def name_at(self, visitor: Visitor, session_id: str) -> str:
        """Return a name that a connection has at a session, or any name of it."""
        stream = self._fanout.find(session_id)
        feed = stream.feeds.get(visitor.peer) if stream is not None else None
        if feed is not None:
            for attachment in feed.attachments.values():
                if attachment.client_id:
                    return attachment.client_id
        return min(visitor.names, default="")

    def leave(self, visitor: Visitor) -> None:
        """End everything of a connection that has ended."""
        feeds = dict.fromkeys(attachment.feed for attachment in visitor.attachments.values())
        for feed in feeds:
            self._fanout.end_feed(feed)
        for name in visitor.names:
            self._names.pop(name, None)
        visitor.names.clear()
        self._fanout.leave(visitor.peer)

    def _claim(self, visitor: Visitor, client_id: str) -> bool:
        """Take a name for a connection; return whether it is new to it."""
        if not client_id or client_id in visitor.names:
            return False
        if client_id in self._names:
            raise InvalidArgument(f"daemon client is already registered: {client_id}")
        if len(visitor.names) >= self.clients:
            text = f"a connection has at most {self.clients} client names"
            raise Overloaded("OVERLOADED", text, {"maxClients": self.clients})
        self._names[client_id] = visitor
        visitor.names.add(client_id)
        return True

    def _unclaim(self, visitor: Visitor, client_id: str) -> None:
        visitor.names.discard(client_id)
        if self._names.get(client_id) is visitor:
            del self._names[client_id]

    async def _open(self, stream: Stream) -> None:
        session_id = stream.session_id
        try:
            await stream.opened
        except DaemonError as error:
            if error.code == "SESSION_NOT_FOUND":
                text = f"AgenC daemon session not found: {session_id}"
                raise NotFound("SESSION_NOT_FOUND", text) from None
            raise
        if stream.row.state != "open":
            raise _closed(session_id)

    def _check_room(self, stream: Stream) -> None:
        if sum(len(feed.attachments) for feed in stream.feeds.values()) >= self.per_session:
            text = f"a session has at most {self.per_session} attachments"
            data = {"maxAttachments": self.per_session, "retryAfterMs": RETRY_AFTER_MS}
            raise Overloaded("OVERLOADED", text, data)

    def _enter(self, visitor: Visitor, stream: Stream, client_id: str) -> tuple[Attachment, int]:
        peer = visitor.peer
        feed = stream.feeds.get(peer)
        known = self._named(stream.session_id, client_id)
        if known is None or known.feed is not feed:
            self._check_room(stream)
        if feed is None:
            after = self._start(visitor, stream, client_id)
            feed = stream.attach(peer, after)
            resumed_after = min(after, stream.position)
        else:
            resumed_after = feed.position
            if feed.live:
                peer.tell(Batch(stream.present_state(attach=True)))
        if known is not None and known.feed is feed:
            return known, resumed_after
        attachment = Attachment(visitor, client_id, feed)
        feed.attachments[attachment.id] = attachment
        self._by_id[attachment.id] = visitor.attachments[attachment.id] = attachment
        return attachment, resumed_after

    def _start(self, visitor: Visitor, stream: Stream, client_id: str) -> int:
        """Return the sequence after which a new feed begins."""
        cursor = visitor.cursors.pop(stream.session_id, None)
        void = cursor is not None and visitor.epoch not in ("", stream.epoch)
        if cursor is not None and not void:
            return cursor
        if void:
            return stream.begin_anew(visitor.peer)
        left = visitor.left.get((stream.session_id, client_id)) if client_id else None
        return stream.written() if left is None else left

    def _named(self, session_id: str, client_id: str) -> Attachment | None:
        owner = self._names.get(client_id) if client_id else None
        stream = self._fanout.find(session_id) if owner is not None else None
        feed = stream.feeds.get(owner.peer) if stream is not None and owner is not None else None
        if feed is None:
            return None
        return next((a for a in feed.attachments.values() if a.client_id == client_id), None)

    def _feed_ended(self, feed: Feed) -> None:
        for key in feed.attachments:
            self._forget(key)
        feed.attachments.clear()

    def _forget(self, attachment_id: str) -> None:
        found = self._by_id.pop(attachment_id, None)
        if found is not None:
            found.visitor.attachments.pop(attachment_id, None)


def _closed(session_id: str) -> DaemonError:
    return WrongState("SESSION_CLOSED", f"AgenC daemon session is closed: {session_id}")
