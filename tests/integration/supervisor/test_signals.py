from __future__ import annotations

import signal

import trio
from trio.testing import wait_all_tasks_blocked

from roost.supervisor.signals import serve_stop_signals


async def test_the_first_signal_stops_and_each_further_one_hurries() -> None:
    seen: list[str] = []

    def stop(name: str) -> None:
        seen.append(f"stop {name}")

    def hurry(name: str) -> None:
        seen.append(f"hurry {name}")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stop_signals, stop, hurry)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
                await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert seen == ["stop SIGTERM", "hurry SIGINT", "hurry SIGTERM"]
