"""Our verdicts against the contract itself, where ROOST_CONTRACTS names a folder with `seeds/` and `fixtures/`."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from bench.event_cases import FIELDS, Case, Cases
from bench.event_oracle import Oracle
from roost.schemas.validation import judge, judge_draft

CONTRACTS = Path(os.environ.get("ROOST_CONTRACTS", "/nonexistent"))
SCHEMA = CONTRACTS / "seeds" / "stored-event.schema.json"
FIXTURES = CONTRACTS / "fixtures" / "events"
TEXTS = 10_000

NAMES = sorted(
    {name.rstrip("?") for names in FIELDS.values() for name in names} | {"id", "turn_id"}
)
TEXTS_OF_ANY_KIND = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS_OF_ANY_KIND,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS_OF_ANY_KIND, inner),
    max_leaves=8,
)

pytestmark = pytest.mark.skipif(not SCHEMA.exists(), reason="ROOST_CONTRACTS names no folder")


@pytest.mark.parametrize(
    ("name", "count", "refused"),
    [
        ("alloy-d4eecad1/conformance.json", 40, []),
        ("alloy-074f9a36/conformance.json", 40, []),
        ("alloy-b50fdc3b/valid.json", 41, [("artifact-event-1", "/type")]),
    ],
)
def test_the_published_events_are_accepted_stored_and_as_drafts(
    name: str, count: int, refused: list[tuple[str, str]]
) -> None:
    events = json.loads((FIXTURES / name).read_bytes())["events"]
    assert len(events) == count
    for stored in (True, False):
        found: list[tuple[str, str]] = []
        for event in events:
            if not stored:
                del event["sequence"]
            verdict = judge(json.dumps(event), stored=stored)
            if not verdict.ok:
                found.append((event["id"], verdict.path))
        assert found == refused


def test_the_published_refusals_have_their_paths() -> None:
    cases = json.loads((FIXTURES / "alloy-074f9a36/conformance-invalid.json").read_bytes())["cases"]
    assert len(cases) == 13
    for case in cases:
        verdict = judge(json.dumps(case["event"]), stored=case["kind"] == "stored")
        assert not verdict.ok
        assert (verdict.code, verdict.path) == ("EVENT_SCHEMA_INCOMPATIBLE", case["path"])


@pytest.mark.slow
def test_ten_thousand_events_are_judged_as_the_schema_and_the_limits_say() -> None:
    oracle, cases = _oracle(), Cases(Random(11))
    verdicts = {True: 0, False: 0}
    for number in range(TEXTS):
        case = cases.at_limit() if number % 200 == 0 else cases.some()
        verdict = judge(case.text, stored=case.stored)
        assert verdict.ok is oracle.accepts(case.text, stored=case.stored), (case, verdict)
        verdicts[verdict.ok] += 1
    assert min(verdicts.values()) > TEXTS // 4


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**9), st.sampled_from(NAMES), VALUES)
def test_any_value_in_any_field_is_judged_as_the_schema_and_the_limits_say(
    seed: int, name: str, value: object
) -> None:
    oracle = _oracle()
    event: dict[str, object] = json.loads(Cases(Random(seed)).right().text)
    if name in event or seed % 4 == 0:
        event[name] = value
    if seed % 3 == 0:
        event["metadata"] = {"value": value}
    text = json.dumps(event).encode()
    assert judge(text).ok is oracle.accepts(text, stored=True)
    event.pop("sequence", None)
    text = json.dumps(event).encode()
    verdict = judge(text, stored=False)
    assert verdict.ok is oracle.accepts(text, stored=False)
    assert judge_draft(event).ok is verdict.ok


@pytest.mark.slow
def test_a_second_validator_says_the_same_of_a_sample() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_bytes()))
    sample = _sample(Cases(Random(5)), 60)
    for case in sample:
        value = json.loads(case.text)
        assert validator.is_valid(value) is judge(case.text).ok, case


@functools.cache
def _oracle() -> Oracle:
    return Oracle(SCHEMA)


def _sample(cases: Cases, count: int) -> list[Case]:
    """Return texts about which a schema says everything.

    Its author's language decides what white space is, and how deep it can look.
    """
    sample: list[Case] = []
    while len(sample) < count:
        case = cases.some()
        said = case.way not in ("broken", "deepen", "odd_text") and case.stored
        if said and not any(
            word in case.text for word in (b"NaN", b"Inf", b"\\ud", b"\\udf", b"1e400")
        ):
            sample.append(case)
    return sample
