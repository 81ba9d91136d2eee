"""Subscriptions of thread clients: what a request causes is told after its answer (T 3, 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.errors import DaemonError, NotFound

if TYPE_CHECKING:
    from roost.actors.front.router import Call, Caller
    from roost.actors.front.thread_feeds import ThreadClient, ThreadFeed
    from roost.actors.front.thread_tails import ThreadTail


def client_of(caller: Caller) -> ThreadClient:
    """Return what a connection said of itself; only an initialized one has a request at work."""
    client = caller.thread
    assert client is not None
    return client


def unknown_thread(thread_id: str) -> NotFound:
    """Return the error for a thread that there is not (any more)."""
    return NotFound("SESSION_NOT_FOUND", "Unknown thread", {"threadId": thread_id[:256]})


def shown(error: DaemonError, thread_id: str) -> DaemonError:
    """Return an error of the store as thread clients get it."""
    if error.code in ("SESSION_NOT_FOUND", "AGENT_NOT_FOUND"):
        return unknown_thread(thread_id)
    if error.code == "SESSION_CLOSED":
        return DaemonError(error.code, "Thread is archived", {"threadId": thread_id[:256]})
    return error


async def live_tail(call: Call, thread_id: str) -> ThreadTail:
    """Return the live end of a thread, held until the request has been answered.

    Raises:
        DaemonError: there is no such thread, or it cannot be read.
    """
    threads = call.services.threads
    tail = threads.hold(thread_id)
    call.after.append(lambda: threads.release(tail))
    try:
        await tail.ready
    except DaemonError as error:
        raise shown(error, thread_id) from None
    return tail


async def follow(call: Call, thread_id: str) -> ThreadFeed:
    """Subscribe the caller to a thread; it is told nothing of it before the answer.

    Raises:
        DaemonError: there is no such thread, or it cannot be read.
    """
    tail = await live_tail(call, thread_id)
    client = client_of(call.caller)
    feed = tail.feeds.get(client)
    if feed is None:
        feed = tail.feed(client)
    else:
        feed.hold_back()
    # Before the tail is released: whoever has a feed at it keeps it.
    call.after.insert(0, feed.let_go)
    return feed


def hold_back(call: Call, thread_id: str) -> None:
    """Tell the caller nothing of a thread that it follows before the answer."""
    feed = client_of(call.caller).feeds.get(thread_id)
    if feed is not None:
        feed.hold_back()
        call.after.append(feed.let_go)
