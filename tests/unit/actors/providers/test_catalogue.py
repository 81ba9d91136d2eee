from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from roost.actors.providers.catalogue import AGAIN_SECONDS, FRESH_SECONDS, Catalogue, Listing
from roost.actors.providers.errors import network
from roost.actors.providers.wire.models import Offered

if TYPE_CHECKING:
    from trio.testing import MockClock

LIMIT = 5.0


class Server:
    """Counts how often it is asked; answers, refuses, or says nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.models = [Offered(id="a")]
        self.refuses = False
        self.silent = False
        self.may_answer = trio.Event()
        self.may_answer.set()

    async def ask(self) -> list[Offered]:
        self.asked += 1
        if self.silent:
            await trio.sleep_forever()
        await self.may_answer.wait()
        if self.refuses:
            raise network("no connection")
        return self.models


async def test_what_was_told_is_told_again_until_it_is_old(autojump_clock: MockClock) -> None:
    server, catalogue = Server(), Catalogue()
    first = await catalogue.take(server.ask, LIMIT)
    server.models = [Offered(id="b")]
    await trio.sleep(FRESH_SECONDS - 1)
    assert await catalogue.take(server.ask, LIMIT) == first == Listing((Offered(id="a"),))
    assert server.asked == 1
    await trio.sleep(1)
    assert (await catalogue.take(server.ask, LIMIT)).models == (Offered(id="b"),)


@pytest.mark.parametrize("how", ["refuses", "silent"])
async def test_a_server_that_does_not_tell_is_left_alone_for_a_while_and_what_it_told_counts(
    autojump_clock: MockClock, how: str
) -> None:
    server, catalogue = Server(), Catalogue()
    await catalogue.take(server.ask, LIMIT)
    await trio.sleep(FRESH_SECONDS)
    setattr(server, how, True)
    began = trio.current_time()
    old = await catalogue.take(server.ask, LIMIT)
    assert trio.current_time() - began <= LIMIT
    assert old.models == (Offered(id="a"),)
    assert old.error is not None
    began = trio.current_time()
    assert await catalogue.take(server.ask, LIMIT) == old
    assert (trio.current_time(), server.asked) == (began, 2)
    setattr(server, how, False)
    await trio.sleep(AGAIN_SECONDS)
    assert (await catalogue.take(server.ask, LIMIT)).error is None


async def test_many_who_ask_at_once_are_one_request() -> None:
    server, catalogue = Server(), Catalogue()
    server.may_answer = trio.Event()
    found: list[Listing] = []

    async def take() -> None:
        found.append(await catalogue.take(server.ask, LIMIT))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(take)
        await wait_all_tasks_blocked()
        server.may_answer.set()
    assert found == [Listing((Offered(id="a"),))] * 8
    assert server.asked == 1


async def test_who_gives_up_leaves_nothing_behind() -> None:
    server, catalogue = Server(), Catalogue()
    server.silent = True
    with trio.move_on_after(0) as scope:
        await catalogue.take(server.ask, LIMIT)
    assert scope.cancelled_caught
    server.silent = False
    assert (await catalogue.take(server.ask, LIMIT)).error is None
