"""The exported schema of stored events against the verdicts of the daemon, which are the contract's."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random

import jsonschema_rs
import pytest
from click.testing import CliRunner

from bench.event_cases import Cases
from roost.actors.client.cli import cli
from roost.schemas.export_events import events_schema

SCHEMA = json.loads(json.dumps(events_schema()))
VALIDATOR = jsonschema_rs.Draft7Validator(SCHEMA)
FILE = Path(os.environ.get("ROOST_CONTRACTS", "/nonexistent")) / "seeds/stored-event.schema.json"
VECTORS = Path(__file__).parents[1] / "events" / "vectors.jsonl"
TEXTS = 6_000
# Of what a schema says nothing, and what its readers read in ways of their own.
UNSAID = (b"NaN", b"Inf", b"\\ud", b"1e400", b"1e-400", b"\xef\xbb\xbf")


def test_the_stored_vectors_have_the_same_verdict_where_a_schema_can_tell() -> None:
    judged: Counter[bool] = Counter()
    for line in VECTORS.read_text().splitlines():
        vector = json.loads(line)
        text: bytes = vector.get("text", "").encode()
        if not vector["stored"] or not _can_be_told(text):
            continue
        assert VALIDATOR.is_valid(json.loads(text)) is vector["ok"], vector
        judged[vector["ok"]] += 1
    assert judged[True] > 50
    assert judged[False] > 100


@pytest.mark.slow
@pytest.mark.skipif(not FILE.exists(), reason="ROOST_CONTRACTS names no folder")
def test_generated_events_have_the_contract_s_verdict() -> None:
    contract = jsonschema_rs.Draft202012Validator(json.loads(FILE.read_bytes()))
    cases, judged = Cases(Random(9)), Counter[bool]()
    for _ in range(TEXTS):
        text = cases.some().text
        if _can_be_told(text):
            accepted = contract.is_valid(json.loads(text))
            assert VALIDATOR.is_valid(json.loads(text)) is accepted, text
            judged[accepted] += 1
    assert min(judged.values()) > TEXTS // 8


def test_the_command_prints_the_schema_of_events() -> None:
    result = CliRunner().invoke(cli, ["schema", "events"])
    assert result.exit_code == 0
    assert json.loads(result.output) == SCHEMA


def _can_be_told(text: bytes) -> bool:
    if any(word in text for word in UNSAID):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and text.count(b"[") + text.count(b"{") < 60
