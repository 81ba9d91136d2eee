"""initialize and thread/*: threads are made, listed, read, followed and archived (T 3.1 to 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from roost.actors.errors import DaemonError, Overloaded
from roost.actors.front.clock import now_ms
from roost.actors.front.creation import FOLDER_SECONDS, new_id
from roost.actors.front.ending import end_in_background
from roost.actors.front.models import find_model
from roost.actors.front.promise import Promise
from roost.actors.front.thread_answers import (
    LEAST_LINE,
    fitting_threads,
    page_answer,
    page_bytes,
)
from roost.actors.front.thread_approvals import take_reply
from roost.actors.front.thread_feeds import ThreadClient
from roost.actors.front.thread_following import client_of, follow, live_tail, shown
from roost.actors.front.thread_notes import View
from roost.actors.front.thread_pages import MAX_BYTES, ItemsPage, read_items, read_turn_head
from roost.actors.front.thread_past import promised_turn
from roost.actors.front.thread_shapes import thread_of
from roost.actors.front.workspace import make_scratch
from roost.schemas.agent import AgentCreated, AgentSpec, CreateAgent
from roost.schemas.base import AgentId, SessionId
from roost.schemas.session import (
    CloseSession,
    GetSession,
    ListThreads,
    SessionClosing,
    SessionRow,
    SessionSpec,
    Threads,
)
from roost.schemas.thread import THREAD_PROTOCOL_VERSION, AppClientCapabilities
from roost.schemas.thread_notifications import ThreadArchived, ThreadStarted, ThreadStatusChanged
from roost.schemas.thread_results import (
    AppServerCapabilities,
    Empty,
    InitializeResponse,
    ServerInfo,
    ThreadListResponse,
    ThreadStartResponse,
    ThreadUnsubscribeResponse,
)

if TYPE_CHECKING:
    from roost.actors.front.router import Call, Caller
    from roost.actors.front.services import Services
    from roost.actors.front.thread_tails import ThreadTail
    from roost.schemas.thread import (
        InitializeParams,
        NoParams,
        ThreadArchiveParams,
        ThreadListParams,
        ThreadReadParams,
        ThreadResumeParams,
        ThreadStartParams,
        ThreadUnsubscribeParams,
    )
    from roost.schemas.thread_results import AppThread, AppTurn

MAX_THREADS = 1_000
MAX_NAME = 256
MAX_GIVEN = 64 * 1024
"""Bytes of title, folder and model of a thread together: they are in every answer about it."""
MAX_OFFSET = 2**62
UNWIND_SECONDS = 10.0
ARCHIVED = "archived"
SOURCE = "thread/start"
TRANSPORTS = ("stdio", "unix", "websocket")

_encode = msgspec.json.Encoder().encode


def initialize(caller: Caller, params: InitializeParams) -> bytes:
    """Bind the connection to this door; what the client wants holds from now on."""
    wanted = params.capabilities
    if not isinstance(wanted, AppClientCapabilities):
        wanted = AppClientCapabilities()
    view = View(
        jsonrpc=caller.with_jsonrpc,
        without=frozenset(wanted.opt_out_notification_methods),
        experimental=wanted.experimental_api,
        line_bytes=max(wanted.line_bytes, LEAST_LINE) if wanted.line_bytes else 0,
    )
    client = ThreadClient(caller.peer, view, params.client_info.name[:MAX_NAME])
    caller.become_thread(client, lambda reply: take_reply(caller, reply))
    version = caller.services.boot.version
    result = InitializeResponse(
        server_info=ServerInfo(name="roost", version=version),
        protocol_version=THREAD_PROTOCOL_VERSION,
        supported_transports=TRANSPORTS,
        capabilities=AppServerCapabilities(
            thread=True,
            turn=True,
            item_stream=True,
            approval_requests=True,
            event_replay=True,
            schema_export=True,
            turn_steer=True,
            model_list=True,
            thread_status=True,
        ),
        user_agent=f"roost/{version}",
    )
    return _encode(result)


def initialized(caller: Caller, params: NoParams) -> bytes:
    """Answer who sends it as a request."""
    return b"{}"


async def start_thread(call: Call, params: ThreadStartParams) -> ThreadStartResponse:
    """Make a thread with an agent of its own, which is not started before its first turn, and follow it."""
    services = call.services
    _check_size(params)
    model = params.model or ""
    provider = services.settings.agents.provider
    if model:
        known, info = await find_model(services, model)
        if not known:
            text = f"no provider has a model called '{model[:128]}'"
            raise DaemonError("UNKNOWN_MODEL", text, {"model": model[:MAX_NAME]})
        provider = info.provider if info is not None else provider
    agent_id, now = AgentId(new_id("agent")), now_ms()
    cwd = params.cwd
    if cwd is None:
        home = services.boot.home
        scratch: Promise[str] = services.in_thread(
            lambda: make_scratch(home, agent_id), FOLDER_SECONDS
        )
        cwd = await scratch
    given = {"title": params.title, "cwd": params.cwd, "model": params.model}
    metadata = {name: text for name, text in given.items() if text is not None}
    spec = AgentSpec(
        agent_id=agent_id,
        created_at=now,
        cwd=cwd,
        scratch=params.cwd is None,
        provider=provider,
        model=model,
        sandbox=services.settings.agents.sandbox,
        metadata=b"{}",
    )
    session = SessionSpec(
        session_id=SessionId(new_id("session")),
        agent_id=agent_id,
        created_at=now,
        cwd=cwd,
        title=params.title or "",
        model=model,
        source=SOURCE,
        ephemeral=params.ephemeral,
        metadata=_encode({**metadata, "source": SOURCE}),
    )
    created = await services.store.ask(CreateAgent(spec=spec, session=session), AgentCreated)
    services.remember_agent(session.session_id, agent_id)
    await follow(call, session.session_id)
    thread = thread_of(created.session)
    client = client_of(call.caller)
    started = ThreadStarted(thread=thread, sequence=created.session.last_sequence)
    call.after.insert(0, lambda: client.tell([started], lambda _: False))
    services.announce(created.session, client)
    return ThreadStartResponse(thread=thread)


async def resume_thread(call: Call, params: ThreadResumeParams) -> msgspec.Raw:
    """Return a thread's first items, and follow it from exactly the event up to which they go."""
    if not params.subscribe:
        return await _read(call, params.thread_id, "", {})
    feed = await follow(call, params.thread_id)
    state = feed.state()
    running = state.turn.id if state.turn is not None else ""
    page = await _page(call, params.thread_id, "", upto=feed.position, running=running)
    client, tail = client_of(call.caller), feed.tail
    asked = feed.tail.dated([*state.asked()])
    if asked:
        call.after.insert(0, lambda: client.tell(asked, tail.is_open))
    thread = thread_of(page.row, state)
    turn = state.turn.shown(params.thread_id) if state.turn is not None else None
    if turn is None and thread.active_turn_id is not UNSET:
        turn = await promised_turn(call.services, params.thread_id, thread.active_turn_id)
    return page_answer(page, thread, turn, {}, client.view.line_bytes)


async def read_thread(call: Call, params: ThreadReadParams) -> msgspec.Raw:
    """Return a thread's items behind one."""
    after = params.after_item_id or ""
    return await _read(call, params.thread_id, after, {"reset": True} if after else {})


async def list_threads(call: Call, params: ThreadListParams) -> ThreadListResponse:
    """Return threads by their last change, newest first; the store has them in an index."""
    archived = params.archived
    if archived is None:
        archived = None if params.include_archived else False
    limit = min(MAX_THREADS if params.limit is None else params.limit, MAX_THREADS)
    offset = min(params.offset or 0, MAX_OFFSET)
    most = client_of(call.caller).view.line_bytes
    found: list[AppThread] = []
    while True:
        wanted = limit - len(found)
        request = ListThreads(limit=wanted, offset=offset + len(found), archived=archived)
        page = await call.services.store.ask_bulky(request, Threads)
        found += [thread_of(row) for row in page.threads]
        if len(found) >= limit or not page.threads or offset + len(found) >= page.total:
            return ThreadListResponse(threads=fitting_threads(found, most), total=page.total)


def _check_size(params: ThreadStartParams) -> None:
    """See that what is kept of a thread for every answer about it is short.

    Raises:
        DaemonError: it is not (`INPUT_TOO_LARGE`).
    """
    given = (params.title, params.cwd, params.model)
    size = sum(len(text.encode()) for text in given if text)
    if size > MAX_GIVEN:
        text = f"title, cwd and model have at most {MAX_GIVEN} bytes together"
        raise DaemonError("INPUT_TOO_LARGE", text, {"max_bytes": MAX_GIVEN, "actual_bytes": size})


async def archive_thread(call: Call, params: ThreadArchiveParams) -> Empty:
    """End a thread for good; a turn that runs is interrupted, and has ended when this is answered."""
    services, thread_id = call.services, params.thread_id
    try:
        row = await services.store.ask(GetSession(session_id=SessionId(thread_id)), SessionRow)
    except DaemonError as error:
        raise shown(error, thread_id) from None
    if row.state == "closed":
        return Empty()
    tail = await live_tail(call, thread_id)
    client = client_of(call.caller)
    feed = client.feeds.get(thread_id)
    if feed is not None:
        feed.archiving = True
        call.after.insert(0, feed.end_archiving)
    await _close(services, tail)
    if feed is None:
        call.after.insert(0, lambda: _tell_archived(client, tail))
    return Empty()


async def unsubscribe_thread(
    call: Call, params: ThreadUnsubscribeParams
) -> ThreadUnsubscribeResponse:
    """Follow a thread no longer; turns go on."""
    feed = client_of(call.caller).feeds.get(params.thread_id)
    if feed is not None:
        feed.tail.drop_feed(feed)
    else:
        request = GetSession(session_id=SessionId(params.thread_id))
        try:
            await call.services.store.ask(request, SessionRow)
        except DaemonError as error:
            raise shown(error, params.thread_id) from None
    return ThreadUnsubscribeResponse(thread_id=params.thread_id, subscribed=False)


async def _close(services: Services, tail: ThreadTail) -> None:
    """Have the store close the session, and wait until that is in the log; what does not unwind is killed."""
    request = CloseSession(session_id=tail.stream.session_id, reason=ARCHIVED)
    try:
        closing = await services.store.ask(request, SessionClosing)
        forced = False
        while not tail.closed.done:
            await _end_or_time(services, tail)
            if not tail.closed.done:
                if forced:
                    raise Overloaded("OVERLOADED", "the thread's turn does not end")
                forced = True
                end_in_background(services, closing.agent_id, ARCHIVED)
        await tail.closed
    except DaemonError as error:
        raise shown(error, tail.thread_id) from None
    if closing.last and not forced:
        end_in_background(services, closing.agent_id, ARCHIVED)


def _end_or_time(services: Services, tail: ThreadTail) -> Promise[None]:
    """Promise the end of a thread, or of some time."""
    waited: Promise[None] = Promise()

    def done() -> None:
        waited.resolve(None)

    timer = services.timers.after(UNWIND_SECONDS, done)
    waited.then(timer.cancel)
    tail.closed.then(done)
    return waited


def _tell_archived(client: ThreadClient, tail: ThreadTail) -> None:
    thread_id, at = tail.thread_id, tail.position
    client.tell(
        [
            ThreadArchived(thread_id=thread_id, sequence=at),
            ThreadStatusChanged(thread_id=thread_id, status="archived", sequence=at),
        ],
        lambda _: False,
    )


async def _read(
    call: Call, thread_id: str, after: str, unless_found: dict[str, object]
) -> msgspec.Raw:
    page = await _page(call, thread_id, after)
    state = page.fold if not page.more else None
    turn: AppTurn | None = None
    if page.turn_id:
        if state is not None and state.turn is not None:
            turn = state.turn.shown(thread_id)
        else:
            turn = await read_turn_head(call.services.store, thread_id)
    thread = thread_of(page.row)
    if turn is None and thread.active_turn_id is not UNSET:
        turn = await promised_turn(call.services, thread_id, thread.active_turn_id)
    further = {} if page.found else unless_found
    line_bytes = client_of(call.caller).view.line_bytes
    return page_answer(page, thread, turn, further, line_bytes)


async def _page(
    call: Call, thread_id: str, after: str, *, upto: int = 0, running: str | None = None
) -> ItemsPage:
    services, client = call.services, client_of(call.caller)
    most = page_bytes(client.view.line_bytes, MAX_BYTES)
    place = services.readers.ask()
    try:
        await place
        return await read_items(
            services.store, thread_id, after, upto=upto, max_bytes=most, running=running
        )
    except DaemonError as error:
        raise shown(error, thread_id) from None
    finally:
        services.readers.give_back(place)
