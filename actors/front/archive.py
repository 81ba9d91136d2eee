"""`roost.events.import`: logs from elsewhere, one step of one session at a time. An extension for the command line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument, WrongState
from roost.actors.front.clock import now_ms
from roost.actors.front.creation import FOLDER_SECONDS, MAX_NAME, new_id
from roost.actors.front.workspace import check_folder, make_scratch
from roost.actors.sandbox.policy import default_setting
from roost.schemas.agent import AgentSpec
from roost.schemas.archive import (
    AbortImport,
    ArchivedEvent,
    BeginImport,
    EventsImport,
    EventsImported,
    FinishImport,
    ImportBegun,
    ImportEvents,
)
from roost.schemas.base import AgentId, Done, EventId, SessionId
from roost.schemas.session import SessionRow, SessionSpec
from roost.schemas.validation import judge

if TYPE_CHECKING:
    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call

METHOD = "roost.events.import"
SOURCE = "events.import"
MAX_ID = 512
# Judged in one go, so that nobody else waits for long.
MAX_CHUNK_BYTES = 256 * 1024

_encode = msgspec.json.Encoder().encode


async def import_events(call: Call, params: EventsImport) -> EventsImported:
    """Carry out one step. An import ends with its connection, unless it was finished."""
    if call.caller.peer.transport != "unix":
        raise WrongState("METHOD_NOT_FOUND", f"{METHOD} is for the local socket only")
    match params.step:
        case "begin":
            return await _begin(call, params)
        case "events":
            return await _add(call, params)
        case "finish":
            return await _finish(call, params)
        case "abort":
            call.caller.at_end.pop(params.import_id, None)
            await call.services.store.ask(AbortImport(import_id=params.import_id), Done)
            return EventsImported()


async def _begin(call: Call, params: EventsImport) -> EventsImported:
    store, import_id = call.services.store, params.import_id
    request = BeginImport(
        import_id=import_id,
        session_id=_session_id(params),
        first_sequence=params.first_sequence,
    )
    abort = AbortImport(import_id=import_id)
    call.caller.at_end[import_id] = lambda: store.ask(abort, Done)
    try:
        begun = await store.ask(request, ImportBegun)
    except DaemonError:
        call.caller.at_end.pop(import_id, None)
        raise
    if begun.exists:
        call.caller.at_end.pop(import_id, None)
    return EventsImported(exists=begun.exists)


async def _add(call: Call, params: EventsImport) -> EventsImported:
    if len(params.events) > 1 and sum(map(len, map(bytes, params.events))) > MAX_CHUNK_BYTES:
        text = f"{METHOD} takes {MAX_CHUNK_BYTES} bytes of events at a time"
        raise InvalidArgument(text, {"path": "/events", "limit": MAX_CHUNK_BYTES})
    session_id, first = _session_id(params), params.first_sequence
    events = tuple(
        _judged(bytes(raw), session_id, first + number) for number, raw in enumerate(params.events)
    )
    if events:
        request = ImportEvents(import_id=params.import_id, first=first, events=events)
        await call.services.store.ask(request, Done, repeat=False)
    return EventsImported(last_sequence=first + len(events) - 1)


def _judged(raw: bytes, session_id: str, sequence: int) -> ArchivedEvent:
    verdict = judge(raw)
    found = verdict.event
    if found is None:
        data: dict[str, object] = {"sequence": sequence, "path": verdict.path}
        raise DaemonError(verdict.code, verdict.message, data)
    if found.session_id != session_id or found.sequence != sequence:
        text = f"this is not event {sequence} of the session"
        raise InvalidArgument(text, {"sequence": sequence})
    return ArchivedEvent(
        event_id=EventId(found.id), type=found.type, turn_id=found.turn_id, body=found.body
    )


async def _finish(call: Call, params: EventsImport) -> EventsImported:
    services, session_id = call.services, _session_id(params)
    agent_id, now = AgentId(new_id("agent")), now_ms()
    title = params.title.strip()[:MAX_NAME]
    cwd = ""
    if params.cwd:
        try:
            checked: Promise[str] = services.in_thread(
                partial(check_folder, METHOD, params.cwd), FOLDER_SECONDS
            )
            cwd = await checked
        except InvalidArgument:
            cwd = ""  # it was another machine's
    scratch = not cwd
    if scratch:
        made: Promise[str] = services.in_thread(
            partial(make_scratch, services.boot.home, agent_id), FOLDER_SECONDS
        )
        cwd = await made
    spec = AgentSpec(
        agent_id=agent_id,
        created_at=min(params.created_at or now, now),
        cwd=cwd,
        scratch=scratch,
        objective=f"imported: {title or session_id}"[:MAX_NAME],
        provider=services.settings.agents.provider,
        sandbox=default_setting(services.settings),
        metadata=_encode({"imported": True}),
    )
    session = SessionSpec(
        session_id=session_id,
        agent_id=agent_id,
        created_at=spec.created_at,
        cwd=cwd,
        title=title or spec.objective,
        source=SOURCE,
        metadata=_encode({"source": SOURCE}),
    )
    request = FinishImport(
        import_id=params.import_id,
        last_sequence=params.last_sequence,
        agent=spec,
        session=session,
    )
    row = await services.store.ask(request, SessionRow, repeat=False)
    call.caller.at_end.pop(params.import_id, None)
    services.remember_agent(session_id, agent_id)
    return EventsImported(
        last_sequence=row.last_sequence, agent_id=agent_id, closed=row.state == "closed"
    )


def _session_id(params: EventsImport) -> SessionId:
    if not params.session_id:
        raise InvalidArgument(f"{METHOD} requires sessionId", {"path": "/sessionId"})
    if len(params.session_id) > MAX_ID or "\0" in params.session_id:
        raise InvalidArgument(f"{METHOD} param 'sessionId' is too long", {"path": "/sessionId"})
    return SessionId(params.session_id)
