from __future__ import annotations

import pytest
import trio

from roost.actors.errors import DaemonError
from roost.actors.front.services import Services
from roost.actors.front.timers import Timers
from roost.config.load import default_settings
from roost.schemas.boot import Boot


def _crash() -> None:
    raise LookupError


async def test_no_two_connections_have_one_number() -> None:
    boot = Boot(home="/nowhere", settings=b"", root_pid=1, started_at=0, version="")
    async with trio.open_nursery() as nursery:
        services = Services(boot, default_settings(), Timers(), nursery)
        assert [services.next_caller() for _ in range(3)] == [1, 2, 3]


async def test_what_crashes_in_a_thread_fails_one_request_alone() -> None:
    boot = Boot(home="/nowhere", settings=b"", root_pid=1, started_at=0, version="")
    async with trio.open_nursery() as nursery:
        services = Services(boot, default_settings(), Timers(), nursery)
        promise = services.in_thread(_crash, 5.0)
        done = trio.Event()
        promise.then(done.set)
        with trio.fail_after(5):
            await done.wait()
        with pytest.raises(DaemonError) as caught:
            promise.result()
        assert caught.value.code == "INTERNAL"
