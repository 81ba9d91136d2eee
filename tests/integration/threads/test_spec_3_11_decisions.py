"""Decisions as T 3.11, 4.2 and 4.3 show them, and the lists of models and of schemas (T 3.12, 3.13)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.thread_examples import (
    USED,
    accepted,
    asks,
    begins,
    call,
    decides,
    ended,
    ends,
    message,
    note,
    refusal,
    request,
    speaks,
    status,
    tells,
    thread,
    turn,
    user,
    waits,
)
from tests.support.thread_walk import Some

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

WRITE = script.calls("write_file", '{"path":"a.md","content":"x"}')
NAMES: Json = {"threadId": "th_a", "turnId": "tn_a", "requestId": "apr_e5"}
REJECTED = "APPROVAL_REJECTED"
BY_THE_USER = "Denied by the user"


def asking(walk: SocketWalk, model: ScriptedModel, folder: Path) -> None:
    """Start a turn whose call waits for a decision, and hear that it does."""
    model.play(WRITE, script.says("Done."))
    params: Json = {"cwd": str(folder)}
    walk.says({"id": "start", "method": "thread/start", "params": params})
    walk.expect({"id": "start", "result": {"thread": thread(**params)}})
    walk.until("thread/started")
    said: Json = {"threadId": "th_a", "input": [{"text": "write"}]}
    walk.says({"id": "turn", "method": "turn/start", "params": said})
    walk.expect({"id": "turn", "result": accepted("tn_a", "write")})
    walk.expect(*begins("tn_a", "write", 2), *waits("tn_a", 4, 5))


def allowed(folder: Path) -> list[Json]:
    """Return what is told from the decision `allow` to the end of the turn."""
    result: Json = {"path": str(folder / "a.md"), "bytes": 1, "created": True}
    running = {"status": "inProgress"}
    done = call(4, 8, "tn_a", "completed", status="success", result=result)
    return [
        *decides("tn_a", 5, 6, "allow"),
        note("item/toolCall/delta", 7, turnId="tn_a", itemId="item_e4", delta=running),
        tells("completed", done, 8),
        *speaks("tn_a", "Done.", 10, 11),
        *ends(ended("tn_a", "write", 2, 11, status="completed", tokenUsage=USED), 11),
    ]


def denied(reason: str) -> list[Json]:
    """Return what is told from the decision `deny` to the end of the turn: the call never runs."""
    content: Json = {
        "status": "error",
        "error": Some(),
        "errorCode": REJECTED,
        "outcome": "not_started",
    }
    return [
        *decides("tn_a", 5, 6, "deny", code=REJECTED, reason=reason),
        tells("completed", call(4, 7, "tn_a", "failed", **content), 7),
        *speaks("tn_a", "Done.", 9, 10),
        *ends(ended("tn_a", "write", 2, 10, status="completed", tokenUsage=USED), 10),
    ]


def resolves(walk: SocketWalk, number: int, decision: object, **other: object) -> None:
    """Decide by a request."""
    params = {**NAMES, "decision": decision, **other}
    walk.says({"id": number, "method": "approval/resolve", "params": params})


def test_spec_3_11_approval_resolve(walk: SocketWalk, model: ScriptedModel, tmp_path: Path) -> None:
    """T 3.11, the example; again the same is `alreadyResolved`, the other way a refusal that names what holds."""
    asking(walk, model, tmp_path)
    resolves(walk, 10, "allow")
    walk.expect({"id": 10, "result": {}}, *allowed(tmp_path))
    resolves(walk, 11, "allow")
    walk.expect({"id": 11, "result": {"alreadyResolved": True}})
    resolves(walk, 12, "deny")
    data = {
        "code": "approvalAlreadyResolved",
        "requestId": walk.names["apr_e5"],
        "decision": "allow",
    }
    walk.expect(refusal(12, -32602, Some(), **data))
    assert (tmp_path / "a.md").read_text() == "x"


def test_spec_edge_3_11_what_it_names_must_all_be_right(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 3.11: a wrong turn, request or thread, and a decision that is none, decide nothing."""
    asking(walk, model, tmp_path)
    text = "Unknown approval request"
    resolves(walk, 1, "allow", requestId="apr_none")
    walk.expect(refusal(1, -32602, text, code="approvalNotFound", requestId="apr_none"))
    resolves(walk, 2, "allow", turnId="turn_none")
    mine = walk.names["apr_e5"]
    walk.expect(refusal(2, -32602, text, code="approvalNotFound", requestId=mine))
    resolves(walk, 3, "allow", threadId="none")
    walk.expect(refusal(3, -32020, "Unknown thread", code="threadNotFound", threadId="none"))
    nothing: Json = {}
    wrongs: list[object] = ["approved", "", None, True, nothing]
    for decision in wrongs:
        resolves(walk, 4, decision)
        data: Json = {"code": "invalidParams", "path": "/decision"}
        walk.expect(refusal(4, -32602, Some(), **data))
    resolves(walk, 5, "deny")
    walk.expect({"id": 5, "result": {}}, *denied(BY_THE_USER))


def test_spec_edge_3_11_who_does_not_follow_may_decide(
    walks: Walks, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 3.11: it hears its answer, and nothing of the thread."""
    walk = walks()
    other = walks(names=walk.names)
    asking(walk, model, tmp_path)
    resolves(other, 10, "allow")
    other.expect({"id": 10, "result": {}})
    walk.expect(*allowed(tmp_path))
    other.says({"id": 11, "method": "thread/list", "params": {"limit": 0}})
    other.expect({"id": 11, "result": {"threads": [], "total": Some()}})


def test_spec_4_3_approval_request(walks: Walks, model: ScriptedModel, tmp_path: Path) -> None:
    """T 4.3, the example, and T 4.2 rule 4: one approved call, told to all who follow, whoever has answered.

    `sequence`, `toolCallId`, `arguments` and `risk` are additive; the request's id is the `requestId`.
    """
    walk = walks()
    other = walks(names=walk.names)
    asking(walk, model, tmp_path)
    other.says({"id": 3, "method": "thread/resume", "params": {"threadId": "th_a"}})
    waiting: Json = {"activeTurnId": "tn_a", "activeFlags": ["waitingOnApproval"]}
    shown = thread(cwd=str(tmp_path), updated=3, status="running", preview="write", **waiting)
    other.expect(
        {
            "id": 3,
            "result": {
                "thread": shown,
                "items": [
                    user(2, "tn_a", "write"),
                    call(4, 4, "tn_a", "queued"),
                    request(5, 5, "tn_a", "inProgress"),
                ],
                "activeTurn": turn("tn_a", "write", 2),
                "asOfSequence": 5,
                "cursor": "item_e2",
            },
        },
        {"method": "approval/requested", "params": asks(5, "tn_a")},
        {"id": "apr_e5", "method": "approval/request", "params": asks(5, "tn_a")},
    )
    other.says({"id": "apr_e5", "result": {"decision": "allow"}})
    other.expect(*allowed(tmp_path))
    walk.expect(*allowed(tmp_path))
    # What comes late decides nothing and is not answered.
    walk.says({"id": "apr_e5", "result": {"decision": "deny"}})
    walk.says({"id": 1, "method": "thread/list", "params": {"limit": 0}})
    walk.expect({"id": 1, "result": {"threads": [], "total": Some()}})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"result": {"decision": "deny"}}, BY_THE_USER),
        ({"result": {"decision": "denied", "message": "not that"}}, "not that"),
        ({"result": {"decision": "perhaps"}}, BY_THE_USER),
        ({"result": None}, BY_THE_USER),
        ({"result": []}, BY_THE_USER),
        ({"error": {"code": -32000, "message": "no"}}, BY_THE_USER),
    ],
)
def test_spec_edge_4_3_what_counts_as_a_denial(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path, answer: Json, reason: str
) -> None:
    """T 4.3, 4.2 rule 5: the call never runs, its item has failed, and the turn goes on."""
    asking(walk, model, tmp_path)
    walk.says({"id": "apr_e5", **answer})
    walk.expect(*denied(reason))
    assert not (tmp_path / "a.md").exists()


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "apr_e5", "error": {"code": -32601, "message": "no handler"}},
        {"id": "apr_none", "result": {"decision": "deny"}},
        {"id": 7, "result": {"decision": "deny"}},
    ],
)
def test_spec_edge_4_3_what_decides_nothing(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path, answer: Json
) -> None:
    """T 4.3: ids that nothing waits under; the design decides that −32601 means that this client cannot answer."""
    asking(walk, model, tmp_path)
    walk.says(answer)
    walk.says({"id": "apr_e5", "result": {"decision": "approved"}})
    walk.expect(*allowed(tmp_path))


def test_spec_edge_4_3_an_answer_counts_only_from_who_was_asked(
    walks: Walks, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.3: a stranger's is nothing; who left is forgotten, and who resumes is asked."""
    walk = walks()
    stranger, late = walks(names=walk.names), walks(names=walk.names)
    asking(walk, model, tmp_path)
    stranger.says({"id": "apr_e5", "result": {"decision": "deny"}})
    stranger.ask("thread/list", limit=0)
    walk.close()
    late.ask("thread/resume", threadId=walk.names["th_a"])
    late.expect(
        {"method": "approval/requested", "params": asks(5, "tn_a")},
        {"id": "apr_e5", "method": "approval/request", "params": asks(5, "tn_a")},
    )
    late.says({"id": "apr_e5", "result": {"decision": "allow"}})
    late.expect(*allowed(tmp_path))


def test_spec_edge_4_3_an_interrupt_denies(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 3.9, 4.3: `approval/resolved` with the reason, then the ends of the items, then that of the turn."""
    asking(walk, model, tmp_path)
    params = {"threadId": "th_a", "turnId": "tn_a"}
    walk.says({"id": 8, "method": "turn/interrupt", "params": params})
    walk.expect({"id": 8, "result": {}})
    flags = ("waitingOnApproval", "cancelling")
    walk.expect(status(6, "tn_a", *flags))
    why = {"code": "TOOL_CANCELLED", "reason": "interrupted"}
    walk.expect(*decides("tn_a", 5, 7, "deny", "cancelling", **why))
    content: Json = {
        "status": "error",
        "error": Some(),
        "errorCode": "TOOL_CANCELLED",
        "outcome": "not_started",
    }
    walk.expect(tells("completed", call(4, 8, "tn_a", "interrupted", **content), 8))
    walk.expect(*ends(ended("tn_a", "write", 2, 9, status="interrupted"), 9))


def test_spec_4_2_a_call_that_needs_no_approval(
    walk: SocketWalk, model: ScriptedModel, tmp_path: Path
) -> None:
    """T 4.2, rule 6: `queued`, then `inProgress`, then its end."""
    (tmp_path / "a.md").write_text("x")
    model.play(script.calls("read_file", '{"path":"a.md"}'), script.says("Done."))
    walk.says({"id": 1, "method": "thread/start", "params": {"cwd": str(tmp_path)}})
    walk.expect({"id": 1, "result": {"thread": thread(cwd=str(tmp_path))}})
    walk.until("thread/started")
    params: Json = {"threadId": "th_a", "input": [{"text": "read"}]}
    walk.says({"id": 2, "method": "turn/start", "params": params})
    walk.expect({"id": 2, "result": accepted("tn_a", "read")}, *begins("tn_a", "read", 2))
    what: Json = {"toolName": "read_file", "arguments": {"path": "a.md"}}
    result = {"path": str(tmp_path / "a.md"), "content": "x", "size": 1, "truncated": False}
    running = {"status": "inProgress"}
    done = call(4, 6, "tn_a", "completed", status="success", result=result, **what)
    walk.expect(
        tells("started", call(4, 4, "tn_a", "queued", **what), 4),
        note("item/toolCall/delta", 5, turnId="tn_a", itemId="item_e4", delta=running),
        tells("completed", done, 6),
        *speaks("tn_a", "Done.", 8, 9),
        *ends(ended("tn_a", "read", 2, 9, status="completed", tokenUsage=USED), 9),
    )
    walk.says({"id": 3, "method": "thread/read", "params": {"threadId": "th_a"}})
    items = [user(2, "tn_a", "read"), done, message(8, 9, "tn_a", "Done.")]
    shown = thread(cwd=str(tmp_path), updated=90, preview="read")
    page: Json = {"thread": shown, "items": items, "asOfSequence": 9, "cursor": "item_e8"}
    walk.expect({"id": 3, "result": page})


def test_spec_3_12_model_list(walk: SocketWalk, model: ScriptedModel) -> None:
    """T 3.12, the example: by provider; all of them without one; none of one that there is not."""
    found = b'{"data":[{"id":"echo-1","name":"Echo","context_length":8192}]}'
    model.play(script.body(found))
    first: Json = {"id": "m", "provider": "local", "supportsTools": True}
    shown: Json = {"displayName": "Echo", "contextLength": 8192}
    second: Json = {"id": "echo-1", "provider": "local", "supportsTools": True, **shown}
    for number, params in enumerate(({"provider": "local"}, {}, {"provider": None}, None)):
        walk.says({"id": number, "method": "model/list", "params": params})
        walk.expect({"id": number, "result": {"models": [first, second]}})
    walk.says({"id": 9, "method": "model/list", "params": {"provider": "none"}})
    walk.expect({"id": 9, "result": {"models": []}})


NAMED = (
    "ClientRequest", "ServerNotification", "ServerRequest", "SchemaExportResponse", "JsonRpcMessage",
    "InitializeParams", "InitializeResponse", "ThreadStartResponse", "ThreadReadResponse",
    "ThreadResumeResponse", "TurnStartResponse", "AppThread", "AppTurn", "AppItem",
    "ApprovalRequestParams", "ApprovalResolveParams",
)  # fmt: skip


@pytest.mark.parametrize("params", [{}, {"params": {}}, {"params": None}])
def test_spec_3_13_schema_export(walk: SocketWalk, params: Json) -> None:
    """T 3.13, the example: texts by name, all the names that the protocol lists."""
    walk.says({"id": 12, "method": "schema/export", **params})
    result = cast("Json", walk.next()["result"])
    schemas = cast("dict[str, str]", result["jsonSchema"])
    files = cast("dict[str, str]", result["typescript"])
    assert result.keys() == {"jsonSchema", "typescript"}
    assert set(NAMED) <= schemas.keys()
    assert {f"{name}.ts" for name in NAMED if name != "JsonRpcMessage"} <= files.keys()
    assert all(isinstance(json.loads(text), dict) for text in schemas.values())
    assert all("export " in text for text in files.values())


@pytest.mark.parametrize("params", [{"a": 1}, [], "x", 1, False])
def test_spec_edge_3_13_it_takes_no_params(walk: SocketWalk, params: object) -> None:
    """T 3.13: anything but none."""
    walk.says({"id": 12, "method": "schema/export", "params": params})
    walk.expect(refusal(12, -32602, Some(), code="invalidParams", path=""))
