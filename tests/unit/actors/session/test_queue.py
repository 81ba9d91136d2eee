from __future__ import annotations

from roost.actors.session.queue import PARTIAL_PULL, Queue
from roost.schemas.base import MessageId
from roost.schemas.turn import QueuedMessage


def message(name: str, text: str = "") -> QueuedMessage:
    return QueuedMessage(message_id=MessageId(name), stream_id="s", accepted_at=1, text=text)


def drain(queue: Queue) -> list[str]:
    return [queue.begin().message.message_id for _ in range(len(queue))]


def test_messages_are_begun_in_order_and_once() -> None:
    queue = Queue(float)
    for name in ("a", "b", "a"):
        queue.add(message(name))
    assert queue.begin().message.message_id == "a"
    queue.add(message("a"))
    assert drain(queue) == ["b"]


def test_what_the_store_does_not_name_has_been_withdrawn() -> None:
    queue = Queue(float)
    for name in ("a", "b", "c"):
        queue.add(message(name))
    queue.begin()
    queue.replace([message("a"), message("c"), message("d")])
    assert drain(queue) == ["c", "d"]


def test_a_withdrawn_message_is_not_begun() -> None:
    queue = Queue(float)
    queue.add(message("a"))
    queue.withdraw(MessageId("a"))
    queue.withdraw(MessageId("unknown"))
    assert len(queue) == 0


def test_a_large_inbox_may_not_be_all_of_it() -> None:
    queue = Queue(float)
    queue.replace([message("a", "x" * PARTIAL_PULL)])
    assert queue.may_be_partial
    queue.replace([message("b")])
    assert not queue.may_be_partial


def test_a_message_that_the_store_names_again_has_waited_since_it_came() -> None:
    times = iter(range(9))
    queue = Queue(lambda: float(next(times)))
    queue.add(message("a"))
    queue.replace([message("a"), message("b")])
    assert [(w.message.message_id, w.since) for w in (queue.begin(), queue.begin())] == [
        ("a", 0.0),
        ("b", 1.0),
    ]
