"""Importing the log of a session: what the command line asks of the front, and the front of the store.

An import fills a session that nobody sees yet, chunk by chunk; its last step makes it visible. What is left of one that
was broken off is removed by the store.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from roost.schemas.agent import AgentSpec
from roost.schemas.base import EventId, Message, SessionId
from roost.schemas.daemon import Name, Params
from roost.schemas.session import SessionSpec

MAX_CHUNK_EVENTS = 256
# A session goes on behind its imported events; the store takes sequences from 2^40 on for damage.
MAX_IMPORTED = 2**39

ImportId = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_-]{8,64}$")]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class EventsImport(Params, frozen=True, kw_only=True):
    """`roost.events.import`: one step of importing one session.

    `begin` needs `sessionId` and `firstSequence`, `events` needs events, `finish` needs `sessionId`.
    """

    import_id: ImportId
    step: Literal["begin", "events", "finish", "abort"]
    session_id: str = ""
    first_sequence: Sequence = 1
    last_sequence: Sequence = 1
    events: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_CHUNK_EVENTS)] = []
    title: str = ""
    cwd: str = ""
    created_at: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0


class EventsImported(Params, frozen=True, kw_only=True):
    """The result of a step; `exists` says that there is a session of that id already, and nothing was begun."""

    exists: bool = False
    last_sequence: int = 0
    agent_id: Name | msgspec.UnsetType = msgspec.UNSET
    closed: bool | msgspec.UnsetType = msgspec.UNSET


class BeginImport(Message, frozen=True, kw_only=True, tag="archive.begin"):
    """Call front → store: take the events of this session from `first_sequence` on. Answered with `ImportBegun`.

    Refused `OVERLOADED` while the remains of another import are being removed, `DISK_FULL` when there is no room.
    """

    import_id: str
    session_id: SessionId
    first_sequence: int


class ImportBegun(Message, frozen=True, kw_only=True, tag="archive.begun"):
    """The answer to `BeginImport`; where the session `exists` already, nothing was begun."""

    exists: bool


class ArchivedEvent(Message, frozen=True, kw_only=True, tag="archive.event"):
    """A judged event as it is stored: `body` is its JSON without `sequence`."""

    event_id: EventId
    type: str
    turn_id: str
    body: bytes


class ImportEvents(Message, frozen=True, kw_only=True, tag="archive.events"):
    """Call front → store: further events, the first with sequence `first`. Answered with `Done`.

    Refused `EVENT_ID_CONFLICT` with the `sequence` of an event whose id the store has already.
    """

    import_id: str
    first: int
    events: tuple[ArchivedEvent, ...]


class FinishImport(Message, frozen=True, kw_only=True, tag="archive.finish"):
    """Call front → store: show the session, with an agent of its own. Answered with its `SessionRow`.

    An open turn at its end is closed as after a crash; a log that ends with `session.closed` is a closed session.
    """

    import_id: str
    last_sequence: int
    agent: AgentSpec
    session: SessionSpec


class AbortImport(Message, frozen=True, kw_only=True, tag="archive.abort"):
    """Call or cast front → store: forget what has come of this import. Answered with `Done`."""

    import_id: str
