"""What was said in a session, read from the store backwards page by page; no agent is asked and none is woken.

A page costs the store the same however long the log is, and of the pages only the texts are kept, up to a bound.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roost.actors.projection import Transcript
from roost.schemas.base import SessionId
from roost.schemas.session import ReadTexts, Texts
from roost.schemas.unions import event_decoder

if TYPE_CHECKING:
    from roost.actors.front.services import Services

MAX_EVENTS = 1_000_000
"""How far back is looked for texts: nearly all of a log are pieces of texts that follow whole."""

_log = logging.getLogger(__name__)


class Mark(NamedTuple):
    """Something to say behind an event."""

    after: int
    text: str


class Found(NamedTuple):
    """A transcript, and up to which event of which epoch it goes."""

    transcript: Transcript
    last_sequence: int
    epoch: str


async def read_transcript(
    services: Services,
    session_id: str,
    max_bytes: int,
    *,
    floor: int = -1,
    outputs: bool = False,
    mark: Mark | None = None,
) -> Found:
    """Return the newest texts behind `floor` (-1: behind the last clear), as the session was when this began.

    Raises:
        DaemonError: there is no such session (`SESSION_NOT_FOUND`), or its log cannot be read.
    """
    transcript = Transcript(max_bytes)
    request = ReadTexts(session_id=SessionId(session_id), floor=floor, outputs=outputs)
    page = await services.store.ask_bulky(request, Texts)
    found = Found(transcript, page.last_sequence, page.epoch)
    lowest = page.last_sequence - MAX_EVENTS
    while True:
        mark, room = _take(transcript, page, mark)
        if not page.upto or not room:
            break
        if page.upto <= lowest:
            transcript.truncated = True
            break
        request = msgspec.structs.replace(request, upto=page.upto, floor=page.floor)
        page = await services.store.ask_bulky(request, Texts)
    if mark is not None and room and not page.removed:
        transcript.note_back(mark.text, mark.after)
    transcript.truncated = transcript.truncated or page.removed
    return found


def _take(transcript: Transcript, page: Texts, mark: Mark | None) -> tuple[Mark | None, bool]:
    """Take a page, newest event first; return the mark if it is further back, and whether there is room for more."""
    pieces: list[tuple[int, int, bytes]] = [(last, first, b"") for first, last in page.damaged]
    pieces += [(sequence, 0, body) for sequence, body in page.events]
    pieces.sort(reverse=True)
    for sequence, first, body in pieces:
        if mark is not None and sequence <= mark.after:
            transcript.note_back(mark.text, mark.after)
            mark = None
        room = transcript.gap_back(first, sequence) if first else _fold(transcript, sequence, body)
        if not room:
            return mark, False
    return mark, True


def _fold(transcript: Transcript, sequence: int, body: bytes) -> bool:
    try:
        return transcript.fold_back(event_decoder.decode(body), sequence)
    except msgspec.MsgspecError:
        _log.warning("event %d is left out: it cannot be read", sequence)
        return True
