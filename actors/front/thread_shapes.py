"""A session's record as a thread; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from roost.schemas.thread_results import ActiveFlag, AppThread, ThreadStatus

if TYPE_CHECKING:
    from roost.actors.threads.fold import Fold
    from roost.schemas.session import SessionRow, SessionSpec

SOURCE = "thread/start"


class _Given(msgspec.Struct, frozen=True):
    """What a client named when it made a thread: an empty text is not the same as none."""

    title: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET


_NOTHING = _Given()
_given = msgspec.json.Decoder(_Given).decode


def thread_of(row: SessionRow, state: Fold | None = None) -> AppThread:
    """Return a thread as of its record, or as it was in the state of an earlier event."""
    spec = row.spec
    archived = row.state == "closed"
    turn_id, flags = row.turn_id, _flags(row)
    if state is not None and state.turn is not None:
        turn_id, flags, archived = state.turn.id, state.flags, False
    status: ThreadStatus = "archived" if archived else "running" if turn_id else "idle"
    running = status == "running"
    title: str | UnsetType = spec.title or UNSET
    cwd: str | UnsetType = spec.cwd or UNSET
    if spec.source == SOURCE:
        given = _given_of(spec)
        title, cwd = given.title, given.cwd
    return AppThread(
        id=spec.session_id,
        title=title,
        cwd=cwd,
        model=spec.model or UNSET,
        status=status,
        archived=archived,
        ephemeral=spec.ephemeral,
        created_at_ms=spec.created_at,
        updated_at_ms=row.updated_at or spec.created_at,
        active_turn_id=turn_id if running else UNSET,
        preview=row.preview or UNSET,
        active_flags=(flags or UNSET) if running else UNSET,
    )


def _flags(row: SessionRow) -> tuple[ActiveFlag, ...]:
    found: list[ActiveFlag] = []
    if row.to_decide:
        found.append("waitingOnApproval")
    if row.to_answer:
        found.append("waitingOnUserInput")
    if row.cancelling:
        found.append("cancelling")
    return tuple(found)


def _given_of(spec: SessionSpec) -> _Given:
    try:
        return _given(spec.metadata)
    except msgspec.MsgspecError:
        return _NOTHING
