"""What happens at limits (T 1.6, 1.7, 4.1, 4.3) and to ephemeral threads (T 5), in a daemon whose limits are low."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.daemon import eventually
from tests.support.processes import stand_still
from tests.support.thread_examples import (
    USED,
    asks,
    begins,
    call,
    decides,
    ended,
    ends,
    note,
    refusal,
    speaks,
    tells,
    thread,
    waits,
)
from tests.support.thread_steps import begin, starts
from tests.support.thread_walk import Some

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.daemon import RunningDaemon
    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

BUSY = "Server overloaded; retry later."
BURST = 60
THREADS = 14
WRITE = script.calls("write_file", '{"path":"a.md","content":"x"}')


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    return (
        "limits.in_flight_requests=1",
        "limits.queued_requests=4",
        "limits.unix_rate=1",
        f"limits.unix_burst={BURST}",
        "agents.max_iterations=1",
        "approvals.timeout=0.2",
        "store.ephemeral_idle=0.2",
        f"store.sessions={THREADS}",
    )


def lines(walk: SocketWalk, *requests: Json) -> bytes:
    """Return requests as one write."""
    return b"\n".join(json.dumps(walk.names.filled(one)).encode() for one in requests)


def test_spec_edge_1_7_a_full_queue_refuses_and_decisions_pass(
    daemon: RunningDaemon, walk: SocketWalk
) -> None:
    """T 1.7: at once and not executed; `turn/interrupt` and `approval/resolve` are taken all the same."""
    reads: Json = {"method": "thread/read", "params": {"threadId": "x"}}
    turn: Json = {"threadId": "x", "turnId": "y"}
    decision: Json = {**turn, "requestId": "z", "decision": "deny"}
    control: list[Json] = [
        {"id": 100, "method": "turn/interrupt", "params": turn},
        {"id": 101, "method": "approval/resolve", "params": decision},
    ]
    store = daemon.pid("store")
    stand_still(store)
    try:
        walk.says(lines(walk, *({"id": at, **reads} for at in range(20)), *control))
        refused = [walk.next() for _ in range(15)]
    finally:
        os.kill(store, signal.SIGCONT)
    for number, answer in enumerate(refused, 5):
        data = more(answer)
        walk.names.matches(answer, refusal(number, -32001, BUSY, code="tooManyQueued", **data))
    taken = [walk.next() for _ in range(7)]
    assert {each["id"] for each in taken} == {*range(5), 100, 101}
    assert {cast("Json", each["error"])["code"] for each in taken} == {-32020}


def lists(number: int) -> Json:
    """Return a request that is answered at once."""
    return {"id": number, "method": "thread/list", "params": {"limit": 0}}


def more(answer: Json) -> Json:
    """Return what else the data of an error says, by which a client can tell how full it is."""
    data = cast("Json", cast("Json", answer["error"]).get("data") or {})
    return {name: Some() for name in data if name != "code"}


def test_spec_edge_1_7_the_rate(walk: SocketWalk) -> None:
    """T 1.7: one answer each; the control lane and the answers of the client are not metered."""
    number, answer = 0, walk.answer(lists(0))
    while "result" in answer:
        walk.names.matches(answer, {"id": number, "result": {"threads": [], "total": Some()}})
        number += 1
        answer = walk.answer(lists(number))
    assert number >= BURST - 1
    further = more(answer)
    walk.names.matches(answer, refusal(number, -32001, BUSY, code="rateLimited", **further))
    assert "retryAfterMs" in further
    walk.says({"id": "apr_none", "result": {"decision": "allow"}})
    params: Json = {"threadId": "none", "turnId": "x"}
    walk.says({"id": "i", "method": "turn/interrupt", "params": params})
    walk.expect(refusal("i", -32020, "Unknown thread", code="threadNotFound", threadId="none"))


def test_spec_edge_4_1_too_many_steps(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.1, 6.4: the warning `max_iterations` before the end of a failed turn."""
    (tmp_path / "a.md").write_text("x")
    model.play(script.calls("read_file", '{"path":"a.md"}'), script.says("never"))
    starts(walk, cwd=str(tmp_path))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2))
    warned = walk.until("error/warning")
    text = "the limit of 1 iterations is reached"
    walk.names.matches(
        warned, note("error/warning", 7, turnId="tn_a", message=text, code="max_iterations")
    )
    error: Json = {"message": text, "code": "max_iterations", "retryable": False}
    walk.expect(*ends(ended("tn_a", "go", 2, 7, status="failed", error=error), 7))


def test_spec_edge_4_3_a_decision_that_nobody_takes(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.3: after the time for it a denial, with the reason `timeout`; the design decides that the time is a setting."""
    model.play(WRITE, script.says("Done."))
    starts(walk, cwd=str(tmp_path))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2))
    waiting = waits("tn_a", 4, 5)
    for at in (2, 3):
        waiting[at]["params"] = {**asks(5, "tn_a"), "expiresAtMs": Some()}
    walk.expect(*waiting)
    walk.expect(*decides("tn_a", 5, 6, "deny", code="APPROVAL_TIMEOUT", reason="timeout"))
    content: Json = {
        "status": "error",
        "error": Some(),
        "errorCode": "APPROVAL_TIMEOUT",
        "outcome": "not_started",
    }
    walk.expect(tells("completed", call(4, 7, "tn_a", "failed", **content), 7))
    walk.until("turn/completed")


def test_spec_4_1_used_tokens_are_for_those_who_ask(walks: Walks, model: ScriptedModel) -> None:
    """T 4.1: `thread/tokenUsage/updated` is experimental; the others hear the same without it."""
    walk = walks(experimentalApi=True)
    plain = walks(names=walk.names)
    model.play(script.says("Done."))
    starts(walk)
    plain.ask("thread/resume", threadId=walk.names["th_a"])
    begin(walk, "go")
    told = [*begins("tn_a", "go", 2), *speaks("tn_a", "Done.", 4, 5)]
    end = ends(ended("tn_a", "go", 2, 5, status="completed", tokenUsage=USED), 5)
    used = note("thread/tokenUsage/updated", 5, turnId="tn_a", tokenUsage=USED)
    walk.expect(*told, used, *end)
    plain.expect(*told, *end)


def test_spec_5_an_ephemeral_thread_while_it_lives(walks: Walks, model: ScriptedModel) -> None:
    """T 5: listed as what it is, read, resumed and run like any other; archived it is gone, and its followers hear it."""
    walk = walks()
    other = walks(names=walk.names)
    starts(walk, ephemeral=True)
    model.play(script.says("Done."))
    begin(walk, "go")
    walk.until("turn/completed")
    shown = thread(updated=9, ephemeral=True, preview="go")
    other.says({"id": 1, "method": "thread/list", "params": {"limit": 1}})
    other.expect({"id": 1, "result": {"threads": [shown], "total": Some()}})
    for method in ("thread/read", "thread/resume"):
        page = other.ask(method, threadId=walk.names["th_a"])
        assert [each["type"] for each in cast("list[Json]", page["items"])] == [
            "userMessage",
            "agentMessage",
        ]
    walk.says({"id": 2, "method": "thread/archive", "params": {"threadId": "th_a"}})
    walk.expect({"id": 2, "result": {}}, note("thread/archived", 6))
    for one in (walk, other):
        assert "threadId" in cast("Json", one.until("thread/closed")["params"])
        error = one.refused("thread/read", threadId=walk.names["th_a"])
        assert error["code"] == -32020


def test_spec_5_an_ephemeral_thread_without_followers_is_dropped(walks: Walks) -> None:
    """T 5: as long as somebody follows it stays; when nobody does and nothing runs it goes."""
    walk = walks()
    starts(walk, ephemeral=True)
    mine = walk.names["th_a"]
    assert cast("Json", walk.ask("thread/read", threadId=mine)["thread"])["id"] == mine
    walk.close()

    def gone() -> bool:
        other = walks()
        answer = other.answer({"id": 1, "method": "thread/read", "params": {"threadId": mine}})
        return cast("Json", answer.get("error") or {}).get("code") == -32020

    assert eventually(gone)


def test_spec_edge_1_6_a_store_that_is_full(walk: SocketWalk) -> None:
    """T 1.6, 3.3: −32603, and nothing is made. The last test of this daemon: it takes no thread after it."""
    request: Json = {"id": 1, "method": "thread/start", "params": {}}
    answer, made = walk.answer(request), 0
    while "result" in answer and made < THREADS:
        answer, made = walk.answer(request), made + 1
    walk.names.matches(answer, refusal(1, -32603, Some(), code="storeFull", **more(answer)))
    before = walk.ask("thread/list", limit=0, includeArchived=True)["total"]
    assert walk.refused("thread/start")["code"] == -32603
    assert walk.ask("thread/list", limit=0, includeArchived=True)["total"] == before
