from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import cast

import pytest

from bench.thread_schema import (
    Check,
    Json,
    NotOfTheSchema,
    cases,
    request_validator,
    schema_takes,
    struct_takes,
)
from roost.schemas.thread import REQUESTS
from roost.schemas.thread_export import client_request, json_schemas
from roost.schemas.thread_notifications import NOTIFICATIONS
from roost.schemas.thread_results import RESULTS
from roost.schemas.thread_typescript import exported

NAMES = (
    "ClientRequest",
    "ServerNotification",
    "ServerRequest",
    "SchemaExportResponse",
    "JsonRpcMessage",
    "InitializeParams",
    "InitializeResponse",
    "ThreadStartResponse",
    "ThreadReadResponse",
    "ThreadResumeResponse",
    "TurnStartResponse",
    "AppThread",
    "AppTurn",
    "AppItem",
    "ApprovalRequestParams",
    "ApprovalResolveParams",
)


def plain(schema: object) -> Json:
    found: Json = json.loads(json.dumps(schema))
    return found


def test_the_requests_are_those_of_the_contract() -> None:
    folder = os.environ.get("ROOST_CONTRACTS") or "/nonexistent"
    file = Path(folder) / "seeds" / "thread-client-request.schema.json"
    if not file.exists():
        pytest.skip("ROOST_CONTRACTS names no folder with the contract")

    assert plain(client_request()) == json.loads(file.read_bytes())


def test_both_directions_are_exported_whole() -> None:
    schemas, files = exported()

    assert set(NAMES) <= schemas.keys()
    assert {f"{name}.ts" for name in NAMES if name != "JsonRpcMessage"} <= files.keys()
    assert len(REQUESTS) == 13
    assert REQUESTS.keys() <= RESULTS.keys()
    notified = plain(json_schemas()["ServerNotification"])["oneOf"]
    assert len(notified) == len(NOTIFICATIONS)  # type: ignore[arg-type]
    for text in schemas.values():
        json.loads(text)


def test_a_typescript_file_declares_each_type_that_it_names() -> None:
    _, files = exported()
    for text in files.values():
        declared = {line.split()[2] for line in text.splitlines() if line.startswith("export type")}
        used = {word.strip("<>;|,(){}[]") for word in text.split()}
        named = {word for word in used if word[:3] in ("App", "Thr", "Tur") and word.isalnum()}
        assert named <= declared


@pytest.mark.parametrize("seed", range(8))
def test_the_decoders_take_what_the_schema_takes(seed: int) -> None:
    validator, schema = request_validator(), plain(client_request())
    taken = 0
    for message in cases(random.Random(seed), schema, 1_500):
        by_schema, by_struct = schema_takes(validator, message), struct_takes(message)
        taken += by_schema
        if by_schema != by_struct:
            assert is_known_leniency(message, by_struct), message
    assert 200 < taken < 1_400


def is_known_leniency(message: Json, taken: bool) -> bool:
    """The door takes `initialize` without capabilities, and null for what may be absent in it; and nothing but {} as the
    params of schema/export (T 3.13)."""
    params = message.get("params")
    if message.get("method") == "schema/export":
        return not taken
    if message.get("method") == "initialize" and isinstance(params, dict):
        given = cast("Json", params)
        return taken and ("capabilities" not in given or has_null(given["capabilities"]))
    return False


def has_null(capabilities: object) -> bool:
    if not isinstance(capabilities, dict):
        return capabilities is None
    return None in cast("Json", capabilities).values()


def test_the_check_refuses_what_is_not_of_the_schema() -> None:
    check = Check()
    check(None, {"method": "thread/archived", "params": {"threadId": "t", "sequence": 3}})
    wrongs: list[Json] = [
        {"method": "thread/archived", "params": {}},
        {"method": "thread/unknown", "params": {}},
        {"method": "thread/archived", "params": {"threadId": None}},
    ]
    for wrong in wrongs:
        with pytest.raises(NotOfTheSchema):
            check(None, wrong)
