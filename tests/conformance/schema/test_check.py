"""The check that the clients of the tests hold every message of a daemon against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.daemon import Client
from bench.schema_check import Check, NotOfTheSchema, judging_schema
from roost.schemas.export import daemon_schema
from tests.support.checked import check_message

if TYPE_CHECKING:
    from bench.schema_cases import Json

CHUNK: Json = {"sessionId": "s", "eventId": "e", "delta": "x"}
CHECKS = {"at hand": Check(judging_schema()), "exported": Check(daemon_schema())}


def note(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def complaint(check: Check, message: Json) -> str:
    """Return what a check has against a message, nothing if it is right."""
    try:
        check(message)
    except NotOfTheSchema as error:
        return str(error)
    return ""


@pytest.mark.parametrize("schema", CHECKS)
@pytest.mark.parametrize(
    "message",
    [
        note("event.message_chunk", CHUNK),
        {"jsonrpc": "2.0", "id": 1, "result": {"any": "thing"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}},
    ],
)
def test_a_right_message_passes(schema: str, message: Json) -> None:
    assert complaint(CHECKS[schema], message) == ""


@pytest.mark.parametrize("schema", CHECKS)
@pytest.mark.parametrize(
    "message",
    [
        note("event.message_chunk", {**CHUNK, "turnId": "t"}),
        note("event.message_chunk", {**CHUNK, "messageId": ""}),
        note("event.message_chunk", {"sessionId": "s", "eventId": "e"}),
        note("event.nothing", {}),
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "x"}},
        {"jsonrpc": "2.0", "id": 1.5, "result": {}},
    ],
)
def test_a_message_that_the_schema_forbids_does_not(schema: str, message: Json) -> None:
    assert complaint(CHECKS[schema], message)


def test_the_clients_of_the_tests_are_checked() -> None:
    assert Client.check is check_message
    with pytest.raises(NotOfTheSchema):
        check_message(note("event.nothing", {}))
