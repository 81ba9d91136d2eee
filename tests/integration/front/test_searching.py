from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import trio

from roost.schemas.search import Found, Search
from roost.schemas.unions import search_from_front
from roost.supervisor.link import Link
from tests.support.front import open_client, open_front

if TYPE_CHECKING:
    from pathlib import Path

    from roost.schemas.base import Message
    from tests.support.front import Json


class FakeSearch:
    """The service's end of its link: it finds nothing."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def on_message(self, link: Link, ref: int, message: Message) -> None:
        """Answer a search."""
        if isinstance(message, Search):
            self.queries.append(message.query)
            link.reply(ref, Found())

    def on_closed(self, link: Link) -> None:
        """Nothing is lost with it."""


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
            ours, theirs = socket.socketpair()
            link = Link(
                ours, house.poller, name="front", decoder=search_from_front, handler=service
            )
            house.front.link_up("search", 1, theirs.detach())
            assert (await client.answer(second))["result"] == {"files": []}
            link.close()
    assert service.queries == ["ab"]
