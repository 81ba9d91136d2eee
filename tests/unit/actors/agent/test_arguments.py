from __future__ import annotations

import pytest

from roost.actors.agent.arguments import from_text, is_storable_result, storable
from roost.actors.agent.runner import CallRequest


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1}', ""),
        ("", ""),
        ("[1]", "invalid arguments"),
        ('"text"', "invalid arguments"),
        ("{", "invalid JSON"),
        ('{"a": NaN}', "invalid JSON"),
        ('{"a": "\\ud800"}', "invalid JSON"),
        ("{" + '"a":' * 5, "invalid JSON"),
        ('{"a": "' + "x" * 65_536 + '"}', "payload too large"),
    ],
)
def test_a_models_arguments_are_an_object_or_a_fault(text: str, fault: str) -> None:
    request = from_text("x", text)
    assert request.fault == fault
    assert ("__parse_error" in request.args) is bool(fault)


def test_endless_nesting_is_a_fault_and_no_crash() -> None:
    assert from_text("x", '{"a":' * 5000 + "1" + "}" * 5000).fault == "invalid JSON"


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (2**53 - 1, True),
        (2**53, False),
        (-(2**53), False),
        (1e16, False),
        (1.5, True),
        (float("inf"), False),
        (True, True),
        (None, True),
        ([{"a": [1]}], True),
        (object(), False),
    ],
)
def test_only_safe_numbers_are_stored(value: object, good: bool) -> None:
    assert (storable(CallRequest("x", {"v": value})).fault == "") is good
    assert is_storable_result(value) is good


def test_arguments_over_64_kib_are_a_fault() -> None:
    assert storable(CallRequest("x", {"v": "x" * 65_536})).fault == "payload too large"


def test_a_result_over_64_kib_is_not_stored() -> None:
    assert is_storable_result("x" * 65_534)
    assert not is_storable_result("x" * 65_535)
