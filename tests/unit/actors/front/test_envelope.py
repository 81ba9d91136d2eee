from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.errors import DaemonError
from roost.actors.front.envelope import (
    NotARequest,
    answer_line,
    decode_request,
    error_line,
    is_too_deep,
)
from roost.schemas.rpc import NO_PARAMS, Request


def _fault(line: bytes) -> NotARequest:
    with pytest.raises(NotARequest) as caught:
        decode_request(line)
    return caught.value


def test_a_request_keeps_the_type_of_its_id() -> None:
    assert decode_request(b'{"jsonrpc":"2.0","id":1,"method":"m"}').id == 1
    assert decode_request(b'{"jsonrpc":"2.0","id":"1","method":"m"}').id == "1"


def test_absent_params_are_told_apart_from_empty_ones() -> None:
    assert decode_request(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params is NO_PARAMS
    assert (
        decode_request(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}').params is not NO_PARAMS
    )


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":NaN}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":Infinity}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 129 + b"]" * 129 + b"}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_is_no_json_is_a_parse_error_without_an_id(line: bytes) -> None:
    fault = _fault(line)
    assert fault.error is not None
    assert fault.error.code == "PARSE_ERROR"
    assert fault.request_id is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"\t\r",
        b'{"jsonrpc":"2.0","method":"m"}',
        b'{"method":"m","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"error":{}}',
    ],
)
def test_blank_lines_notifications_and_answers_are_ignored(line: bytes) -> None:
    assert _fault(line).error is None


@pytest.mark.parametrize(
    ("line", "text", "request_id"),
    [
        (b'{"jsonrpc":"1.0","id":7,"method":"m"}', "invalid JSON-RPC version", 7),
        (b'{"id":"a","method":"m"}', "invalid JSON-RPC version", "a"),
        (b'{"jsonrpc":"2.0","id":7}', "missing daemon method", 7),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', "missing daemon method", 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', "missing daemon request id", None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', "missing daemon request id", None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', "missing daemon request id", None),
        (b'{"jsonrpc":"2.0","id":"","method":"m"}', "missing daemon request id", None),
        (b'{"jsonrpc":"2.0","id":[],"method":"m"}', "missing daemon request id", None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","x":1}', "a request has no member 'x'", 1),
        (b"[]", "batch requests are not supported", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', "batch requests are not supported", None),
        (b"5", "a request must be an object", None),
        (b"null", "a request must be an object", None),
        (b'"text"', "a request must be an object", None),
    ],
)
def test_json_that_is_no_request_is_refused_by_name(
    line: bytes, text: str, request_id: object
) -> None:
    fault = _fault(line)
    assert fault.error is not None
    assert fault.error.message == text
    assert fault.request_id == request_id


def test_duplicate_members_are_read_from_the_last_one() -> None:
    assert decode_request(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}').id == 2


def test_depth_is_counted_outside_of_strings() -> None:
    assert not is_too_deep(b"[" * 128 + b"]" * 128)
    assert is_too_deep(b"[" * 129 + b"]" * 129)
    assert not is_too_deep(b'"' + b"[" * 1000 + b'"')
    assert not is_too_deep(b'["\\"' + b"[" * 1000 + b'"]')
    assert not is_too_deep(b"[" + b"[],{}," * 1000 + b"[]]")


def test_lines_end_in_a_line_feed_and_are_json() -> None:
    assert answer_line(3, b"{}") == b'{"jsonrpc":"2.0","id":3,"result":{}}\n'
    assert answer_line('a"b', b"{}") == b'{"jsonrpc":"2.0","id":"a\\"b","result":{}}\n'
    error = msgspec.json.decode(error_line(None, DaemonError("DISK_FULL", "full", {"x": 1})))
    assert error == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32000, "message": "full", "data": {"code": "DISK_FULL", "x": 1}},
    }


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_fail(data: bytes) -> None:
    found: Request | NotARequest
    try:
        found = decode_request(data)
    except NotARequest as refused:
        found = refused
    assert isinstance(found, NotARequest) or found.method


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "extra"]),
        JSON | st.just("2.0"),
    )
)
def test_no_object_at_all_makes_it_fail(value: dict[str, object]) -> None:
    try:
        decode_request(msgspec.json.encode(value))
    except NotARequest as found:
        fault = found
    else:
        return
    assert fault.error is None or fault.error.code in ("INVALID_REQUEST", "PARSE_ERROR")


@pytest.mark.parametrize("spelled", ["7.0", "7e0", "70e-1", '"x","id":7', 'null,"id":7'])
def test_an_id_may_be_an_integer_spelled_as_a_float_and_the_last_of_two_counts(
    spelled: str,
) -> None:
    line = b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"a":1}}' % spelled.encode()
    request = decode_request(line)
    assert (request.id, type(request.id), bytes(request.params)) == (7, int, b'{"a":1}')


@pytest.mark.parametrize("spelled", ["7.5", "true", "null", '""', "[7]"])
def test_what_is_no_id_is_refused_without_one(spelled: str) -> None:
    line = b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % spelled.encode()
    with pytest.raises(NotARequest) as caught:
        decode_request(line)
    assert caught.value.error is not None
    assert (caught.value.error.code, caught.value.request_id) == ("INVALID_REQUEST", None)


def test_the_id_of_a_refused_request_is_repeated_as_an_integer() -> None:
    with pytest.raises(NotARequest) as caught:
        decode_request(b'{"id":7.0,"method":"m"}')
    assert caught.value.request_id == 7
