from __future__ import annotations

from typing import TYPE_CHECKING, cast

import trio

from roost.actors.agent.store_link import StoreLink
from roost.schemas.base import Done
from roost.supervisor.errors import CallTimeout

if TYPE_CHECKING:
    from trio.testing import MockClock

    from roost.schemas.base import Message
    from roost.supervisor.link import Link


class SlowLink:
    """Answers each call after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0

    async def call(self, message: Message, *, timeout: float) -> Message:  # noqa: ASYNC109
        self.calls += 1
        with trio.move_on_after(timeout):
            await trio.sleep(self.seconds)
            return message
        raise CallTimeout("too late")


async def test_a_time_limit_of_0_is_none(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    store = StoreLink(nursery, 0, lambda: None)
    link = SlowLink(1_000.0)
    store.replace(cast("Link", link))
    with trio.fail_after(2_000):
        assert isinstance(await store.ask(Done()), Done)
    assert link.calls == 1
