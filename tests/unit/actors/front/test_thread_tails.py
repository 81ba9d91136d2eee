from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from roost.actors.errors import DaemonError
from roost.actors.front.promise import Promise
from roost.actors.front.thread_tails import ThreadTail

if TYPE_CHECKING:
    from roost.actors.front.stream import Stream
    from roost.actors.front.thread_tails import Threads


def test_who_waits_for_a_thread_that_goes_while_it_is_opened_is_told() -> None:
    opened: Promise[None] = Promise()
    forgotten: list[ThreadTail] = []
    stream = SimpleNamespace(session_id="gone", opened=opened)
    threads = SimpleNamespace(forget=forgotten.append, wait_ms=0)
    tail = ThreadTail(cast("Threads", threads), cast("Stream", stream))
    tail.begin()
    tail.dropped("expired")
    assert tail.ready.done
    with pytest.raises(DaemonError, match="gone"):
        tail.ready.result()
    assert tail.closed.done
    assert forgotten == [tail]
