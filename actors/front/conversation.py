"""session.clear, session.snapshot, session.transcript: the conversation as a whole; and tool.cancel, one call of it.

None of them waits for an agent: the store has it all, also of closed sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front.approvals import settled
from roost.actors.front.clock import stamp
from roost.actors.front.transcripts import read_transcript
from roost.actors.front.waiting import not_found
from roost.actors.projection import TRANSCRIPT_BYTES
from roost.schemas.base import SessionId
from roost.schemas.results import (
    CacheStats,
    Decided,
    HistoryCleared,
    SnapshotResult,
    TokenTotals,
    TranscriptMessage,
    TranscriptResult,
)
from roost.schemas.session import ClearSession, GetSnapshot, SessionCleared, SessionSnapshot
from roost.schemas.turn import CallCancelled, CancelCall

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.projection import Entry
    from roost.schemas.daemon import (
        SessionClear,
        SessionSnapshot as SessionSnapshotParams,
        SessionTranscribe,
        ToolCancel,
    )


async def clear_session(call: Call, params: SessionClear) -> HistoryCleared:
    """Let the conversation begin anew; the caller has been told as an attached client before it is answered."""
    services = call.services
    request = ClearSession(session_id=SessionId(params.session_id), at=services.next_stamp())
    cleared = await services.store.ask(request, SessionCleared)
    stream = services.fanout.find(params.session_id)
    feed = stream.feeds.get(call.caller.peer) if stream is not None else None
    if feed is not None:
        await feed.told_clear(cleared.cleared_at)
    return HistoryCleared(
        session_id=params.session_id, cleared=True, cleared_at=stamp(cleared.cleared_at)
    )


async def snapshot_session(call: Call, params: SessionSnapshotParams) -> SnapshotResult:
    """Return the counters of a session."""
    request = GetSnapshot(session_id=SessionId(params.session_id))
    try:
        found = await call.services.store.ask(request, SessionSnapshot)
    except DaemonError as error:
        raise _unknown(error, params.session_id) from None
    cached = found.cache_read + found.cache_creation
    return SnapshotResult(
        session_id=params.session_id,
        turn_count=found.completed,
        token_usage=TokenTotals(
            input_tokens=found.input_tokens,
            output_tokens=found.output_tokens,
            total_tokens=found.total_tokens,
            cost_usd=found.cost_usd,
        ),
        cache_stats=CacheStats(
            request_count=found.requests,
            cache_read_input_tokens=found.cache_read,
            cache_creation_input_tokens=found.cache_creation,
            cache_total_input_tokens=cached,
            hit_rate=found.cache_read / cached if cached else None,
        ),
    )


async def transcribe_session(call: Call, params: SessionTranscribe) -> TranscriptResult:
    """Return what was said since the last clear, the newest 4 MiB of it."""
    readers = call.services.readers
    place = readers.ask()
    try:
        await place
        found = await read_transcript(call.services, params.session_id, TRANSCRIPT_BYTES)
    except DaemonError as error:
        raise _unknown(error, params.session_id) from None
    finally:
        readers.give_back(place)
    transcript = found.transcript
    return TranscriptResult(
        session_id=params.session_id,
        messages=[_message(entry) for entry in transcript.entries if entry.role != "notice"],
        as_of_sequence=found.last_sequence,
        epoch=found.epoch,
        truncated=transcript.truncated or any(e.role == "notice" for e in transcript.entries),
    )


async def cancel_tool(call: Call, params: ToolCancel) -> Decided:
    """Abort one call that waits or runs; its turn goes on."""
    request = CancelCall(
        session_id=SessionId(params.session_id),
        request_id=params.request_id,
        reason=params.reason.strip() or f"tool.cancel:{params.request_id}",
        by=call.services.attachments.name_at(call.caller.visitor, params.session_id),
    )
    await settled(call.services, request, CallCancelled, "tool")
    return Decided(request_id=params.request_id, decision="cancelled")


def _message(entry: Entry) -> TranscriptMessage:
    return TranscriptMessage(
        role="user" if entry.role == "user" else "assistant",
        text=entry.text,
        message_id=entry.message_id or entry.event_id,
        sequence=entry.sequence,
        committed_at=stamp(int(entry.timestamp * 1000)),
    )


def _unknown(error: DaemonError, session_id: str) -> DaemonError:
    return not_found(session_id) if error.code == "SESSION_NOT_FOUND" else error
