"""The thread door: its methods, each with its params, its lane, what orders it, and its handler (T 1.8, 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError
from roost.actors.front import thread_approvals, thread_requests as requests, thread_turns as turns
from roost.actors.front.door import Door, Entry
from roost.actors.front.thread_following import client_of, follow, hold_back
from roost.schemas import thread as t

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.schemas.thread_results import Empty, TurnStartResponse, TurnSteerResponse

THREAD_DOOR = Door()


async def start_turn(call: Call, params: t.TurnStartParams) -> TurnStartResponse:
    """Begin a turn; who has begun one follows the thread, who was refused does not because of that."""
    thread_id, client = params.thread_id, client_of(call.caller)
    known = thread_id in client.feeds
    try:
        await follow(call, thread_id)
    except DaemonError as error:
        # What is wrong with the request itself is said first.
        if error.code != "SESSION_NOT_FOUND":
            raise
    try:
        return await turns.start_turn(call, params)
    except DaemonError:
        feed = client.feeds.get(thread_id)
        if feed is not None and not known:
            feed.tail.drop_feed(feed)
        raise


async def steer_turn(call: Call, params: t.TurnSteerParams) -> TurnSteerResponse:
    """Add to the open turn."""
    hold_back(call, params.thread_id)
    return await turns.steer_turn(call, params)


async def interrupt_turn(call: Call, params: t.TurnInterruptParams) -> Empty:
    """Have a turn stop."""
    hold_back(call, params.thread_id)
    return await turns.interrupt_turn(call, params)


def _register() -> None:
    add, order = THREAD_DOOR.add, "thread_id"
    add(Entry("initialize", t.InitializeParams, instant=requests.initialize))
    add(Entry("initialized", t.NoParams, instant=requests.initialized))
    add(Entry("thread/start", t.ThreadStartParams, handler=requests.start_thread))
    add(Entry("thread/list", t.ThreadListParams, handler=requests.list_threads))
    add(Entry("thread/resume", t.ThreadResumeParams, handler=requests.resume_thread, order=order))
    add(Entry("thread/read", t.ThreadReadParams, handler=requests.read_thread, order=order))
    add(
        Entry("thread/archive", t.ThreadArchiveParams, handler=requests.archive_thread, order=order)
    )
    add(
        Entry(
            "thread/unsubscribe",
            t.ThreadUnsubscribeParams,
            handler=requests.unsubscribe_thread,
            order=order,
        )
    )
    add(Entry("turn/start", t.TurnStartParams, handler=start_turn, order=order))
    add(Entry("turn/steer", t.TurnSteerParams, handler=steer_turn, order=order))
    add(Entry("turn/interrupt", t.TurnInterruptParams, handler=interrupt_turn, lane="control"))
    add(
        Entry(
            "approval/resolve",
            t.ApprovalResolveParams,
            handler=thread_approvals.resolve_approval,
            lane="control",
        )
    )
    add(Entry("model/list", t.ModelListParams, handler=turns.list_all_models))
    add(Entry("schema/export", t.NoParams, handler=turns.export_schema))


_register()
