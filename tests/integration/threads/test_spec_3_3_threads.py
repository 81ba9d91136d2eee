"""Threads as T 3.3 to 3.7 show them: start, resume, read, list, archive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.thread_examples import (
    USED,
    begins,
    ended,
    ends,
    message,
    note,
    refusal,
    speaks,
    status,
    tells,
    thread,
    turn,
    user,
)
from tests.support.thread_steps import begin, in_two, starts
from tests.support.thread_walk import Names, OneOf, Some

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

DOCS: Json = {"title": "Tidy docs", "cwd": "/w/docs"}


def whole_turn(walk: SocketWalk, model: ScriptedModel, said: str, answer: str) -> None:
    """Have the first turn of `th_a` said and answered."""
    model.play(script.says(answer))
    begin(walk, said)
    walk.expect(*begins("tn_a", said, 2), *speaks("tn_a", answer, 4, 5))
    done = ended("tn_a", said, 2, 5, status="completed", tokenUsage=USED)
    walk.expect(*ends(done, 5))


def test_spec_3_3_thread_start(walk: SocketWalk) -> None:
    """T 3.3, the example: result and `thread/started` hold the same thread."""
    walk.says({"id": 2, "method": "thread/start", "params": DOCS})
    walk.expect({"id": 2, "result": {"thread": thread(**DOCS)}})
    walk.expect({"method": "thread/started", "params": {"thread": thread(**DOCS), "sequence": 1}})


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({}, {}),
        ({"params": None}, {}),
        ({"params": {"cwd": None, "title": None, "model": None}}, {}),
        ({"params": {"title": "", "cwd": ""}}, {"title": "", "cwd": ""}),
        ({"params": {"ephemeral": True}}, {"ephemeral": True}),
        ({"params": {"model": "m"}}, {"model": "m"}),
    ],
)
def test_spec_edge_3_3_what_thread_start_takes(
    walk: SocketWalk, model: ScriptedModel, params: Json, shown: Json
) -> None:
    """T 3.3, edges; T 1.1: null is as good as absent, and what is absent is left out."""
    model.play(script.body(b'{"data":[]}'))
    walk.says({"id": 2, "method": "thread/start", **params})
    walk.expect({"id": 2, "result": {"thread": thread(**shown)}})


def test_spec_edge_3_3_thread_started_is_for_the_caller_alone(walks: Walks) -> None:
    """T 3.3: nobody else is told."""
    walk, other = walks(), walks()
    starts(walk)
    other.says({"id": 1, "method": "thread/list", "params": {"limit": 0}})
    other.expect({"id": 1, "result": {"threads": [], "total": Some()}})


def test_spec_3_4_thread_resume(walks: Walks, model: ScriptedModel) -> None:
    """T 3.4, the example: a thread whose turn runs; items have `source` and `turnId`, the turn its `model`."""
    walk = walks()
    late = walks(names=walk.names)
    starts(walk)
    model.play(script.silent_after())
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2))
    late.says({"id": 3, "method": "thread/resume", "params": {"threadId": "th_a"}})
    late.expect(
        {
            "id": 3,
            "result": {
                "thread": thread(updated=3, status="running", activeTurnId="tn_a", preview="go"),
                "items": [user(2, "tn_a", "go")],
                "activeTurn": turn("tn_a", "go", 2),
                "asOfSequence": OneOf(2, 3),
                "cursor": "item_e2",
            },
        }
    )
    walk.ask("turn/interrupt", threadId=walk.names["th_a"], turnId=walk.names["tn_a"])


def test_spec_edge_3_4_a_streamed_message_goes_on_behind_the_snapshot(
    walks: Walks, model: ScriptedModel
) -> None:
    """T 3.4: what is in the snapshot is not told again, and what follows continues it. Twice makes no difference."""
    walk = walks()
    late = walks(names=walk.names)
    starts(walk)
    gate = threading.Event()
    model.play(in_two("Do", "ne.", gate))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2), *speaks("tn_a", "Do", 4, 4)[:2])
    page: Json = {
        "thread": thread(updated=3, status="running", activeTurnId="tn_a", preview="go"),
        "items": [user(2, "tn_a", "go"), message(4, 4, "tn_a", "Do", "inProgress")],
        "activeTurn": turn("tn_a", "go", 2),
        "asOfSequence": 4,
        "cursor": "item_e2",
    }
    for number in (1, 2):
        late.says({"id": number, "method": "thread/resume", "params": {"threadId": "th_a"}})
        late.expect({"id": number, "result": page})
    gate.set()
    rest = [
        note("item/agentMessage/delta", 5, turnId="tn_a", itemId="item_e4", delta="ne."),
        tells("completed", message(4, 6, "tn_a", "Done."), 6),
        *ends(ended("tn_a", "go", 2, 6, status="completed", tokenUsage=USED), 6),
    ]
    late.expect(*rest)
    walk.expect(*rest)


def test_spec_3_5_thread_read(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.5, the example: what is behind the first item."""
    starts(walk)
    whole_turn(walk, model, "go", "Done.")
    params = {"threadId": "th_a", "afterItemId": "item_e2"}
    walk.says({"id": 4, "method": "thread/read", "params": params})
    walk.expect(
        {
            "id": 4,
            "result": {
                "thread": thread(updated=50, preview="go"),
                "items": [message(4, 5, "tn_a", "Done.")],
                "asOfSequence": 5,
                "cursor": "item_e4",
            },
        }
    )


def test_spec_edge_3_5_cursors(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.5: nothing behind the last item; an unknown or foreign one gives all and `reset`; null is none."""
    starts(walk)
    head: Json = {"thread": thread(), "items": [], "asOfSequence": 1}
    walk.says({"id": 0, "method": "thread/read", "params": {"threadId": "th_a"}})
    walk.expect({"id": 0, "result": head})
    whole_turn(walk, model, "go", "Done.")
    whole: Json = {
        "thread": thread(updated=50, preview="go"),
        "items": [user(2, "tn_a", "go"), message(4, 5, "tn_a", "Done.")],
        "asOfSequence": 5,
        "cursor": "item_e4",
    }
    behind: Json = {**whole, "items": []}
    # There is no item of which to say that nothing before it changes.
    del behind["cursor"]
    pages: list[tuple[str | None, Json]] = [
        (None, whole),
        ("", whole),
        ("item_none", {**whole, "reset": True}),
        ("item_e4", behind),
    ]
    for after, page in pages:
        params = {"threadId": "th_a", "afterItemId": after}
        walk.says({"id": 1, "method": "thread/read", "params": params})
        walk.expect({"id": 1, "result": page})
    other = Names()
    walk.names, mine = other, walk.names
    starts(walk, "th_b")
    params = {"threadId": "th_b", "afterItemId": mine["item_e4"]}
    walk.says({"id": 2, "method": "thread/read", "params": params})
    empty: Json = {"thread": thread("th_b"), "items": [], "asOfSequence": 1, "reset": True}
    walk.expect({"id": 2, "result": empty})


def test_spec_3_6_thread_list(walk: SocketWalk) -> None:
    """T 3.6, the example: one of the archived ones, and how many there are."""
    starts(walk, title="old")
    walk.ask("thread/archive", threadId=walk.names["th_a"])
    walk.until("thread/status/changed")
    walk.says({"id": 5, "method": "thread/list", "params": {"archived": True, "limit": 1}})
    archived = thread(updated=9, title="old", status="archived", archived=True)
    walk.expect({"id": 5, "result": {"threads": [archived], "total": Some()}})


def test_spec_edge_3_6_which_threads_are_listed(walk: SocketWalk) -> None:
    """T 3.6, the table of filters; `limit` 0, an offset past the end, a limit past 1000, and null."""
    made = [cast("Json", walk.ask("thread/start")["thread"]) for _ in range(2)]
    open_one, closed = (one["id"] for one in made)
    walk.ask("thread/archive", threadId=closed)
    walk.until("thread/status/changed")
    table: list[tuple[Json, bool, bool]] = [
        ({"archived": True}, False, True),
        ({"archived": True, "includeArchived": True}, False, True),
        ({"archived": True, "includeArchived": False}, False, True),
        ({"archived": False}, True, False),
        ({"archived": False, "includeArchived": True}, True, False),
        ({"archived": False, "includeArchived": False}, True, False),
        ({"archived": None, "includeArchived": True}, True, True),
        ({"includeArchived": True}, True, True),
        ({"archived": None, "includeArchived": False}, True, False),
        ({"archived": None}, True, False),
        ({"includeArchived": False}, True, False),
        ({}, True, False),
    ]
    for params, has_open, has_closed in table:
        page = walk.ask("thread/list", **params)
        listed = [one["id"] for one in cast("list[Json]", page["threads"])]
        assert ((open_one in listed), (closed in listed)) == (has_open, has_closed), params
        assert page["total"] == len(listed)
    total = cast("int", walk.ask("thread/list")["total"])
    ids = [one["id"] for one in cast("list[Json]", walk.ask("thread/list")["threads"])]
    pages: list[tuple[Json, list[object]]] = [
        ({"limit": 0}, []),
        ({"offset": total}, []),
        ({"offset": 10**9, "limit": 1}, []),
        ({"offset": None, "limit": None}, ids),
        ({"limit": 1001}, ids),
        ({"limit": 2**63 - 1, "offset": 0}, ids),
        ({"offset": total - 1}, ids[-1:]),
        ({"limit": 1}, ids[:1]),
    ]
    for params, wanted in pages:
        page = walk.ask("thread/list", **params)
        assert [one["id"] for one in cast("list[Json]", page["threads"])] == wanted, params
        assert page["total"] == total


def test_spec_3_7_thread_archive(walk: SocketWalk) -> None:
    """T 3.7, the example: the answer, then the two notifications."""
    starts(walk)
    walk.says({"id": 6, "method": "thread/archive", "params": {"threadId": "th_a"}})
    walk.expect(
        {"id": 6, "result": {}},
        note("thread/archived", 2),
        note("thread/status/changed", 2, status="archived"),
    )


def test_spec_edge_3_7_archiving_twice_and_from_outside(walks: Walks) -> None:
    """T 3.7: the second time nothing is told; who archives is told, and follows nothing because of it."""
    walk = walks()
    other = walks(names=walk.names)
    starts(walk)
    other.says({"id": 1, "method": "thread/archive", "params": {"threadId": "th_a"}})
    told = [note("thread/archived", 2), note("thread/status/changed", 2, status="archived")]
    other.expect({"id": 1, "result": {}}, *told)
    walk.expect(*told)
    for one in (walk, other):
        one.says({"id": 2, "method": "thread/archive", "params": {"threadId": "th_a"}})
        one.expect({"id": 2, "result": {}})
    other.says({"id": 3, "method": "thread/resume", "params": {"threadId": "th_a"}})
    closed = thread(updated=9, status="archived", archived=True)
    other.expect({"id": 3, "result": {"thread": closed, "items": [], "asOfSequence": 2}})


def test_spec_edge_3_7_a_running_turn_ends_first(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.7: `turn/completed` comes before the answer, and nothing of the turn after it."""
    starts(walk)
    model.play(script.silent_after(script.delta(content="so far")))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2), *speaks("tn_a", "so far", 4, 4)[:2])
    walk.says({"id": 6, "method": "thread/archive", "params": {"threadId": "th_a"}})
    cut = message(4, 6, "tn_a", "so far", "interrupted")
    walk.expect(
        status(5, "tn_a", "cancelling"),
        tells("completed", cut, 6),
        *ends(ended("tn_a", "go", 2, 6, status="interrupted"), 6),
        {"id": 6, "result": {}},
        note("thread/archived", 7),
        note("thread/status/changed", 7, status="archived"),
    )
    walk.says(
        {"id": 7, "method": "turn/start", "params": {"threadId": "th_a", "input": [{"text": "x"}]}}
    )
    data: Json = {"code": "threadArchived", "threadId": walk.names["th_a"]}
    walk.expect(refusal(7, -32021, "Thread is archived", **data))
