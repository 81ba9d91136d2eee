from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.daemon_door import DOOR
from roost.actors.front.params import decode_params
from roost.schemas.daemon import AgentList
from roost.schemas.rpc import NO_PARAMS


def _decode(method: str, params: object) -> object:
    shape = DOOR.methods[method].params
    return decode_params(method, shape, msgspec.Raw(msgspec.json.encode(params)))


@pytest.mark.parametrize(
    ("method", "params", "text", "path"),
    [
        ("agent.stop", {"x": 1}, "agent.stop does not accept param 'x'", "/x"),
        ("agent.stop", {"a/b~c": 1}, "agent.stop does not accept param 'a/b~c'", "/a~1b~0c"),
        ("agent.stop", {}, "agent.stop requires agentId", "/agentId"),
        ("agent.stop", {"agentId": " "}, "agent.stop requires agentId", "/agentId"),
        ("agent.stop", {"agentId": 5}, "agent.stop param 'agentId' must be a string", "/agentId"),
        (
            "agent.stop",
            {"agentId": "a", "reason": None},
            "agent.stop param 'reason' must be a string",
            "/reason",
        ),
        (
            "agent.list",
            {"limit": 0},
            "agent.list param 'limit' must be a positive integer",
            "/limit",
        ),
        (
            "agent.list",
            {"limit": -1},
            "agent.list param 'limit' must be a positive integer",
            "/limit",
        ),
        (
            "agent.list",
            {"limit": 1.5},
            "agent.list param 'limit' must be a positive integer",
            "/limit",
        ),
        (
            "agent.list",
            {"limit": "5"},
            "agent.list param 'limit' must be a positive integer",
            "/limit",
        ),
        (
            "agent.create",
            {"unattendedAllow": [1]},
            "agent.create param 'unattendedAllow' must be an array of strings",
            "/unattendedAllow",
        ),
        (
            "agent.create",
            {"metadata": []},
            "agent.create param 'metadata' must be an object",
            "/metadata",
        ),
        (
            "tool.approve",
            {"sessionId": "s", "requestId": "r", "scope": "always"},
            "tool.approve param 'scope' must be once, session, or agent",
            "/scope",
        ),
        (
            "elicitation.respond",
            {"sessionId": "s", "requestId": "r", "kind": "x", "response": {}},
            "elicitation.respond param 'kind' must be request_user_input or mcp",
            "/kind",
        ),
        (
            "message.send",
            {"sessionId": "s", "content": 5},
            "message.send param 'content' must be a string or array",
            "/content",
        ),
        (
            "message.send",
            {"sessionId": "s", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
            "message.send param 'content[1]' must be a text block",
            "/content/1/type",
        ),
        (
            "message.send",
            {"sessionId": "s", "content": ""},
            "message.send param 'content' must not be empty",
            "/content",
        ),
        (
            "message.send",
            {"sessionId": "s", "content": []},
            "message.send param 'content' must not be empty",
            "/content",
        ),
        (
            "message.stream",
            {"sessionId": "s", "content": "x", "streamId": ""},
            "message.stream param 'streamId' must not be empty",
            "/streamId",
        ),
        ("health.ping", {"x": 1}, "health.ping does not accept param 'x'", "/x"),
    ],
)
def test_a_wrong_param_is_named_in_the_words_of_the_protocol(
    method: str, params: object, text: str, path: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        _decode(method, params)
    assert caught.value.message == text
    assert caught.value.data == {"path": path}


def test_the_first_wrong_member_counts() -> None:
    with pytest.raises(InvalidArgument, match="does not accept param 'b'"):
        _decode("agent.stop", {"b": 1, "agentId": 5})


def test_only_methods_without_any_may_come_without_params() -> None:
    assert decode_params("health.ping", DOOR.methods["health.ping"].params, NO_PARAMS) is not None
    with pytest.raises(InvalidArgument, match=r"agent.stop requires agentId"):
        decode_params("agent.stop", DOOR.methods["agent.stop"].params, NO_PARAMS)
    with pytest.raises(InvalidArgument, match=r"daemon request params must be an object"):
        decode_params("agent.list", DOOR.methods["agent.list"].params, NO_PARAMS)


@pytest.mark.parametrize("limit", ["3.0", "3e0", "30e-1", '"x","limit":3'])
def test_an_integer_may_be_spelled_as_a_float_and_the_last_of_two_members_counts(
    limit: str,
) -> None:
    raw = msgspec.Raw(b'{"limit":%b}' % limit.encode())
    assert decode_params("agent.list", AgentList, raw) == AgentList(limit=3)


@pytest.mark.parametrize("limit", ["3.5", "0.0", "-1.0", "true", '3,"limit":"x"'])
def test_what_is_no_positive_integer_is_still_refused(limit: str) -> None:
    raw = msgspec.Raw(b'{"limit":%b}' % limit.encode())
    with pytest.raises(InvalidArgument, match="'limit' must be a positive integer"):
        decode_params("agent.list", AgentList, raw)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(DOOR.methods)),
    st.dictionaries(
        st.sampled_from(
            [
                "sessionId",
                "agentId",
                "content",
                "metadata",
                "limit",
                "scope",
                "cwd",
                "response",
                "x",
            ]
        ),
        st.none()
        | st.booleans()
        | st.integers(-2, 2)
        | st.text(max_size=3)
        | st.lists(st.integers(0, 1) | st.text(max_size=1), max_size=2)
        | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
        max_size=4,
    ),
)
def test_no_params_at_all_make_it_fail(method: str, params: dict[str, object]) -> None:
    try:
        _decode(method, params)
    except DaemonError as found:
        error = found
    else:
        return
    assert error.code in ("INVALID_ARGUMENT", "PARSE_ERROR")
    assert error.message
