"""TERM, INT and HUP mean stop; the second one cuts every wait short."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


async def serve_stop_signals(
    stop: Callable[[str], None],
    hurry: Callable[[str], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `stop` with the name of the first TERM, INT or HUP and `hurry` with that of each further one, until cancelled."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        asked = False
        async for number in signals:
            (hurry if asked else stop)(signal.Signals(number).name)
            asked = True
