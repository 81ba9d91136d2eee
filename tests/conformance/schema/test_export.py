"""The exported schema against the daemon's own decoder and the daemon's own tables."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import cast

import jsonschema_rs
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from bench.request_rules import has_blank_id, struct_refuses
from bench.schema_cases import Case, Cases, Json, objects_in
from roost.actors.client.cli import cli
from roost.actors.front.daemon_door import DOOR
from roost.schemas.daemon import Params
from roost.schemas.export import NOTIFICATIONS, REQUESTS, RESULTS, daemon_schema
from roost.schemas.thread import ThreadParams

SCHEMA: Json = json.loads(json.dumps(daemon_schema()))
VALIDATOR = jsonschema_rs.Draft7Validator(SCHEMA)
MESSAGES = 4_000
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-1e18, 1e18) | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXTS, SCALARS, max_size=3)


def verdicts_agree(message: object) -> bool:
    """Return whether the decoder judges a request as the schema does, but for a rule of the protocol."""
    refusal = struct_refuses(message)
    if not VALIDATOR.is_valid(message):
        return bool(refusal)
    return not refusal or (refusal == "INVALID_ARGUMENT" and has_blank_id(message))


def test_every_schema_made_is_a_schema_and_every_link_in_it_leads_somewhere() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    text = json.dumps(SCHEMA)
    links = {part.split('"')[0] for part in text.split('"#/definitions/')[1:]}
    assert links == {*cast("Json", SCHEMA["definitions"])}


def test_the_door_decodes_with_the_structs_that_are_exported() -> None:
    advertised = {name: m for name, m in DOOR.methods.items() if m.advertised}
    assert set(advertised) == set(REQUESTS)
    built = {name: m.params for name, m in advertised.items() if m.implemented}
    assert built == {name: REQUESTS[name] for name in built}
    assert set(RESULTS) <= set(REQUESTS)
    assert (len(REQUESTS), len(NOTIFICATIONS)) == (42, 16)


def test_every_struct_of_params_refuses_unknown_members() -> None:
    # The thread door ignores them.
    shapes: list[type[Params]] = [s for s in Params.__subclasses__() if s is not ThreadParams]
    for shape in shapes:
        shapes += shape.__subclasses__()
        assert shape.__struct_config__.forbid_unknown_fields, shape


def test_the_daemon_decodes_what_the_schema_accepts_and_refuses_what_it_refuses() -> None:
    cases = Cases(SCHEMA, Random(3))
    methods = sorted(cases.requests)
    verdicts: Counter[bool] = Counter()
    for number in range(MESSAGES):
        message = cases.request(methods[number % len(methods)])
        assert VALIDATOR.is_valid(message), message
        changed = cases.changed(message)
        for case in (Case(message, "right"), changed):
            assert verdicts_agree(case.message), case
        verdicts[VALIDATOR.is_valid(changed.message)] += 1
    assert min(verdicts.values()) > MESSAGES // 10


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(REQUESTS)), VALUES)
def test_any_value_in_any_member_is_judged_as_the_schema_says(
    seed: int, method: str, value: object
) -> None:
    random = Random(seed)
    message = Cases(SCHEMA, random).request(method)
    holder = random.choice([one for one in objects_in(message) if one])
    name = random.choice(sorted(holder))
    if name != "method":
        holder[name] = value
    assert verdicts_agree(message)


@pytest.mark.parametrize("member", ["initialContent", "permissionMode"])
def test_what_clients_send_beyond_the_schema_is_taken_and_not_exported(member: str) -> None:
    value: object = [] if member == "initialContent" else "default"
    params: Json = {"objective": "x", member: value}
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": "agent.create", "params": params}
    assert not VALIDATOR.is_valid(message)
    assert struct_refuses(message) == ""


def test_the_command_prints_the_schema_without_a_daemon() -> None:
    for arguments in (["schema"], ["schema", "daemon"]):
        result = CliRunner().invoke(cli, ["--home", "/nonexistent/home", *arguments])
        assert result.exit_code == 0
        assert json.loads(result.output) == SCHEMA
