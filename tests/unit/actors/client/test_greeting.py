from __future__ import annotations

import json

import pytest

from roost.actors.client.greeting import LINE_BYTES, MAX_GREETING, MEMBER, Greeting

PING = b'{"id":2, "method":"thread/list"}\n'


def initialize(**params: object) -> bytes:
    return json.dumps({"id": 1, "method": "initialize", "params": params}).encode() + b"\n"


def said(data: bytes) -> list[object]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("cut", [1, 10, 1000])
def test_the_greeting_asks_for_short_lines_and_nothing_else_is_changed(cut: int) -> None:
    sent = b" \n" + initialize(clientInfo={"name": "x"}) + PING + PING + b'{"id":3'
    greeting = Greeting()
    pieces = [greeting.feed(sent[at : at + cut]) for at in range(0, len(sent), cut)]
    got = b"".join(pieces) + greeting.end()
    lines = got.split(b"\n")
    assert lines[0] == b" "
    params = {"clientInfo": {"name": "x"}, "capabilities": {MEMBER: LINE_BYTES}}
    assert json.loads(lines[1]) == {"id": 1, "method": "initialize", "params": params}
    assert b"\n".join(lines[2:]) == PING + PING + b'{"id":3'


def test_capabilities_that_are_null_are_as_good_as_none() -> None:
    (message,) = said(Greeting().feed(initialize(clientInfo={}, capabilities=None)))
    assert isinstance(message, dict)
    assert message["params"]["capabilities"] == {MEMBER: LINE_BYTES}


def test_what_the_client_asks_for_itself_stays() -> None:
    (message,) = said(
        Greeting().feed(
            initialize(clientInfo={}, capabilities={"experimentalApi": True, MEMBER: 5})
        )
    )
    assert isinstance(message, dict)
    assert message["params"]["capabilities"] == {"experimentalApi": True, MEMBER: 5}


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"[1]\n",
        b'{"id":1,"method":"initialize","params":[]}\n',
        b'{"id":1,"method":"initialize","params":{"clientInfo":{},"capabilities":1}}\n',
        b'{"id":1,"method":"initialize","params":{"protocolVersion":"1.0.0"}}\n',
        b"\xff\n",
        b"[" * 10_000 + b"\n",
        PING,
    ],
)
def test_what_is_no_greeting_passes_as_it_is(line: bytes) -> None:
    assert Greeting().feed(line) == line


def test_a_line_that_is_too_long_for_a_greeting_is_not_held_back() -> None:
    greeting = Greeting()
    piece = b"x" * (MAX_GREETING // 2)
    assert greeting.feed(piece) == b""
    assert greeting.feed(piece + b"y") == piece + piece + b"y"
    assert greeting.feed(PING) == PING


def test_an_unfinished_line_is_given_back_at_the_end() -> None:
    greeting = Greeting()
    assert greeting.feed(b'{"id":1') == b""
    assert greeting.end() == b'{"id":1'
