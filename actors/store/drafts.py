"""Agents' drafts: which are written, which are known already, which are refused.

A refusal is decided before anything of the draft is written, so it leaves no gap and disturbs no other draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from roost.actors.store.capacity import FULL
from roost.actors.store.changes import INCOMPATIBLE, Changes, Refusal
from roost.actors.store.journal import CALL_CLOSED, CALL_OPENED, decode_head, note_call
from roost.schemas import canonical, event
from roost.schemas.canonical import NotCanonical
from roost.schemas.turn import ClaimCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.store.journal import Head, Session, Written
    from roost.actors.store.lifecycle import Lifecycle
    from roost.actors.store.repair import Repairs
    from roost.schemas.turn import Draft

OWN_TYPES: Final = frozenset({"session.created", "session.closed"})
TYPES: Final = frozenset(str(kind.__struct_config__.tag) for kind in event.AnyEvent.__args__)
CALLS: Final = CALL_CLOSED | {CALL_OPENED}
# Room for `,"sequence":N` of the stored form.
SPLICED: Final = 32

_decode = msgspec.json.Decoder(dict[str, object]).decode


class Drafts:
    """The drafts of one group, in the transaction that is open."""

    def __init__(self, lifecycle: Lifecycle, repairs: Repairs, max_event_bytes: int) -> None:
        self._journal = lifecycle.journal
        self._turns = lifecycle.turns
        self._repairs = repairs
        self._capacity = lifecycle.capacity
        self._changes = Changes(lifecycle)
        self.set_bound(max_event_bytes)
        self._known: dict[str, Written] = {}
        self._taken: set[str] = set()
        self._resent = False

    def set_bound(self, max_event_bytes: int) -> None:
        """Take events up to this size from now on."""
        self._max_bytes = max_event_bytes - SPLICED

    def prepare(self, drafts: Sequence[Draft], *, resent: bool = False) -> None:
        """Look up in one go which of the drafts of a group are in the log already.

        Of those that change no row this is not asked unless `resent`: the log takes no id twice, and a group that it does
        not take is done again.
        """
        self._taken.clear()
        self._resent = resent
        asked = [draft.event_id for draft in drafts if draft.body and (resent or draft.changes)]
        self._known = self._journal.find(asked)

    def take(self, agent_id: str, draft: Draft) -> int | Refusal:
        """Write a draft and return its sequence (without an event: the last one), or why it is refused.

        Raises:
            sqlite3.IntegrityError: now or at the commit; an event of this id is in the log, which was not looked up.
        """
        session = self._journal.session(draft.session_id)
        if session is None or session.agent_id != agent_id:
            return Refusal("SESSION_CLOSED", "the agent has no such session")
        known = self._known.get(draft.event_id) or self._journal.written(draft.event_id)
        if known is not None:
            return _same_again(session, draft, known)
        head: Head | None = None
        refusal = self._refusal(session, draft)
        if refusal is None and draft.body:
            found = _head(draft)
            if isinstance(found, Refusal):
                refusal = found
            else:
                head = found
        if refusal is None and draft.changes:
            refusal = self._changes.check(session, draft)
        full = False
        if self._capacity.is_bounded and refusal is None and head is not None:
            full = not self._capacity.has_room(session, draft.type, len(draft.body))
        if refusal is None and not full:
            return self._write(session, draft, head)
        if not self._resent and (before := self._journal.find([draft.event_id])):
            return _same_again(session, draft, before[draft.event_id])
        if refusal is not None:
            return refusal
        self._repairs.stop_full(session)
        return Refusal(FULL, f"the log of session {session.session_id} is full")

    def _write(self, session: Session, draft: Draft, head: Head | None) -> int:
        if draft.changes:
            self._changes.make_before(session, draft)
        sequence = session.last_sequence
        if head is not None:
            sequence = self._journal.append(
                session, draft.event_id, draft.type, draft.turn_id, draft.body
            )
            if head.type in CALLS:
                note_call(session, head)
        if draft.changes:
            self._changes.make_after(session, draft, head)
            self._taken.add(draft.event_id)
        return sequence

    def _refusal(self, session: Session, draft: Draft) -> Refusal | None:
        if draft.generation != session.generation:
            return Refusal("STALE_GENERATION", "a newer actor of this session has started")
        if session.state == "closed":
            return Refusal("SESSION_CLOSED", "the session is closed")
        if len(draft.body) > self._max_bytes:
            return Refusal("EVENT_PAYLOAD_TOO_LARGE", "the event is too large")
        if draft.body:
            if draft.type not in TYPES or draft.type in OWN_TYPES:
                return Refusal(INCOMPATIBLE, "not a type that an agent writes")
        elif draft.type or not draft.changes:
            return Refusal(INCOMPATIBLE, "a draft without event and changes")
        if draft.tied_to and not self._has_written(session, draft.tied_to):
            return Refusal("TIED", f"draft {draft.tied_to} was not written")
        return None

    def _has_written(self, session: Session, event_id: str) -> bool:
        """Return whether an earlier draft was written; one without an event is known by what it settled."""
        return (
            event_id in self._taken
            or self._journal.written(event_id) is not None
            or bool(self._journal.find([event_id]))
            or self._turns.settled_with(session.key, event_id)
        )


def _head(draft: Draft) -> Head | Refusal:
    """Return the head of a draft's event, or what is wrong with it."""
    try:
        head = decode_head(draft.body)
    except msgspec.DecodeError:
        return Refusal(INCOMPATIBLE, "the event is not readable")
    matches = (
        head.id == draft.event_id
        and head.type == draft.type
        and head.session_id == draft.session_id
        and head.turn_id == draft.turn_id
        and head.sequence is msgspec.UNSET
    )
    if not matches:
        return Refusal(INCOMPATIBLE, "the event is not what its envelope says")
    if head.type == CALL_OPENED and not _claims(draft, head):
        return Refusal(INCOMPATIBLE, "a call starts without being claimed")
    return head


def _claims(draft: Draft, head: Head) -> bool:
    return any(
        isinstance(change, ClaimCall) and change.call_id == head.tool_call_id
        for change in draft.changes
    )


def _same_again(session: Session, draft: Draft, known: Written) -> int | Refusal:
    """A draft sent again is answered with what it has become; another event under its id is refused."""
    if known.session == session.key and _is_same(known.body, draft.body):
        return known.sequence
    return Refusal("EVENT_ID_CONFLICT", f"event id {draft.event_id} is used for another event")


def _is_same(stored: bytes, sent: bytes) -> bool:
    if stored == sent:
        return True
    try:
        return _canonical(stored) == _canonical(sent)
    except (msgspec.DecodeError, NotCanonical):
        return False


def _canonical(body: bytes) -> bytes:
    """Return what two drafts are compared by; no metadata is as good as empty metadata."""
    draft: dict[str, object] = {"metadata": {}}
    draft.update(_decode(body))
    return canonical.encode(draft)
