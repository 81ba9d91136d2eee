from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import uuid_utils

from roost.actors.front import thread_pages as module
from roost.actors.front.promise import Promise, start
from roost.actors.front.thread_pages import Gathering, ItemsPage, read_items
from roost.actors.threads.fold import Fold
from roost.schemas import event, turn
from roost.schemas.session import Page, ReadPage
from roost.schemas.thread_events import seen_decoder
from roost.schemas.thread_log import ItemEvents, ReadItems
from tests.support.desk import Actor, Book, with_actor
from tests.support.store import final, tool_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roost.actors.errors import DaemonError
    from roost.actors.front.gateway import Gateway
    from roost.actors.threads.items import Item
    from roost.schemas.base import Message, TurnId

Json = dict[str, object]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.close()


@pytest.fixture
def actor(book: Book) -> Actor:
    return with_actor(book)


class Store:
    """The way to a desk that answers at once."""

    def __init__(self, book: Book) -> None:
        self.asked: list[Message] = []
        self._book = book

    def ask_bulky(self, request: Message, _shape: type[Message]) -> Promise[Message]:
        self.asked.append(request)
        answer: Promise[Message] = Promise()
        answer.resolve(self._book.read(request))
        return answer

    def push(self) -> None:
        pass


def page_of(
    actor: Actor, after: str = "", *, store: Store | None = None, max_bytes: int = module.MAX_BYTES
) -> ItemsPage:
    found: list[ItemsPage | DaemonError] = []
    store = store or Store(actor.book)
    reading = read_items(cast("Gateway", store), actor.session_id, after, max_bytes=max_bytes)
    start(reading, found.append)
    (page,) = found
    assert isinstance(page, ItemsPage), page
    return page


def pages_of(actor: Actor, max_bytes: int = module.MAX_BYTES) -> list[ItemsPage]:
    pages = [page_of(actor, max_bytes=max_bytes)]
    while pages[-1].more:
        pages.append(page_of(actor, str(items_in(pages[-1])[-1]["id"]), max_bytes=max_bytes))
        assert pages[-1].found
    return pages


def items_in(page: ItemsPage) -> list[Json]:
    return [json.loads(bytes(item)) for item in page.items]


def folded(actor: Actor) -> list[Json]:
    """Return the items of all events, none left out."""
    items: list[Item] = []
    fold = Fold(actor.session_id, on_item=items.append, tells=False)
    page = actor.book.read(ReadPage(session_id=actor.session_id, after=0))
    assert isinstance(page, Page)
    for sequence, body in enumerate(page.bodies, page.first):
        fold.take(sequence, seen_decoder.decode(body))
    return [json.loads(msgspec.json.encode(item.shown())) for item in items]


def say(actor: Actor, turn_id: TurnId, *pieces: str, last: bool = False) -> None:
    base = {"timestamp": time.time(), "session_id": actor.session_id, "turn_id": turn_id}
    for piece in pieces:
        delta = event.AgentMessageDelta(id=str(uuid_utils.uuid7()), delta=piece, **base)  # type: ignore[arg-type]
        actor.send(actor.draft(delta))
    done = msgspec.structs.replace(final(actor.session_id, turn_id), content="".join(pieces))
    if last:
        actor.send(actor.draft(done, turn.EndTurn(turn_id=turn_id, outcome="completed")))
    else:
        actor.send(actor.draft(msgspec.structs.replace(done, metadata={})))


def ask(actor: Actor, turn_id: TurnId, call_id: str) -> None:
    call = actor.session_id, turn_id, call_id
    requested = tool_event(event.ToolCallRequested, *call, tool_args={"path": call_id})
    actor.send(actor.draft(requested), actor.draft(tool_event(event.ToolCallStarted, *call)))


def answer(actor: Actor, turn_id: TurnId, call_id: str) -> None:
    call = actor.session_id, turn_id, call_id
    actor.send(actor.draft(tool_event(event.ToolCallCompleted, *call, result={"of": call_id})))


def work(actor: Actor, turns: int) -> None:
    """Write turns of four items, the calls of which have their answers."""
    for number in range(turns):
        turn_id = actor.begin()
        say(actor, turn_id, "one ", "piece ", "more")
        ask(actor, turn_id, f"call_{number}")
        answer(actor, turn_id, f"call_{number}")
        say(actor, turn_id, "do", "ne", last=True)


@pytest.mark.parametrize(("most", "chunk"), [(500, 256), (5, 3), (4, 9), (1, 1)])
def test_pages_together_are_the_items_of_all_events(
    actor: Actor, monkeypatch: pytest.MonkeyPatch, most: int, chunk: int
) -> None:
    work(actor, 6)
    monkeypatch.setattr(module, "MAX_ITEMS", most)
    monkeypatch.setattr(module, "CHUNK", chunk)
    pages = pages_of(actor)

    assert [item for page in pages for item in items_in(page)] == folded(actor)
    assert all(len(page.items) == most for page in pages[:-1])
    assert {page.upto for page in pages} == {actor.book.row(actor.session_id).last_sequence}


@pytest.mark.parametrize("most", [1, 600, 2_000])
def test_a_page_has_as_many_items_as_fit_but_one_at_least(actor: Actor, most: int) -> None:
    work(actor, 4)
    pages = pages_of(actor, max_bytes=most)

    assert [item for page in pages for item in items_in(page)] == folded(actor)
    assert len(pages) > 1
    sizes = [[len(bytes(item)) for item in page.items] for page in pages]
    assert all(len(one) == 1 or sum(one) <= most for one in sizes)


def test_the_end_of_an_item_is_looked_for_behind_the_page(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_id = actor.begin()
    ask(actor, turn_id, "call_late")
    for number in range(9):
        ask(actor, turn_id, f"call_{number}")
        answer(actor, turn_id, f"call_{number}")
    answer(actor, turn_id, "call_late")
    say(actor, turn_id, "done", last=True)
    monkeypatch.setattr(module, "MAX_ITEMS", 3)
    monkeypatch.setattr(module, "CHUNK", 2)
    page = page_of(actor)

    assert page.more
    assert items_in(page) == folded(actor)[:3]
    assert {item["status"] for item in items_in(page)} == {"completed"}


def test_the_cursor_stands_before_the_first_item_that_may_change(actor: Actor) -> None:
    turn_id = actor.begin()
    ask(actor, turn_id, "call_open")
    ask(actor, turn_id, "call_1")
    answer(actor, turn_id, "call_1")
    page = page_of(actor)

    items = items_in(page)
    assert [item["status"] for item in items] == ["completed", "inProgress", "completed"]
    assert page.cursor == items[0]["id"]
    assert page_of(actor, str(items[-1]["id"])).cursor == ""


def test_a_page_of_usual_length_costs_two_looks_at_the_store(actor: Actor) -> None:
    work(actor, 150)
    store = Store(actor.book)
    page = page_of(actor, store=store)

    assert (len(page.items), page.more) == (500, True)
    assert [type(request) for request in store.asked] == [ReadItems, ReadItems]


def test_what_lies_behind_a_page_is_not_kept(actor: Actor) -> None:
    turn_id = actor.begin()
    ask(actor, turn_id, "call_open")
    for number in range(40):
        ask(actor, turn_id, f"call_{number}")
        answer(actor, turn_id, f"call_{number}")
    events = Store(actor.book).ask_bulky(ReadItems(session_id=actor.session_id), ItemEvents)
    page = cast("ItemEvents", events.result())
    gathering = Gathering(module.MAX_BYTES)
    gathering.limit = 5
    fold = Fold(actor.session_id, on_item=gathering.items.append, tells=False)
    for one in page.events:
        fold.take(one[0], seen_decoder.decode(one[1]))
        part = msgspec.structs.replace(page, events=(one,))

        assert not gathering.passed(part)
        assert len(gathering.items) <= gathering.limit + 1


def test_an_event_that_cannot_be_read_leaves_the_others_readable(actor: Actor) -> None:
    work(actor, 2)
    whole = folded(actor)
    actor.book.hurt("update events set body = x'7b7d', crc = 2745614147 where sequence = 2")

    assert items_in(page_of(actor)) == [item for item in whole if item["id"] != whole[0]["id"]]
