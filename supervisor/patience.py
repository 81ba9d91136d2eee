"""Waiting with a time limit that does not count the time in which this process itself stood still."""

from __future__ import annotations

import trio

SLICE = 5.0
GAP = 10.0


async def wait_patiently(event: trio.Event, timeout: float) -> bool:  # noqa: ASYNC109
    """Return whether the event came within the time limit.

    A sleep that ends more than `GAP` seconds late means that this process was stopped or suspended, and others
    probably with it: the time limit starts again.
    """
    deadline = trio.current_time() + timeout
    while not event.is_set():
        now = trio.current_time()
        if now >= deadline:
            return False
        until = min(deadline, now + SLICE)
        with trio.move_on_at(until):
            await event.wait()
        if trio.current_time() > until + GAP:
            deadline = trio.current_time() + timeout
    return True
