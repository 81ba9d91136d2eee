from __future__ import annotations

import gc
import socket
from typing import TYPE_CHECKING

import trio

from roost.schemas.results import FoundFile
from roost.schemas.search import Found, FoundPath, Search
from roost.schemas.unions import search_from_front
from roost.supervisor.link import Link
from tests.support.front import open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import Message
    from tests.support.front import FrontHouse, Json


class FakeSearch:
    """The service's end of its link: it always finds the same."""

    def __init__(self, *found: FoundPath) -> None:
        self.queries: list[str] = []
        self.found = Found(paths=found)

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer a search."""
        if isinstance(message, Search):
            self.queries.append(message.query)
            link.reply(ref, self.found)

    def on_closed(self, link: Link) -> None:
        """Nothing is lost with it."""


def join(house: FrontHouse, service: FakeSearch) -> Link:
    """Give the front a link to the service; return the service's end."""
    ours, theirs = socket.socketpair()
    link = Link(ours, house.poller, name="front", decoder=search_from_front, handler=service)
    house.front.link_up("search", 1, theirs.detach())
    return link


async def test_what_was_found_is_given_back_with_the_answer(tmp_path: Path) -> None:
    path = FoundPath(root="/r", path="a/b", kind="file", score=1, indices=(0, 1))
    with trio.fail_after(10):
        async with open_front(tmp_path) as house, open_client(house) as client:
            link = join(house, FakeSearch(path))
            asked: Json = {"roots": [str(tmp_path)], "query": "ab"}
            await client.call("fs.fuzzy_search", asked)
            gc.collect()
            gc.disable()
            try:
                for number in range(20):
                    token: Json = {"cancellationToken": "t"} if number % 2 else {}
                    await client.call("fs.fuzzy_search", {**asked, **token})
                await client.call("health.ping")
                left = [one for one in gc.get_objects() if isinstance(one, FoundFile | FoundPath)]
            finally:
                gc.enable()
            link.close()
    assert left in ([], [path])


async def test_a_search_given_up_while_the_service_starts_is_not_asked_of_it(
    tmp_path: Path,
) -> None:
    service = FakeSearch()
    with trio.fail_after(5):
        async with open_front(tmp_path) as house, open_client(house) as client:
            asked: Json = {"roots": [str(tmp_path)], "cancellationToken": "typed"}
            first = await client.send("fs.fuzzy_search", {**asked, "query": "a"})
            second = await client.send("fs.fuzzy_search", {**asked, "query": "ab"})
            other: Json = {"roots": [str(tmp_path)], "query": "x"}
            cancelled = await client.send("fs.fuzzy_search", other)
            assert (await client.answer(first))["result"] == {"files": []}
            assert (await client.call("request.cancel", {"requestId": cancelled}))["cancelled"]
            link = join(house, service)
            assert (await client.answer(second))["result"] == {"files": []}
            link.close()
    assert service.queries == ["ab"]
