"""Turns as T 3.8 to 3.10 show them: start, interrupt, steer; and the order in which a turn is told (T 4.2)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.thread_examples import (
    USED,
    accepted,
    begins,
    both,
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
from tests.support.thread_steps import interrupts, says, starts, steers
from tests.support.thread_walk import Some
from tests.support.turn_client import gated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

HEADINGS = "List the headings"
SO_FAR = script.silent_after(script.delta(content="so far"))


def inactive(number: int, walk: SocketWalk, which: str = "tn_a", was: str = "") -> Json:
    """Return the refusal of what is for a turn that does not run."""
    data = {"code": "noActiveTurn", "threadId": walk.names["th_a"], "turnId": walk.names[which]}
    if was:
        data["turnStatus"] = was
    return refusal(number, -32030, "No matching active turn", **data)


def running(walk: SocketWalk, model: ScriptedModel, *answers: script.Answer) -> None:
    """Start a thread and a turn in it that has said `so far` and waits."""
    model.play(*(answers or (SO_FAR,)))
    starts(walk)
    says(walk, 1, HEADINGS)
    walk.expect({"id": 1, "result": accepted("tn_a", HEADINGS)})
    walk.expect(*begins("tn_a", HEADINGS, 2), *speaks("tn_a", "so far", 4, 4)[:2])


def cut(at: int) -> list[Json]:
    """Return what is told of the end of such a turn by an interrupt."""
    return [
        tells("completed", message(4, at, "tn_a", "so far", "interrupted"), at),
        *ends(ended("tn_a", HEADINGS, 2, at, status="interrupted"), at),
    ]


def test_spec_3_8_turn_start(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.8, the example, and T 4.2 rules 1 to 3: the answer, then the whole turn to its end.

    The design decides that `runId` is the turn's own id; it is `queued` until its agent has begun it.
    """
    model.play(script.says("Done."))
    starts(walk)
    says(walk, 7, HEADINGS)
    walk.expect({"id": 7, "result": accepted("tn_b", HEADINGS)})
    walk.expect(*begins("tn_b", HEADINGS, 2), *speaks("tn_b", "Done.", 4, 5))
    walk.expect(*ends(ended("tn_b", HEADINGS, 2, 5, status="completed", tokenUsage=USED), 5))


def test_spec_edge_3_8_texts_are_lines_and_stay_as_they_were_given(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.8: one message of two lines; `input` holds both, also at the end. Typed pieces are taken, as the design decides."""
    model.play(script.says("Done."))
    starts(walk)
    pieces: list[Json] = [{"type": "text", "text": "a", "text_elements": []}, {"text": "b"}]
    params: Json = {"threadId": "th_a", "input": pieces, "approvalPolicy": "never"}
    walk.says({"id": 7, "method": "turn/start", "params": params})
    walk.expect({"id": 7, "result": accepted("tn_a", "a", "b")})
    given = {"input": [{"text": "a"}, {"text": "b"}]}
    begun = begins("tn_a", "a\nb", 2)
    begun[1] = note("turn/started", 2, turn={**turn("tn_a", "", 2), **given})
    walk.expect(*begun, *speaks("tn_a", "Done.", 4, 5))
    done = ended("tn_a", "", 2, 5, status="completed", tokenUsage=USED)
    walk.expect(*ends({**done, **given}, 5))


def test_spec_edge_3_8_refusals_come_in_their_order_and_leave_nothing(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.8, errors: of two that fit the first in the order is told; then nothing has happened."""
    model.play(script.body(b'{"data":[{"id":"m"}]}'), SO_FAR)
    starts(walk)
    large = "x" * 1_100_000
    wrong: list[tuple[Json, int, Json]] = [
        ({"threadId": "none", "input": [{"text": 1}]}, -32602, {"code": "invalidParams"}),
        ({"threadId": "none", "input": []}, -32602, {"code": "emptyInput"}),
        ({"threadId": "none", "input": [{"text": ""}]}, -32602, {"code": "emptyInput"}),
        ({"threadId": "none", "input": [{"text": large}]}, -32602, {"code": "inputTooLarge"}),
        (
            {"threadId": "none", "input": [{"text": "x"}], "model": "none"},
            -32020,
            {"code": "threadNotFound"},
        ),
        (
            {"threadId": "th_a", "input": [{"text": "x"}], "model": "none"},
            -32602,
            {"code": "unknownModel"},
        ),
    ]
    for params, code, data in wrong:
        answer = walk.answer({"id": 2, "method": "turn/start", "params": params})
        error = cast("Json", answer["error"])
        assert (error["code"], cast("Json", error["data"])["code"]) == (code, data["code"]), params
    walk.says({"id": 3, "method": "thread/read", "params": {"threadId": "th_a"}})
    walk.expect({"id": 3, "result": {"thread": thread(), "items": [], "asOfSequence": 1}})
    says(walk, 4, HEADINGS)
    walk.expect({"id": 4, "result": accepted("tn_a", HEADINGS)})
    walk.until("item/agentMessage/delta")
    says(walk, 5, "x", model="none")
    busy = {
        "code": "turnInProgress",
        "threadId": walk.names["th_a"],
        "activeTurnId": walk.names["tn_a"],
    }
    walk.expect(refusal(5, -32602, "Thread already has an active turn", **busy))
    walk.ask("thread/archive", threadId=walk.names["th_a"])
    walk.until("thread/archived")
    walk.until("thread/status/changed")
    says(walk, 6, "x", model="none")
    data = {"code": "threadArchived", "threadId": walk.names["th_a"]}
    walk.expect(refusal(6, -32021, "Thread is archived", **data))


def test_spec_edge_3_8_of_two_at_once_one_begins(walks: Walks, model: ScriptedModel) -> None:
    """T 3.8: from two connections; who was refused follows nothing because of it."""
    walk = walks()
    other = walks(names=walk.names)
    model.play(SO_FAR)
    starts(walk)
    for one in (walk, other):
        says(one, 2, HEADINGS)
    answers = {one: one.next() for one in (walk, other)}
    (winner,) = [one for one, answer in answers.items() if "result" in answer]
    (loser,) = [one for one in answers if one is not winner]
    walk.names.matches(answers[winner], {"id": 2, "result": accepted("tn_a", HEADINGS)})
    busy = {
        "code": "turnInProgress",
        "threadId": walk.names["th_a"],
        "activeTurnId": walk.names["tn_a"],
    }
    text = "Thread already has an active turn"
    walk.names.matches(answers[loser], refusal(2, -32602, text, **busy))
    winner.until("item/agentMessage/delta")
    other.says({"id": 3, "method": "thread/list", "params": {"limit": 0}})
    if loser is other:
        other.expect({"id": 3, "result": {"threads": [], "total": Some()}})
    winner.ask("turn/interrupt", threadId=walk.names["th_a"], turnId=walk.names["tn_a"])


def test_spec_edge_3_8_a_turn_that_fails_is_told_by_its_end(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.8 and 4.2 rule 2: `error/warning` before the end, the error in the turn; the thread idles."""
    model.play(script.status(400))
    starts(walk)
    says(walk, 7, HEADINGS)
    walk.expect({"id": 7, "result": accepted("tn_a", HEADINGS)})
    walk.expect(*begins("tn_a", HEADINGS, 2))
    text = "the provider answered with status 400"
    walk.expect(note("error/warning", 4, turnId="tn_a", message=text, code="run_failed"))
    error: Json = {"message": text, "code": "PROVIDER_API_ERROR", "retryable": False}
    walk.expect(*ends(ended("tn_a", HEADINGS, 2, 4, status="failed", error=error), 4))


def test_spec_edge_3_8_a_turn_goes_on_when_its_client_has_left(
    walks: Walks, model: ScriptedModel
) -> None:
    """T 3.8, 5: what follows is told to the others."""
    walk = walks()
    other = walks(names=walk.names)
    gate = threading.Event()
    model.play(gated(gate, script.says("Done.")))
    starts(walk)
    other.ask("thread/resume", threadId=walk.names["th_a"])
    says(walk, 7, HEADINGS)
    walk.expect({"id": 7, "result": accepted("tn_a", HEADINGS)})
    walk.close()
    gate.set()
    other.expect(*begins("tn_a", HEADINGS, 2), *speaks("tn_a", "Done.", 4, 5))
    other.expect(*ends(ended("tn_a", HEADINGS, 2, 5, status="completed", tokenUsage=USED), 5))


def test_spec_3_9_turn_interrupt(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.9, the example: the answer, the end of what is open, one `turn/completed`; then the thread takes the next turn."""
    running(walk, model)
    interrupts(walk, 8)
    walk.expect({"id": 8, "result": {}})
    walk.expect(status(5, "tn_a", "cancelling"), *cut(6))
    model.play(script.says("Done."))
    says(walk, 9, "next")
    walk.expect({"id": 9, "result": accepted("tn_b", "next")})
    walk.expect(*begins("tn_b", "next", 7), *speaks("tn_b", "Done.", 9, 10))
    walk.expect(*ends(ended("tn_b", "next", 7, 10, status="completed", tokenUsage=USED), 10))


def test_spec_edge_3_9_twice_at_once_and_once_more_after_the_end(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.9: while it unwinds `{}` again and nothing told anew; after its end −32030 with what it ended as."""
    running(walk, model)
    line = b'{"id":%d,"method":"turn/interrupt","params":{"threadId":"%b","turnId":"%b"}}'
    names = walk.names["th_a"].encode(), walk.names["tn_a"].encode()
    walk.says(line % (8, *names) + b"\n" + line % (9, *names))
    answers: list[Json] = []
    told: list[Json] = []
    while len(answers) < 2 or not told or told[-1]["method"] != "turn/completed":
        (told if "method" in (found := walk.next()) else answers).append(found)
    assert answers[0] == {"id": 8, "result": {}}
    assert answers[1] in ({"id": 9, "result": {}}, inactive(9, walk, was="interrupted"))
    for found, example in zip(told, [status(5, "tn_a", "cancelling"), *cut(6)], strict=True):
        walk.names.matches(found, example)
    interrupts(walk, 10)
    walk.expect(inactive(10, walk, was="interrupted"))


def test_spec_edge_3_9_after_a_natural_end(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.9, the race that completion has won; a thread without any turn; one that there is not; another turn."""
    model.play(script.says("Done."))
    starts(walk)
    interrupts(walk, 2, "turn_none")
    walk.expect(inactive(2, walk, "turn_none"))
    interrupts(walk, 3, "turn_none", of="none")
    unknown: Json = {"code": "threadNotFound", "threadId": "none"}
    walk.expect(refusal(3, -32020, "Unknown thread", **unknown))
    says(walk, 4, HEADINGS)
    walk.expect({"id": 4, "result": accepted("tn_a", HEADINGS)})
    walk.until("turn/completed")
    interrupts(walk, 5)
    walk.expect(inactive(5, walk, was="completed"))


def test_spec_edge_3_9_another_turn_runs(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.9, 3.10: −32031 names what was expected and what is there; the running turn goes on."""
    running(walk, model)
    data = {"code": "turnIdMismatch", "expected": "turn_none", "active": walk.names["tn_a"]}
    interrupts(walk, 2, "turn_none")
    walk.expect(refusal(2, -32031, "No matching active turn", **data))
    steers(walk, 3, "x", "turn_none")
    walk.expect(refusal(3, -32031, "No matching active turn", **data))
    interrupts(walk, 4)
    walk.expect({"id": 4, "result": {}})


def test_spec_3_10_turn_steer(walks: Walks, model: ScriptedModel) -> None:
    """T 3.10, the example; its item comes when the turn reads it: that is what the design decides.

    The turn takes one more step before it completes, and who steers follows nothing because of it.
    """
    gate = threading.Event()
    model.play(gated(gate, script.says("first")), script.says("second"))
    walk = walks()
    other = walks(names=walk.names)
    starts(walk)
    says(walk, 7, HEADINGS)
    walk.expect({"id": 7, "result": accepted("tn_b", HEADINGS)})
    walk.expect(*begins("tn_b", HEADINGS, 2))
    steers(other, 9, "only level 2", "tn_b")
    now = turn("tn_b", HEADINGS, 2)
    other.expect({"id": 9, "result": {"turn": now, "turnId": "tn_b", "queued": True}})
    gate.set()
    walk.expect(*speaks("tn_b", "first", 4, 5))
    walk.expect(*both(user(6, "tn_b", "only level 2", "steer"), 6))
    walk.expect(*speaks("tn_b", "second", 8, 9))
    used = {"inputTokens": 14, "outputTokens": 2, "totalTokens": 16}
    walk.expect(*ends(ended("tn_b", HEADINGS, 2, 9, status="completed", tokenUsage=used), 9))
    other.says({"id": 3, "method": "thread/list", "params": {"limit": 0}})
    other.expect({"id": 3, "result": {"threads": [], "total": Some()}})


def test_spec_edge_3_10_a_finished_turn_takes_nothing(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.10, errors: none running, finished, empty, unknown thread; each says it in its own code."""
    model.play(script.says("Done."))
    starts(walk)
    steers(walk, 2, "x", "turn_none")
    walk.expect(inactive(2, walk, "turn_none"))
    says(walk, 3, HEADINGS)
    walk.expect({"id": 3, "result": accepted("tn_a", HEADINGS)})
    walk.until("turn/completed")
    steers(walk, 4, "late")
    walk.expect(inactive(4, walk, was="completed"))
    steers(walk, 5, "")
    walk.expect(refusal(5, -32602, "input must not be empty", code="emptyInput"))
    params: Json = {"threadId": "none", "turnId": "tn_a", "input": [{"text": "x"}]}
    walk.says({"id": 6, "method": "turn/steer", "params": params})
    unknown: Json = {"code": "threadNotFound", "threadId": "none"}
    walk.expect(refusal(6, -32020, "Unknown thread", **unknown))


def test_spec_edge_3_10_an_interrupted_turn_keeps_what_it_did_not_read(
    walk: SocketWalk, model: ScriptedModel
) -> None:
    """T 3.10: it is in the turn that it was said to, and the next one sees it."""
    running(walk, model)
    steers(walk, 8, "only level 2")
    now = turn("tn_a", HEADINGS, 2)
    walk.expect({"id": 8, "result": {"turn": now, "turnId": "tn_a", "queued": True}})
    interrupts(walk, 9)
    walk.expect({"id": 9, "result": {}})
    walk.expect(status(5, "tn_a", "cancelling"))
    # The end may be stamped earlier than the steer, which is appended before it.
    unstamped = {"createdAtMs": Some(), "completedAtMs": Some()}
    walk.expect(*both({**user(6, "tn_a", "only level 2", "steer"), **unstamped}, 6))
    walk.expect(*cut(7))
