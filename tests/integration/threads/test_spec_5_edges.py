"""The matrix of edge cases (T 5), as far as no method's own file has them, and folds that are easily got wrong (T 6.4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.thread_examples import (
    USED,
    accepted,
    begins,
    ended,
    ends,
    message,
    refusal,
    speaks,
    thread,
    turn,
    user,
)
from tests.support.thread_steps import begin, interrupt, starts
from tests.support.thread_walk import Names, Some

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

SAID: Json = {"input": [{"text": "x"}]}
NAMED: Json = {"turnId": "turn_none"}
CHOICE: Json = {**NAMED, "requestId": "apr_none", "decision": "deny"}
SO_FAR = script.silent_after(script.delta(content="so far"))
OF_A_THREAD: list[tuple[str, Json]] = [
    ("thread/resume", {}),
    ("thread/read", {}),
    ("thread/archive", {}),
    ("turn/start", SAID),
    ("turn/steer", {**NAMED, **SAID}),
    ("turn/interrupt", NAMED),
    ("approval/resolve", CHOICE),
]


@pytest.mark.parametrize(("method", "params"), OF_A_THREAD)
@pytest.mark.parametrize("name", ["th_none", "", "☃", "x" * 2_000])
def test_spec_edge_5_an_unknown_thread(
    walk: SocketWalk, method: str, params: Json, name: str
) -> None:
    """T 5, first row: every method that names a thread, whatever the name looks like."""
    walk.says({"id": 1, "method": method, "params": {"threadId": name, **params}})
    found = cast("Json", walk.next()["error"])
    data = cast("Json", found["data"])
    assert (found["code"], found["message"]) == (-32020, "Unknown thread")
    assert data.keys() == {"code", "threadId"}
    assert data["code"] == "threadNotFound"
    assert name.startswith(str(data["threadId"]))


def test_spec_edge_5_an_archived_thread(walk: SocketWalk) -> None:
    """T 5: read, resumed and archived it may be; no turn starts, and none runs that could be steered or interrupted."""
    starts(walk)
    walk.ask("thread/archive", threadId=walk.names["th_a"])
    walk.until("thread/status/changed")
    page: Json = {
        "thread": thread(updated=9, status="archived", archived=True),
        "items": [],
        "asOfSequence": 2,
    }
    mine = walk.names["th_a"]
    none: Json = {"code": "noActiveTurn", "threadId": mine, "turnId": "turn_none"}
    idle = refusal(1, -32030, "No matching active turn", **none)
    gone = {"code": "threadArchived", "threadId": mine}
    wanted: dict[str, Json] = {
        "thread/resume": {"id": 1, "result": page},
        "thread/read": {"id": 1, "result": page},
        "thread/archive": {"id": 1, "result": {}},
        "turn/start": refusal(1, -32021, "Thread is archived", **gone),
        "turn/steer": idle,
        "turn/interrupt": idle,
        "approval/resolve": refusal(
            1, -32602, "Unknown approval request", code="approvalNotFound", requestId="apr_none"
        ),
    }
    for method, params in OF_A_THREAD:
        walk.says({"id": 1, "method": method, "params": {"threadId": "th_a", **params}})
        walk.expect(wanted[method])


def test_spec_edge_5_a_turn_right_behind_an_interrupt(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 5: refused as long as the thread is not idle; taken at once behind `turn/completed`, and told after it."""
    starts(walk)
    model.play(SO_FAR)
    turns = [begun(walk)]
    for number in range(6):
        walk.until("item/agentMessage/delta")
        walk.says({"id": "i", "method": "turn/interrupt", "params": named(walk, turns[-1])})
        walk.expect({"id": "i", "result": {}})
        walk.says({"id": number, "method": "turn/start", "params": {"threadId": "th_a", **SAID}})
        told: list[Json] = []
        while "id" not in (found := walk.next()):
            told.append(found)
        if "error" in found:
            busy = {
                "code": "turnInProgress",
                "threadId": walk.names["th_a"],
                "activeTurnId": turns[-1],
            }
            text = "Thread already has an active turn"
            walk.names.matches(found, refusal(number, -32602, text, **busy))
        else:
            turns.append(turn_in(found))
        while not told or told[-1]["method"] != "turn/completed":
            told.append(walk.next())
        assert "turn/started" not in [each["method"] for each in told]
        if "error" in found:
            turns.append(begun(walk))
    walk.ask("turn/interrupt", **named(walk, turns[-1]))
    assert len(turns) == 7


def named(walk: SocketWalk, turn_id: str) -> Json:
    """Return what names a turn of the thread."""
    return {"threadId": walk.names["th_a"], "turnId": turn_id}


def begun(walk: SocketWalk) -> str:
    """Start a turn, which is accepted, and return its id."""
    walk.says({"id": "b", "method": "turn/start", "params": {"threadId": "th_a", **SAID}})
    return turn_in(walk.next())


def turn_in(answer: Json) -> str:
    return str(cast("Json", cast("Json", answer["result"])["turn"])["id"])


def test_spec_edge_5_resume_without_subscribing(walks: Walks, model: ScriptedModel) -> None:
    """T 3.4, 5: a snapshot; who did not follow does not, and who did still does."""
    walk = walks()
    other = walks(names=walk.names)
    starts(walk)
    for one in (walk, other):
        params: Json = {"threadId": "th_a", "subscribe": False}
        one.says({"id": 1, "method": "thread/resume", "params": params})
        one.expect({"id": 1, "result": {"thread": thread(), "items": [], "asOfSequence": 1}})
    model.play(script.says("Done."))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2), *speaks("tn_a", "Done.", 4, 5))
    walk.expect(*ends(ended("tn_a", "go", 2, 5, status="completed", tokenUsage=USED), 5))
    other.says({"id": 2, "method": "thread/list", "params": {"limit": 0}})
    other.expect({"id": 2, "result": {"threads": [], "total": Some()}})


def test_spec_edge_5_read_while_streaming(walks: Walks, model: ScriptedModel) -> None:
    """T 3.5, 5: the open item has its text so far, and the cursor stays before it."""
    walk = walks()
    reader = walks(names=walk.names)
    starts(walk)
    model.play(SO_FAR)
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2), *speaks("tn_a", "so far", 4, 4)[:2])
    cursor: Json = {}
    for after in (None, "item_e2"):
        items = [user(2, "tn_a", "go")] if after is None else []
        params: Json = {"threadId": "th_a", "afterItemId": after}
        reader.says({"id": 1, "method": "thread/read", "params": params})
        cursor = {"cursor": "item_e2"} if after is None else {}
        reader.expect(
            {
                "id": 1,
                "result": {
                    "thread": thread(
                        updated=3, status="running", activeTurnId="tn_a", preview="go"
                    ),
                    "items": [*items, message(4, 4, "tn_a", "so far", "inProgress")],
                    "activeTurn": turn("tn_a", "go", 2),
                    "asOfSequence": 4,
                    **cursor,
                },
            }
        )
    interrupt(walk)


def test_spec_edge_5_an_unknown_model_makes_nothing(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.3, 3.8, 5: neither a thread nor a turn."""
    model.play(script.body(b'{"data":[{"id":"big"}]}'))
    before = walk.ask("thread/list", limit=0)["total"]
    data: Json = {"code": "unknownModel", "model": "none"}
    walk.says({"id": 1, "method": "thread/start", "params": {"model": "none"}})
    walk.expect(refusal(1, -32602, Some(), **data))
    assert walk.ask("thread/list", limit=0)["total"] == before
    starts(walk)
    params: Json = {"threadId": "th_a", **SAID, "model": "none"}
    walk.says({"id": 2, "method": "turn/start", "params": params})
    walk.expect(refusal(2, -32602, Some(), **data))
    walk.says({"id": 3, "method": "thread/read", "params": {"threadId": "th_a"}})
    walk.expect({"id": 3, "result": {"thread": thread(), "items": [], "asOfSequence": 1}})


def test_spec_edge_6_4_a_step_without_words_makes_no_item(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 6.4, 6.5: an empty last message ends the turn and is no item."""
    starts(walk)
    model.play(script.says(""))
    begin(walk, "go")
    walk.expect(*begins("tn_a", "go", 2))
    walk.until("turn/completed")
    walk.says({"id": 3, "method": "thread/read", "params": {"threadId": "th_a"}})
    items = [user(2, "tn_a", "go")]
    shown = thread(updated=9, preview="go")
    page: Json = {"thread": shown, "items": items, "asOfSequence": 4, "cursor": "item_e2"}
    walk.expect({"id": 3, "result": page})


def test_spec_edge_4_2_two_calls_of_one_step(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.2 rules 4 and 7: the flag stands as long as something waits; each decision is for its own call."""
    pieces: list[Json | str] = []
    for at, name in enumerate(("a", "b")):
        pieces.append(script.call_piece(at, "", call_id=f"c{at}", name="write_file"))
        pieces.append(script.call_piece(at, json.dumps({"path": name, "content": name})))
    step = script.events([*pieces, script.finish("tool_calls"), "[DONE]"])
    model.play(step, script.says("Done."))
    starts(walk, cwd=str(tmp_path))
    begin(walk, "go")
    for name, decision in (("a", "deny"), ("b", "allow")):
        asked = cast("Json", walk.until("approval/requested")["params"])
        assert asked["preview"] == f'write_file {{"path":"{name}","content":"{name}"}}'
        row = cast("Json", walk.ask("thread/read", threadId=walk.names["th_a"])["thread"])
        assert row["activeFlags"] == ["waitingOnApproval"]
        which = {key: asked[key] for key in ("threadId", "turnId", "requestId")}
        walk.says(
            {"id": name, "method": "approval/resolve", "params": {**which, "decision": decision}}
        )
        told = cast("Json", walk.until("approval/resolved")["params"])
        assert (told["requestId"], told["decision"]) == (asked["requestId"], decision)
        changed = cast("Json", walk.until("thread/status/changed")["params"])
        assert "activeFlags" not in changed
    walk.until("turn/completed")
    assert [(tmp_path / name).exists() for name in ("a", "b")] == [False, True]


def test_spec_edge_2_previews_are_cut(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 2: 200 characters of the first thing said, and of what is asked; both whole where they are read back."""
    said, text = "é" * 300, "x" * 300
    arguments = json.dumps({"path": "a.md", "content": text})
    model.play(script.calls("write_file", arguments), script.says("Done."))
    starts(walk, cwd=str(tmp_path))
    begin(walk, said)
    asked = cast("Json", walk.until("approval/requested")["params"])
    assert asked["preview"] == f'write_file {{"path":"a.md","content":"{text}'[:200]
    assert asked["arguments"] == {"path": "a.md", "content": text}
    page = walk.ask("thread/read", threadId=walk.names["th_a"])
    assert cast("Json", page["thread"])["preview"] == said[:200]
    assert cast("Json", cast("list[Json]", page["items"])[0]["content"])["text"] == said
    interrupt_all(walk)


def interrupt_all(walk: SocketWalk) -> None:
    """End the turn, whatever is told meanwhile."""
    walk.ask("turn/interrupt", threadId=walk.names["th_a"], turnId=walk.names["tn_a"])
    walk.until("turn/completed")


def test_spec_8_fifty_clients_start_a_turn_at_once(walks: Walks, model: ScriptedModel) -> None:
    """T 8: one is accepted, the others are told which turn runs."""
    model.play(SO_FAR)
    walk = walks()
    starts(walk)
    racing = [walk, *(walks(names=walk.names) for _ in range(49))]
    for one in racing:
        one.says({"id": 1, "method": "turn/start", "params": {"threadId": "th_a", **SAID}})
    answers = [one.answer_to(1) for one in racing]
    (won,) = [answer for answer in answers if "result" in answer]
    walk.names.matches(won, {"id": 1, "result": accepted("tn_a", "x")})
    mine = {"threadId": walk.names["th_a"], "activeTurnId": walk.names["tn_a"]}
    busy = refusal(1, -32602, "Thread already has an active turn", code="turnInProgress", **mine)
    assert [answer for answer in answers if "error" in answer] == [busy] * 49
    walk.ask("turn/interrupt", threadId=walk.names["th_a"], turnId=walk.names["tn_a"])


def test_spec_edge_4_3_two_answer_differently_at_once(
    walks: Walks, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 5, 8: one decision, the same for both, and the call has run or not as it says."""
    walk = walks()
    other = walks(names=walk.names)
    for number in range(4):
        walk.names = other.names = Names()
        model.play(script.calls("write_file", '{"path":"a.md","content":"x"}'), script.says("ok"))
        (tmp_path / "a.md").unlink(missing_ok=True)
        starts(walk, cwd=str(tmp_path))
        other.ask("thread/resume", threadId=walk.names["th_a"])
        begin(walk, "go")
        asked = [one.until("approval/request") for one in (walk, other)]
        words = ("allow", "deny") if number % 2 else ("deny", "allow")
        for one, word in zip((walk, other), words, strict=True):
            one.says({"id": asked[0]["id"], "result": {"decision": word}})
        told = [cast("Json", one.until("approval/resolved")["params"]) for one in (walk, other)]
        assert told[0] == told[1]
        walk.until("turn/completed")
        other.until("turn/completed")
        assert (tmp_path / "a.md").exists() == (told[0]["decision"] == "allow")


def test_spec_edge_3_6_at_most_a_thousand_rows(walk: SocketWalk) -> None:
    """T 3.6: so many without a limit and with a larger one; the rest by their offset."""
    for _ in range(63):
        for number in range(16):
            walk.says({"id": number, "method": "thread/start", "params": {"cwd": "/tmp"}})
        for _ in range(16):
            walk.until("thread/started")
    for params in ({}, {"limit": 1000}, {"limit": 5000}):
        page = walk.ask("thread/list", includeArchived=True, **params)
        total = cast("int", page["total"])
        first = [one["id"] for one in cast("list[Json]", page["threads"])]
        assert (len(first), total >= 1008) == (1000, True)
    rest = walk.ask("thread/list", includeArchived=True, offset=1000)
    last = [one["id"] for one in cast("list[Json]", rest["threads"])]
    assert len(set(first) | set(last)) == total
