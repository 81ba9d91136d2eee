from __future__ import annotations

import msgspec
import pytest

from roost.actors.front.connection import Connection, Limits, Pending
from roost.actors.front.limits import TokenBucket, make_bucket
from roost.actors.front.method import Method
from roost.schemas import daemon as d
from roost.schemas.rpc import ClientReply, Request

Outcome = Pending | Request | ClientReply | bytes | None
METHODS = {
    method.name: method
    for method in (
        Method(name="initialize", params=d.Initialize, lane="instant"),
        Method(name="request.cancel", params=d.RequestCancel, lane="instant", unmetered=True),
        Method(name="ping", lane="instant"),
        Method(name="short"),
        Method(name="attach", params=d.SessionAttach, order="session_id"),
        Method(name="send", params=d.MessageSend, lane="long", order="session_id"),
        Method(name="approve", params=d.ToolApprove, lane="decision"),
        Method(name="cancel", params=d.SessionCancelTurn, lane="control", unmetered=True),
        Method(name="later", implemented=False),
    )
}


def _connection(
    *,
    in_flight: int = 2,
    queued: int = 2,
    authenticated: bool = True,
    bucket: TokenBucket | None = None,
    initialized: bool = True,
) -> Connection:
    connection = Connection(
        METHODS,
        Limits(in_flight=in_flight, queued=queued),
        authenticated=authenticated,
        authenticate=lambda cookie: cookie == "right",
        bucket=bucket,
    )
    connection.initialized = initialized
    return connection


def _receive(
    connection: Connection, method: str, request_id: object = 1, now: float = 0.0, **params: object
) -> Outcome:
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return connection.receive(msgspec.json.encode(request), now)


def _code(outcome: Outcome) -> str:
    assert isinstance(outcome, bytes)
    error = msgspec.json.decode(outcome)["error"]
    return str(error["data"]["code"])


def _started(outcome: Outcome) -> Pending:
    assert isinstance(outcome, Pending)
    return outcome


def test_before_authentication_anything_but_initialize_ends_the_connection() -> None:
    for line in (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', b"nonsense", b"[]", b"{}"):
        connection = _connection(authenticated=False, initialized=False)
        assert _code(connection.receive(line, 0.0)) == "CONNECTION_AUTHENTICATION_FAILED"
        assert connection.closing


def test_a_wrong_cookie_ends_the_connection_and_the_right_one_opens_it() -> None:
    wrong = _connection(authenticated=False, initialized=False)
    answer = _receive(wrong, "initialize", protocolVersion="9", authCookie="wrong")
    assert _code(answer) == "CONNECTION_AUTHENTICATION_FAILED"
    assert wrong.closing
    right = _connection(authenticated=False, initialized=False)
    _started(_receive(right, "initialize", protocolVersion="9", authCookie="right"))
    assert right.authenticated
    assert right.greeted


def test_where_the_transport_has_authenticated_a_wrong_first_method_is_only_refused() -> None:
    connection = _connection(initialized=False)
    assert _code(_receive(connection, "ping")) == "CONNECTION_NOT_INITIALIZED"
    assert _code(_receive(connection, "nothing")) == "METHOD_NOT_FOUND"
    assert not connection.closing


def test_unknown_and_unwired_methods_are_told_apart() -> None:
    connection = _connection()
    unknown, unwired = _receive(connection, "nothing"), _receive(connection, "later")
    assert isinstance(unknown, bytes)
    assert isinstance(unwired, bytes)
    assert b"unknown daemon method: nothing" in unknown
    assert b"daemon method is not implemented yet: later" in unwired


@pytest.mark.parametrize("params", [None, [], 5, "x"])
def test_params_must_be_an_object(params: object) -> None:
    line = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params})
    outcome = _connection().receive(line, 0.0)
    assert isinstance(outcome, bytes)
    assert b"daemon request params must be an object" in outcome


def test_an_id_in_use_is_refused_and_free_again_after_the_answer() -> None:
    connection = _connection()
    first = _started(_receive(connection, "short", 7))
    assert _code(_receive(connection, "short", 7)) == "INVALID_ARGUMENT"
    _started(_receive(connection, "short", "7"))
    connection.finish(first)
    _started(_receive(connection, "short", 7))


def test_requests_for_one_resource_start_in_order() -> None:
    connection = _connection(in_flight=9)
    first = _started(_receive(connection, "attach", 1, sessionId="s"))
    assert _receive(connection, "send", 2, sessionId="s", content="x") is None
    _started(_receive(connection, "attach", 3, sessionId="other"))
    (second,) = connection.finish(first)
    assert second.id == 2


def test_a_message_holds_its_order_only_until_it_lets_go() -> None:
    connection = _connection()
    first = _started(_receive(connection, "send", 1, sessionId="s", content="x"))
    assert _receive(connection, "send", 2, sessionId="s", content="x") is None
    assert [p.id for p in connection.release(first)] == [2]
    assert connection.release(first) == []
    assert connection.finish(first) == []


def test_too_many_short_ones_wait_and_then_are_refused() -> None:
    connection = _connection(in_flight=2, queued=2)
    running = [_started(_receive(connection, "short", i)) for i in range(2)]
    assert _receive(connection, "short", 2) is None
    assert _receive(connection, "short", 3) is None
    assert _code(_receive(connection, "short", 4)) == "TOO_MANY_QUEUED_REQUESTS"
    assert [p.id for p in connection.finish(running[0])] == [2]
    assert _receive(connection, "short", 4) is None
    assert [p.id for p in connection.finish(running[1])] == [3]


def test_too_many_long_ones_are_refused_at_once_and_take_no_short_ones_place() -> None:
    connection = _connection(in_flight=2)
    for i in range(2):
        _started(_receive(connection, "send", i, sessionId=f"s{i}", content="x"))
    refused = _receive(connection, "send", 2, sessionId="s2", content="x")
    assert _code(refused) == "TOO_MANY_IN_FLIGHT_REQUESTS"
    _started(_receive(connection, "short", 3))


def test_decisions_and_cancels_pass_every_queue() -> None:
    connection = _connection(in_flight=1, queued=1)
    _started(_receive(connection, "attach", 1, sessionId="s"))
    assert _receive(connection, "short", 2) is None
    _started(_receive(connection, "approve", 3, sessionId="s", requestId="r"))
    _started(_receive(connection, "cancel", 4, sessionId="s"))
    _started(_receive(connection, "ping", 5))


def test_a_waiting_request_can_be_withdrawn_from_either_queue() -> None:
    connection = _connection(in_flight=1, queued=9)
    first = _started(_receive(connection, "attach", 1, sessionId="s"))
    for request_id in (2, 3):
        assert _receive(connection, "attach", request_id, sessionId="s") is None
    assert _receive(connection, "attach", 4, sessionId="t") is None
    assert _receive(connection, "attach", 5, sessionId="t") is None
    for request_id in (2, 4):
        found = connection.find(request_id)
        assert found is not None
        connection.withdraw(found)
    assert [p.id for p in connection.finish(first)] == [5]
    five = connection.find(5)
    assert five is not None
    assert [p.id for p in connection.finish(five)] == [3]


def test_a_stopping_daemon_refuses_what_is_not_answered_at_once() -> None:
    connection = _connection()
    connection.stopping = True
    assert _code(_receive(connection, "short")) == "SHUTTING_DOWN"
    _started(_receive(connection, "ping"))


def test_the_rate_is_a_bucket_that_refills_and_cancels_do_not_use_it() -> None:
    connection = _connection(bucket=make_bucket(10, 2, 0.0))
    _started(_receive(connection, "ping", 1))
    assert isinstance(connection.receive(b"nonsense", 0.0), bytes)
    assert _code(_receive(connection, "ping", 2)) == "RATE_LIMITED"
    _started(_receive(connection, "cancel", 3, sessionId="s"))
    _started(_receive(connection, "ping", 4, now=0.1))


def test_no_rate_is_no_bucket() -> None:
    assert make_bucket(0, 0, 0.0) is None
    assert TokenBucket(128, 1, 0.0).retry_after_ms == 8


def test_drain_takes_out_everything() -> None:
    connection = _connection(in_flight=1)
    _started(_receive(connection, "attach", 1, sessionId="s"))
    _receive(connection, "attach", 2, sessionId="s")
    assert sorted(str(p.id) for p in connection.drain()) == ["1", "2"]
    _started(_receive(connection, "attach", 1, sessionId="s"))
