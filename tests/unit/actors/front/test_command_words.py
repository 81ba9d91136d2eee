from __future__ import annotations

import json

import msgspec
import pytest

from roost.actors.errors import InvalidArgument
from roost.actors.front.command_words import check_start
from roost.actors.front.params import decode_params
from roost.schemas.command_exec import CommandResize, CommandStart

FULL = {"sandboxPolicy": {"type": "dangerFullAccess"}}


def _refused(params: dict[str, object], *, hears: bool = True) -> InvalidArgument:
    raw = msgspec.Raw(json.dumps(params).encode())
    try:
        found = decode_params("commandExec.start", CommandStart, raw)
        assert isinstance(found, CommandStart)
        check_start(found, hears=hears)
    except InvalidArgument as error:
        return error
    pytest.fail(f"{params} is not refused")


RULES: list[tuple[dict[str, object], str, str]] = [
    ({}, "requires command", "/command"),
    ({"command": []}, "requires command", "/command"),
    ({"command": "ls"}, "requires command", "/command"),
    ({"command": ["ls", 1]}, "param 'command[1]' must be a string", "/command/1"),
    ({"command": ["ls", "a\0b"]}, "param 'command[1]' must be a string", "/command/1"),
    ({"command": [""]}, "param 'command[0]' must be a non-empty string", "/command/0"),
    ({"command": [" "]}, "param 'command[0]' must be a non-empty string", "/command/0"),
    ({"command": ["a"], "processId": ""}, "requires processId", "/processId"),
    ({"command": ["a"], "processId": " "}, "requires processId", "/processId"),
    ({"command": ["a"], "processId": 7}, "requires processId", "/processId"),
    ({"command": ["a"], "tty": 1}, "param 'tty' must be a boolean", "/tty"),
    (
        {"command": ["a"], "streamStdin": None},
        "param 'streamStdin' must be a boolean",
        "/streamStdin",
    ),
    (
        {"command": ["a"], "outputBytesCap": -1},
        "param 'outputBytesCap' must be a non-negative integer or null",
        "/outputBytesCap",
    ),
    (
        {"command": ["a"], "timeoutMs": 1.5},
        "param 'timeoutMs' must be a non-negative integer or null",
        "/timeoutMs",
    ),
    ({"command": ["a"], "cwd": 1}, "param 'cwd' must be a string or null", "/cwd"),
    ({"command": ["a"], "env": []}, "param 'env' must be an object or null", "/env"),
    ({"command": ["a"], "env": {"K": 1}}, "param 'env.K' must be a string or null", "/env/K"),
    ({"command": ["a"], "env": {"K=": ""}}, "param 'env.K=' must be a string or null", "/env/K="),
    ({"command": ["a"], "size": 1}, "param 'size' must be an object", "/size"),
    (
        {"command": ["a"], "size": {"rows": 0, "cols": 1}},
        "param 'size.rows' must be a positive integer",
        "/size/rows",
    ),
    (
        {"command": ["a"], "size": {"rows": 1}},
        "param 'size.cols' must be a positive integer",
        "/size/cols",
    ),
    (
        {"command": ["a"], "size": {"rows": 1, "cols": 65_536}},
        "param 'size.cols' must be at most 65535",
        "/size/cols",
    ),
    (
        {"command": ["a"], "sandboxPolicy": "no"},
        "param 'sandboxPolicy' must be an object or null",
        "/sandboxPolicy",
    ),
    (
        {"command": ["a"], "sandboxPolicy": {}},
        "param 'sandboxPolicy.type' must be a non-empty string",
        "/sandboxPolicy/type",
    ),
    (
        {"command": ["a"], "permissionProfile": ":read-only"},
        "param 'permissionProfile' must be an object or null",
        "/permissionProfile",
    ),
    (
        {"command": ["a"], "tty": True},
        "tty or streaming requires a client-supplied processId",
        "/processId",
    ),
    (
        {"command": ["a"], "streamStdin": True},
        "tty or streaming requires a client-supplied processId",
        "/processId",
    ),
    (
        {"command": ["a"], "processId": "p", "size": {"rows": 1, "cols": 1}},
        "param 'size' requires tty true",
        "/size",
    ),
    (
        {"command": ["a"], "outputBytesCap": 1, "disableOutputCap": True},
        "cannot combine outputBytesCap with disableOutputCap",
        "/outputBytesCap",
    ),
    (
        {"command": ["a"], "timeoutMs": 1, "disableTimeout": True},
        "cannot combine timeoutMs with disableTimeout",
        "/timeoutMs",
    ),
    (
        {"command": ["a"], "permissionProfile": {"id": ":read-only"}, **FULL},
        "cannot combine sandboxPolicy with permissionProfile",
        "/sandboxPolicy",
    ),
]


@pytest.mark.parametrize(("params", "text", "path"), RULES)
def test_each_rule_has_its_own_words(params: dict[str, object], text: str, path: str) -> None:
    error = _refused(params)
    assert error.message == f"commandExec.start {text}"
    assert error.data == {"path": path}


def test_output_streaming_needs_a_connection_that_hears() -> None:
    for name in ("tty", "streamStdoutStderr"):
        error = _refused({"command": ["a"], "processId": "p", name: True}, hears=False)
        assert (
            error.message == "commandExec.start streaming requires daemon connection notifications"
        )


def test_of_several_faults_the_first_rule_counts() -> None:
    params: dict[str, object] = {
        "permissionProfile": 1,
        "sandboxPolicy": {"type": ""},
        "size": {"rows": 0},
        "env": {"A": 1},
        "cwd": 2,
        "timeoutMs": -1,
        "tty": 0,
        "processId": " ",
        "command": [" ", 3],
    }
    for name, right, text in (
        ("command", [" "], "param 'command[1]' must be a string"),
        ("command", ["a"], "param 'command[0]' must be a non-empty string"),
        ("processId", None, "requires processId"),
        ("tty", True, "param 'tty' must be a boolean"),
        ("timeoutMs", 1, "param 'timeoutMs' must be a non-negative integer or null"),
        ("cwd", None, "param 'cwd' must be a string or null"),
        ("env", {}, "param 'env.A' must be a string or null"),
        ("size", {"rows": 1, "cols": 1}, "param 'size.rows' must be a positive integer"),
        ("sandboxPolicy", None, "param 'sandboxPolicy.type' must be a non-empty string"),
        ("permissionProfile", None, "param 'permissionProfile' must be an object or null"),
        ("processId", "p", "tty or streaming requires a client-supplied processId"),
    ):
        assert _refused(params).message == f"commandExec.start {text}"
        params[name] = right


def test_a_member_that_is_unknown_is_named() -> None:
    assert _refused({"command": ["a"], "shell": True}).message == (
        "commandExec.start does not accept param 'shell'"
    )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"size": {"rows": 1, "cols": 1}}, "requires processId"),
        ({"processId": "p", "size": {"rows": "1"}}, "param 'size.rows' must be a positive integer"),
        ({"processId": "p"}, "param 'size' must be an object"),
    ],
)
def test_a_resize_has_words_for_each_side(params: dict[str, object], text: str) -> None:
    raw = msgspec.Raw(json.dumps(params).encode())
    with pytest.raises(InvalidArgument) as caught:
        decode_params("commandExec.resize", CommandResize, raw)
    assert caught.value.message == f"commandExec.resize {text}"
