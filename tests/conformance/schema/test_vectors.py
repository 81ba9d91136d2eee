"""The vectors of `vectors.jsonl`, which `make_vectors.py` has written from the contract."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs

from bench.request_rules import has_blank_id, struct_refuses, without_unpublished
from roost.schemas.export import NOTIFICATIONS, REQUESTS, daemon_schema

VECTORS = [
    json.loads(line) for line in Path(__file__).with_name("vectors.jsonl").read_text().splitlines()
]


def test_every_method_and_notification_has_vectors_of_both_verdicts() -> None:
    for ok in (True, False):
        named = {str(v["message"].get("method")) for v in VECTORS if v["ok"] is ok}
        assert set(REQUESTS) | set(NOTIFICATIONS) <= named


def test_the_exported_schema_says_of_every_vector_what_the_contract_does() -> None:
    validator = jsonschema_rs.Draft7Validator(json.loads(json.dumps(daemon_schema())))
    for vector in VECTORS:
        assert validator.is_valid(vector["message"]) is vector["ok"], vector


def test_the_daemon_decodes_the_requests_that_the_contract_accepts_but_for_blank_ids() -> None:
    for vector in VECTORS:
        message = vector["message"]
        if "id" not in message or str(message.get("method")) not in REQUESTS:
            continue
        refusal = struct_refuses(message)
        if vector["ok"]:
            assert refusal == ("INVALID_ARGUMENT" if has_blank_id(message) else ""), vector
        elif not refusal:
            assert without_unpublished(message) != message, vector
