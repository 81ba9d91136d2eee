"""The envelope, the codes of errors and the order of requests (T 1.1, 1.6, 1.8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from tests.support.thread_examples import refusal, thread
from tests.support.thread_walk import Some

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.thread_walk import Json, SocketWalk

    Walks = Callable[..., SocketWalk]

pytestmark = pytest.mark.slow

LISTED: Json = {"threads": [], "total": Some()}
BAD_IDS = ("null", "true", "false", "1.5", "1.0", "[]", "{}", "9223372036854775808", "1e3")
NO_MESSAGES: list[object] = [
    {}, {"id": 1}, {"id": 1, "params": {}}, {"id": 1, "method": 3}, {"id": 1, "method": None},
    {"result": {}}, {"error": {}}, {"params": {}}, "text", 7, None, True,
]  # fmt: skip


def lists(number: object) -> Json:
    """Return a request that is answered at once with `LISTED`."""
    return {"id": number, "method": "thread/list", "params": {"limit": 0}}


@pytest.mark.parametrize("number", ["", "a", "☃", "1", 0, -1, 2**63 - 1, -(2**63)])
def test_spec_edge_1_1_ids(walk: SocketWalk, number: object) -> None:
    """T 1.1: a string or a signed integer of 64 bits comes back as it was."""
    walk.says(lists(number))
    walk.expect({"id": number, "result": LISTED})


@pytest.mark.parametrize("number", BAD_IDS)
def test_spec_edge_1_1_what_is_no_id(walk: SocketWalk, number: str) -> None:
    """T 1.1: −32600 with the id null; the next line is read."""
    walk.says(b'{"id":%b,"method":"thread/list"}' % number.encode())
    walk.expect(refusal(None, -32600, Some()))
    walk.says(lists(1))
    walk.expect({"id": 1, "result": LISTED})


def test_spec_edge_1_1_an_id_in_flight(walk: SocketWalk) -> None:
    """T 1.1: the second request is refused, the first one is not disturbed."""
    line = b'{"id":2,"method":"thread/start","params":{}}'
    walk.says(line + b"\n" + line)
    answers = [walk.next() for _ in range(3)]
    assert [each for each in answers if "error" in each] == [
        refusal(2, -32600, "id is already in flight: 2")
    ]
    (made,) = [each for each in answers if "result" in each]
    walk.names.matches(made, {"id": 2, "result": {"thread": thread()}})
    walk.says(lists(2))
    walk.expect({"id": 2, "result": LISTED})


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_spec_edge_1_1_what_is_no_message(walk: SocketWalk, message: object) -> None:
    """T 1.1: parsed, and neither a request nor a notification nor an answer."""
    walk.says(message)
    walk.expect(refusal(None, -32600, Some()))
    walk.says(lists(1))
    walk.expect({"id": 1, "result": LISTED})


@pytest.mark.parametrize("batch", [[], [lists(1)], [lists(1), lists(2)]])
def test_spec_edge_1_1_a_batch_is_one_error(walk: SocketWalk, batch: list[Json]) -> None:
    """T 1.1: however many are in it."""
    walk.says(batch)
    walk.expect(refusal(None, -32600, "batch requests are not supported"))
    walk.says(lists(1))
    walk.expect({"id": 1, "result": LISTED})


@pytest.mark.parametrize("line", [b"{nonsense", b'{"id":1', b"'x'", b"\xff\xfe", b'{"a":1}}'])
def test_spec_edge_1_1_what_does_not_parse(walk: SocketWalk, line: bytes) -> None:
    """T 1.1: −32700 with the id null; the connection stays open."""
    walk.says(line)
    walk.expect(refusal(None, -32700, "invalid JSON"))
    walk.says(lists(1))
    walk.expect({"id": 1, "result": LISTED})


def test_spec_edge_1_1_blank_lines_are_nothing(walk: SocketWalk) -> None:
    """T 1.1: nor is white space."""
    walk.says(b"\n \n\t\r\n" + json.dumps(lists(1)).encode())
    walk.expect({"id": 1, "result": LISTED})


@pytest.mark.parametrize(("line", "code"), [(b"{nonsense", -32700), (b"[]", -32600)])
def test_spec_edge_1_1_before_anything_valid(walks: Walks, line: bytes, code: int) -> None:
    """T 1.1: these two then carry `jsonrpc`, and decide nothing about what follows."""
    walk = walks(greeted=False)
    walk.says(line)
    found = walk.next()
    error = cast("Json", found["error"])
    assert (found["jsonrpc"], found["id"], error["code"]) == ("2.0", None, code)
    params: Json = {"clientInfo": {"name": "x"}, "capabilities": {}}
    walk.says({"id": 1, "method": "initialize", "params": params})
    assert walk.next().keys() == {"id", "result"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("initialized", None),
        ("thread/start", None),
        ("thread/list", None),
        ("model/list", None),
        ("schema/export", None),
    ],
)
@pytest.mark.parametrize("absent", [True, False])
def test_spec_edge_1_6_absent_params(
    walk: SocketWalk, method: str, params: None, absent: bool
) -> None:
    """T 1.6: absent and null are as good as empty where nothing is required."""
    request: Json = {"id": 1, "method": method}
    walk.says(request if absent else {**request, "params": params})
    assert "result" in walk.next()


@pytest.mark.parametrize(
    "method",
    [
        "thread/resume", "thread/read", "thread/archive", "turn/start", "turn/steer",
        "turn/interrupt", "approval/resolve",
    ],
)  # fmt: skip
@pytest.mark.parametrize("params", [{}, {"params": None}, {"params": {}}, {"params": []}])
def test_spec_edge_1_6_params_that_must_be_there(
    walk: SocketWalk, method: str, params: Json
) -> None:
    """T 1.6: elsewhere −32602."""
    walk.says({"id": 1, "method": method, **params})
    walk.expect(refusal(1, -32602, Some(), code="invalidParams", path=""))


@pytest.mark.parametrize("member", ["limit", "offset"])
def test_spec_edge_1_6_counts(walk: SocketWalk, member: str) -> None:
    """T 1.6: no negative, fractional, boolean or text; any larger integer is the largest one."""
    nothing: Json = {}
    wrongs: list[object] = [-1, 1.5, True, "1", [], nothing]
    for wrong in wrongs:
        walk.says({"id": 1, "method": "thread/list", "params": {member: wrong}})
        walk.expect(refusal(1, -32602, Some(), code="invalidParams", path=f"/{member}"))
    for right in (0, 2**63 - 1, 2**63, 2**64, 10**30, None):
        walk.says({"id": 2, "method": "thread/list", "params": {"limit": 0, member: right}})
        assert "result" in walk.next()


def test_spec_edge_1_6_unknown_methods_and_members(walk: SocketWalk) -> None:
    """T 0, 1.6: −32601 names the method; what a params object has beyond is ignored."""
    for method in ("", "no/such", "thread/List", "agent.list", "turn/followUp", "x" * 500):
        walk.says({"id": 1, "method": method})
        data: Json = {"method": method[:128], "boundProtocol": "thread"}
        walk.expect(refusal(1, -32601, f"unknown method: {method[:128]}", **data))
    walk.says({"id": 2, "method": "thread/list", "params": {"limit": 0, "cursor": 7}, "more": 1})
    walk.expect({"id": 2, "result": LISTED})


def test_spec_edge_1_8_requests_of_one_thread_start_in_order(walk: SocketWalk) -> None:
    """T 1.8: all in one write; the turn finds the thread archived, and the page shows it so."""
    walk.says({"id": "s", "method": "thread/start"})
    walk.expect({"id": "s", "result": {"thread": thread()}})
    walk.until("thread/started")
    said: Json = {"threadId": "th_a", "input": [{"text": "x"}]}
    requests: list[Json] = [
        {"id": 1, "method": "thread/read", "params": {"threadId": "th_a"}},
        {"id": 2, "method": "thread/archive", "params": {"threadId": "th_a"}},
        {"id": 3, "method": "turn/start", "params": said},
        {"id": 4, "method": "thread/read", "params": {"threadId": "th_a"}},
    ]
    walk.says(b"\n".join(json.dumps(walk.names.filled(one)).encode() for one in requests))
    answers = [found for found in (walk.next() for _ in range(6)) if "method" not in found]
    assert [each["id"] for each in answers] == [1, 2, 3, 4]
    before, after = (cast("Json", answers[at]["result"])["thread"] for at in (0, 3))
    walk.names.matches(before, thread())
    walk.names.matches(after, thread(updated=9, status="archived", archived=True))
    assert cast("Json", answers[2]["error"])["code"] == -32021
