"""`initialize` and `initialized` as T 3.1 and 3.2 show them; the states, the choice of the protocol and the gate (T 1.2 to 1.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.support import scripted_model as script
from tests.support.thread_examples import asks, refusal, thread
from tests.support.thread_walk import Some

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.scripted_model import ScriptedModel
    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

DESK: Json = {"clientInfo": {"name": "desk"}, "capabilities": {}}
SERVED: Json = {
    "serverInfo": {"name": "roost", "version": Some(r"\d+\.\d+\.\d+.*")},
    "protocolVersion": "2026-06-02",
    "supportedTransports": ["stdio", "unix", "websocket"],
    "capabilities": {
        "thread": True,
        "turn": True,
        "itemStream": True,
        "approvalRequests": True,
        "eventReplay": True,
        "schemaExport": True,
        "turnSteer": True,
        "modelList": True,
        "threadStatus": True,
    },
    "userAgent": Some(r"roost/\d+\.\d+\.\d+.*"),
}
HELLO: Json = {"id": 1, "method": "initialize", "params": DESK}
LIST: Json = {"id": 9, "method": "thread/list", "params": {"limit": 0}}
LISTED: Json = {"id": 9, "result": {"threads": [], "total": Some()}}
NOT_YET = "Not initialized"
ALREADY = "Already initialized"


def test_spec_3_1_initialize(walks: Walks) -> None:
    """T 3.1, the example; the design adds `userAgent`, and the additive members are there."""
    walk = walks(greeted=False)
    capabilities = {"optOutNotificationMethods": ["item/toolCall/delta"]}
    params = {"clientInfo": {"name": "desk"}, "capabilities": capabilities}
    walk.says({"id": 1, "method": "initialize", "params": params})
    walk.expect({"id": 1, "result": SERVED})


@pytest.mark.parametrize(
    "params",
    [
        {"clientInfo": {"name": ""}, "capabilities": {}},
        {"clientInfo": {"name": "d", "title": None, "version": None}, "capabilities": {}},
        {"clientInfo": {"name": "d", "x": 1}, "capabilities": {"y": 2}, "z": 3},
        {"clientInfo": {"name": "d"}},
        {"clientInfo": {"name": "d"}, "capabilities": None},
        {"clientInfo": {"name": "d"}, "capabilities": {"optOutNotificationMethods": None}},
    ],
)
def test_spec_edge_3_1_what_initialize_takes(walks: Walks, params: Json) -> None:
    """T 3.1, edges; the design decides that `capabilities` may be left out, as Codex-style clients do, or be null."""
    walk = walks(greeted=False)
    walk.says({"id": 1, "method": "initialize", "params": params})
    walk.expect({"id": 1, "result": SERVED})


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"clientInfo": {}, "capabilities": {}}, "/clientInfo"),
        ({"clientInfo": {"name": 1}, "capabilities": {}}, "/clientInfo/name"),
        ({"clientInfo": {"name": "d", "title": 1}, "capabilities": {}}, "/clientInfo/title"),
        ({"clientInfo": {"name": "d"}, "capabilities": []}, "/capabilities"),
        (
            {"clientInfo": {"name": "d"}, "capabilities": {"experimentalApi": 1}},
            "/capabilities/experimentalApi",
        ),
        (
            {"clientInfo": {"name": "d"}, "capabilities": {"optOutNotificationMethods": [1]}},
            "/capabilities/optOutNotificationMethods/0",
        ),
    ],
)
def test_spec_edge_3_1_wrong_params_leave_the_connection_new(
    walks: Walks, params: Json, path: str
) -> None:
    """T 3.1, errors; T 1.2: after them the client may try again."""
    walk = walks(greeted=False)
    walk.says({"id": 1, "method": "initialize", "params": params})
    error = walk.next()["error"]
    walk.names.matches(
        error,
        {"code": -32602, "message": Some(), "data": {"code": "invalidParams", "path": Some()}},
    )
    walk.says({**LIST, "id": 2})
    walk.expect(refusal(2, -32010, NOT_YET))
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})
    found = cast("Json", cast("Json", error)["data"])["path"]
    assert str(found).startswith(path.rsplit("/", 1)[0])


def test_spec_3_2_initialized(walks: Walks) -> None:
    """T 3.2: a notification that nothing answers and that causes nothing."""
    walk = walks(greeted=False)
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})
    walk.says({"method": "initialized"})
    walk.says(LIST)
    walk.expect(LISTED)


def test_spec_edge_1_2_new(walks: Walks) -> None:
    """T 1.2, first column: the table of states."""
    walk = walks(greeted=False)
    walk.says({"method": "initialized"})
    walk.says({"method": "some/thing", "params": {}})
    walk.says({"id": 2, "method": "initialized"})
    walk.expect(refusal(2, -32010, NOT_YET))
    walk.says({"id": 3, "method": "thread/list"})
    walk.expect(refusal(3, -32010, NOT_YET))
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})


@pytest.mark.parametrize("ready", [False, True])
def test_spec_edge_1_2_initialized_and_ready(walks: Walks, ready: bool) -> None:
    """T 1.2, second and third column: the table of states."""
    walk = walks(greeted=False)
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})
    if ready:
        walk.says({"method": "initialized"})
    walk.says({**HELLO, "id": 2})
    walk.expect(refusal(2, -32011, ALREADY))
    walk.says({"method": "some/thing"})
    walk.says({"id": 3, "method": "initialized"})
    walk.expect({"id": 3, "result": {}})
    walk.says({"method": "initialized"})
    walk.says(LIST)
    walk.expect(LISTED)


def test_spec_edge_1_2_another_request_makes_it_ready(walks: Walks) -> None:
    """T 1.2: without `initialized` a request runs, and what it causes is told."""
    walk = walks(greeted=False)
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})
    walk.says({"id": 2, "method": "thread/start"})
    walk.expect({"id": 2, "result": {"thread": thread()}})
    walk.expect({"method": "thread/started", "params": {"thread": thread(), "sequence": 1}})


def test_spec_edge_1_2_of_two_initialize_at_once_one_wins(walks: Walks) -> None:
    """T 1.2: both are in one write; the answer to the first is the first message of the server."""
    walk = walks(greeted=False)
    line = b'{"id":%d,"method":"initialize","params":{"clientInfo":{"name":"d"},"capabilities":{}}}'
    walk.says(line % 1 + b"\n" + line % 2)
    walk.expect({"id": 1, "result": SERVED}, refusal(2, -32011, ALREADY))


@pytest.mark.parametrize(
    "further",
    [{}, {"capabilities": {}}, {"capabilities": {}, "protocolVersion": "2025-06-18"}],
)
def test_spec_edge_1_3_client_info_is_the_thread_protocol(walks: Walks, further: Json) -> None:
    """T 1.3, rule 1, first row, with `capabilities`, without them, and as an MCP client says it."""
    walk = walks(greeted=False)
    walk.says({"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "x"}, **further}})
    walk.expect({"id": 1, "result": SERVED})
    walk.says({"id": 2, "method": "tools/list"})
    data: Json = {"method": "tools/list", "boundProtocol": "thread"}
    walk.expect(refusal(2, -32601, "unknown method: tools/list", **data))


@pytest.mark.parametrize("params", [{}, {"capabilities": {}}, {"clientInfo": "x"}, None, [], "x"])
def test_spec_edge_1_3_neither_protocol(walks: Walks, params: object) -> None:
    """T 1.3, rule 1, last row: the connection stays as it was."""
    walk = walks(greeted=False)
    walk.says({"id": 1, "method": "initialize", "params": params})
    walk.expect(refusal(1, -32602, Some(), code="unknownProtocol"))
    walk.says(HELLO)
    walk.expect({"id": 1, "result": SERVED})


@pytest.mark.parametrize("word", ["start", "appendAudio", "appendText", "stop", "listVoices"])
def test_spec_edge_1_3_the_name_of_the_first_method_decides(walks: Walks, word: str) -> None:
    """T 1.3, rule 2: the slash-named methods of the daemon's own protocol are answered as that one does."""
    walk = walks(greeted=False)
    walk.says({"jsonrpc": "2.0", "id": 1, "method": f"thread/realtime/{word}", "params": {}})
    error = cast("Json", walk.next()["error"])
    code = cast("Json", error["data"])["code"]
    assert (error["code"], code) == (-32000, "CONNECTION_NOT_INITIALIZED")
    walk.says({"jsonrpc": "2.0", "id": 2, "method": "thread/list"})
    walk.expect({"jsonrpc": "2.0", **refusal(2, -32010, NOT_YET)})
    walk.says({"jsonrpc": "2.0", **HELLO})
    walk.expect({"jsonrpc": "2.0", "id": 1, "result": SERVED})


@pytest.mark.parametrize("jsonrpc", [{"jsonrpc": "2.0"}, {}])
def test_spec_edge_1_3_an_unknown_first_method(walks: Walks, jsonrpc: Json) -> None:
    """T 1.3, rule 3: it binds nothing."""
    walk = walks(greeted=False)
    walk.says({**jsonrpc, "id": 3, "method": "no/such"})
    assert cast("Json", walk.next()["error"])["code"] == -32601
    walk.says({**jsonrpc, **HELLO})
    walk.expect({**jsonrpc, "id": 1, "result": SERVED})


@pytest.mark.parametrize("word", ["start", "appendAudio", "appendText", "stop", "listVoices"])
def test_spec_edge_1_3_the_other_protocol_is_foreign_afterwards(
    walk: SocketWalk, word: str
) -> None:
    """T 1.3, rule 4."""
    method = f"thread/realtime/{word}"
    walk.says({"id": 1, "method": method, "params": {}})
    data: Json = {"method": method, "boundProtocol": "thread"}
    walk.expect(refusal(1, -32601, f"unknown method: {method}", **data))


def test_spec_edge_1_3_jsonrpc_is_no_evidence_and_is_mirrored(walks: Walks) -> None:
    """T 1.3, rule 5; T 1.1: the first message decides for all that is sent."""
    walk = walks(greeted=False)
    walk.says({"jsonrpc": "2.0", **HELLO})
    walk.expect({"jsonrpc": "2.0", "id": 1, "result": SERVED})
    walk.says({"id": 2, "method": "thread/start"})
    walk.expect({"jsonrpc": "2.0", "id": 2, "result": {"thread": thread()}})
    params: Json = {"thread": thread(), "sequence": 1}
    walk.expect({"jsonrpc": "2.0", "method": "thread/started", "params": params})
    walk.says({"id": 3, "method": "no/such"})
    data: Json = {"method": "no/such", "boundProtocol": "thread"}
    walk.expect({"jsonrpc": "2.0", **refusal(3, -32601, "unknown method: no/such", **data)})


def test_spec_edge_1_4_opting_out_of_everything_leaves_answers_and_requests(
    walks: Walks, model: ScriptedModel
) -> None:
    """T 1.4: all notifications there are, by exact name; a pattern and an unknown name do nothing."""
    notifications = [
        "thread/started", "thread/archived", "thread/status/changed", "thread/closed",
        "turn/started", "turn/completed", "item/started", "item/agentMessage/delta",
        "item/toolCall/delta", "item/completed", "approval/requested", "approval/resolved",
        "error/warning", "thread/tokenUsage/updated",
    ]  # fmt: skip
    walk = walks(optOutNotificationMethods=[*notifications, "no/such", "approval/request"])
    plain = walks(optOutNotificationMethods=["thread/*", "Thread/started"])
    model.play(script.calls("write_file", '{"path":"a.md","content":"x"}'), script.says("Done."))
    walk.ask("thread/start")
    walk.says({"id": 2, "method": "thread/start"})
    walk.expect({"id": 2, "result": {"thread": thread()}})
    walk.says(
        {"id": 3, "method": "turn/start", "params": {"threadId": "th_a", "input": [{"text": "go"}]}}
    )
    assert "result" in walk.next()
    asked = walk.next()
    walk.names.sequences[2] = cast("int", cast("Json", asked["params"])["sequence"])
    walk.names.ids["tn_a"] = str(cast("Json", asked["params"])["turnId"])
    walk.names.matches(
        asked,
        {
            "id": "apr_e4",
            "method": "approval/request",
            "params": {**asks(4, "tn_a"), "sequence": 2},
        },
    )
    walk.says(
        {"id": 4, "method": "turn/interrupt", "params": {"threadId": "th_a", "turnId": "tn_a"}}
    )
    walk.expect({"id": 4, "result": {}})
    plain.says({"id": 1, "method": "thread/start"})
    plain.until("thread/started")


def test_spec_edge_1_5_the_gate(walks: Walks) -> None:
    """T 1.5: what is additive is for those who asked for it; none of the 13 requests is."""
    walk, asked = walks(), walks(experimentalApi=True)
    request: Json = {"id": 1, "method": "thread/unsubscribe", "params": {"threadId": "th_a"}}
    walk.says(request)
    text = "thread/unsubscribe requires experimentalApi capability"
    data: Json = {"code": "experimentalApiRequired", "descriptor": "thread/unsubscribe"}
    walk.expect(refusal(1, -32012, text, **data))
    asked.says({"id": 0, "method": "thread/start"})
    asked.expect({"id": 0, "result": {"thread": thread()}})
    asked.until("thread/started")
    asked.says(request)
    asked.expect({"id": 1, "result": {"threadId": "th_a", "subscribed": False}})
