"""The exported schema against the contract itself, where ROOST_CONTRACTS names a folder with `seeds/`.

Equivalent is what gives the same verdicts: on messages made from either schema, right and changed ones.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import cast

import jsonschema_rs
import pytest
from hypothesis import given, settings, strategies as st

from bench.request_rules import has_blank_id, struct_refuses, without_unpublished
from bench.schema_cases import Cases, Json, objects_in
from roost.schemas.export import REQUESTS, daemon_schema

FOLDER = Path(os.environ.get("ROOST_CONTRACTS", "/nonexistent"))
FILE = FOLDER / "seeds" / "daemon-protocol.schema.json"
CONTRACT: Json = json.loads(FILE.read_bytes()) if FILE.exists() else {}
OURS: Json = json.loads(json.dumps(daemon_schema()))
THEIR_VERDICT = jsonschema_rs.Draft7Validator(CONTRACT)
OUR_VERDICT = jsonschema_rs.Draft7Validator(OURS)
MESSAGES = 10_000
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-1e18, 1e18) | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXTS, SCALARS, max_size=3)

pytestmark = pytest.mark.skipif(not CONTRACT, reason="ROOST_CONTRACTS names no folder")


def test_the_contract_and_the_export_name_the_same_methods_and_notifications() -> None:
    for what in ("methods", "notifications"):
        assert OURS[f"x-roost-{what}"] == CONTRACT[f"x-agenc-{what}"]
    theirs, ours = Cases(CONTRACT, Random()), Cases(OURS, Random())
    assert (
        set(theirs.requests) == set(ours.requests) == {*cast("list[str]", OURS["x-roost-methods"])}
    )
    assert (
        set(theirs.notifications)
        == set(ours.notifications)
        == {*cast("list[str]", OURS["x-roost-notifications"])}
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["contract", "export"])
def test_messages_made_from_either_schema_have_the_same_verdict_by_both(source: str) -> None:
    cases = Cases(CONTRACT if source == "contract" else OURS, Random(7))
    verdicts: Counter[bool] = Counter()
    for number in range(MESSAGES):
        case = cases.right()
        if number % 2:
            case = cases.changed(case.message)
        accepted = THEIR_VERDICT.is_valid(case.message)
        assert OUR_VERDICT.is_valid(case.message) is accepted, case
        assert accepted or number % 2, case
        verdicts[accepted] += 1
    assert min(verdicts.values()) > MESSAGES // 4


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(REQUESTS)), VALUES)
def test_the_daemon_decodes_what_the_contract_accepts_whatever_is_in_a_member(
    seed: int, method: str, value: object
) -> None:
    random = Random(seed)
    message = Cases(CONTRACT, random).request(method)
    holder = random.choice([one for one in objects_in(message) if one])
    name = random.choice(sorted(holder))
    if name != "method":
        holder[name] = value
    accepted = THEIR_VERDICT.is_valid(message)
    assert OUR_VERDICT.is_valid(message) is accepted
    refusal = struct_refuses(message)
    if accepted:
        assert refusal == ("INVALID_ARGUMENT" if has_blank_id(message) else "")
    elif not refusal:
        assert without_unpublished(message) != message
