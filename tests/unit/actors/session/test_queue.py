from __future__ import annotations

from roost.actors.session.queue import PARTIAL_PULL, Queue
from roost.schemas.base import MessageId
from roost.schemas.turn import QueuedMessage


def message(name: str, text: str = "") -> QueuedMessage:
    return QueuedMessage(message_id=MessageId(name), stream_id="s", accepted_at=1, text=text)


def drain(queue: Queue) -> list[str]:
    return [queue.begin().message_id for _ in range(len(queue))]


def test_messages_are_begun_in_order_and_once() -> None:
    queue = Queue()
    for name in ("a", "b", "a"):
        queue.add(message(name))
    assert queue.begin().message_id == "a"
    queue.add(message("a"))
    assert drain(queue) == ["b"]


def test_what_the_store_does_not_name_has_been_withdrawn() -> None:
    queue = Queue()
    for name in ("a", "b", "c"):
        queue.add(message(name))
    queue.begin()
    queue.replace([message("a"), message("c"), message("d")])
    assert drain(queue) == ["c", "d"]


def test_a_withdrawn_message_is_not_begun() -> None:
    queue = Queue()
    queue.add(message("a"))
    queue.withdraw(MessageId("a"))
    queue.withdraw(MessageId("unknown"))
    assert len(queue) == 0


def test_a_large_inbox_may_not_be_all_of_it() -> None:
    queue = Queue()
    queue.replace([message("a", "x" * PARTIAL_PULL)])
    assert queue.may_be_partial
    queue.replace([message("b")])
    assert not queue.may_be_partial
