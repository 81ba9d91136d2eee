from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from bench import fuzz_events
from bench.event_cases import Cases
from roost.schemas import recovery_codes
from roost.schemas.event import AnyEvent
from roost.schemas.shapes import SHAPES
from roost.schemas.unions import event_decoder
from roost.schemas.validation import Verdict, judge, judge_draft

Json = Mapping[str, object]

BASE: Json = {
    "id": "e",
    "type": "session.created",
    "version": "1.0",
    "timestamp": 0,
    "session_id": "s",
    "sequence": 1,
}
CALL: Json = {"turn_id": "t", "tool_name": "shell", "tool_call_id": "c"}
COMPLETED: Json = {**CALL, "type": "tool.call.completed", "result": None}
REQUESTED: Json = {**CALL, "type": "tool.call.requested", "tool_args": {}}
FAILED: Json = {**CALL, "type": "tool.call.failed", "error": "x"}
REJECTED: Json = {
    **CALL,
    "type": "tool.approval.rejected",
    "error_code": "APPROVAL_REJECTED",
    "reason": "no",
}
ROW: Json = {
    "error_code": "INTEGRATION_AUTH_ERROR",
    "reason_code": "keychain_locked",
    "recovery_code": "UNLOCK_KEYCHAIN",
    "doc_url": "https://kaji.dev/docs/integrations/recovery-v1#keychain-locked",
}
LIMIT = 1_048_576


def event(*parts: Json, **more: object) -> dict[str, object]:
    found = dict(BASE)
    for part in (*parts, more):
        found.update(part)
    return found


def verdict(*parts: Json, **more: object) -> Verdict:
    return judge(json.dumps(event(*parts, **more)))


def without(name: str, *parts: Json) -> str:
    found = event(*parts)
    del found[name]
    return json.dumps(found)


# The order of checks


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[]", "/"),
        ("1", "/"),
        ("", "/"),
        ("{", "/"),
        (json.dumps({"reason_code": "x"}), "/reason_code"),
        ("{}", "/id"),
        (without("version"), "/version"),
        (without("timestamp"), "/timestamp"),
        (without("type"), "/type"),
        (without("session_id"), "/session_id"),
        (json.dumps(event(id="", session_id="")), "/id"),
        (json.dumps(event(session_id="", sequence=None)), "/session_id"),
        (json.dumps(event(turn_id="", type="x")), "/turn_id"),
        (without("sequence", {"type": "x"}), "/sequence"),
        (json.dumps(event(type="artifact.emitted", extra=1)), "/type"),
        (json.dumps(event(type=None)), "/type"),
        (json.dumps(event(type=["session.created"])), "/type"),
        (json.dumps(event(z=1, b=1, id=5)), "/b"),
        (json.dumps(event({"a/b~c": 1})), "/a~1b~0c"),
        (json.dumps(event(timestamp="x", id=5)), "/id"),
        (json.dumps(event(metadata={"n": 2**53})), "/metadata/n"),
        (json.dumps(event(metadata={"b": [0, {"/": 2**53}], "c": 2**53})), "/metadata/b/1/~1"),
        (json.dumps(event(turn_id=None)), "/turn_id"),
        (json.dumps(event(metadata=None)), "/metadata"),
        (json.dumps(event(version=1.0)), "/version"),
        (json.dumps(event(sequence=0)), "/sequence"),
        (json.dumps(event(sequence=True)), "/sequence"),
        (json.dumps(event(type="user.message")), "/content"),
        (json.dumps(event(FAILED, error="")), "/error"),
        (
            json.dumps(event(type="agent.message.completed", content="", tokens={"input": 1})),
            "/tokens/output",
        ),
        (
            json.dumps(
                event(type="agent.message.completed", content="", tokens={"input": -1, "x": 1})
            ),
            "/tokens/input",
        ),
        (
            json.dumps(event(type="memory.retrieval.completed", query="", documents=[None, 1])),
            "/documents/0",
        ),
    ],
)
def test_a_refusal_names_the_first_breach(text: str, path: str) -> None:
    found = judge(text)
    assert (found.ok, found.code, found.path) == (False, "EVENT_SCHEMA_INCOMPATIBLE", path)
    assert found.message


def test_a_draft_has_no_sequence_and_a_stored_event_has_one() -> None:
    text = json.dumps(event())
    assert judge(text).ok
    assert judge(text, stored=False).path == "/sequence"
    assert judge(without("sequence"), stored=False).ok
    assert judge(without("sequence")).path == "/sequence"


# Values


@pytest.mark.parametrize("one", ["1", "1.0", "1e0", "10E-1", "1.00000000000000000001"])
def test_an_integer_is_judged_by_value_and_stored_as_one(one: str) -> None:
    found = judge(
        json.dumps(event(metadata={"n": "N"})).replace('"N"', one).replace(": 1}", f": {one}}}")
    )
    assert found.event is not None
    assert found.event.sequence == 1
    assert json.loads(found.event.body)["metadata"] == {"n": 1}
    assert b"1.0" not in found.event.body.replace(b'"1.0"', b"")


@pytest.mark.parametrize(
    ("number", "ok"),
    [
        ("9007199254740991", True),
        ("9007199254740991.0", True),
        ("9007199254740991.9", False),
        ("9007199254740992", False),
        ("-9007199254740992.0", False),
        ("1e16", False),
        ("1e300", False),
        ("1e400", False),
        ("-1e400", False),
        ("1" + "0" * 5_000, False),
        ("4503599627370495.5", True),
        ("1e-400", True),
        ("-0.0", True),
        ("NaN", False),
        ("Infinity", False),
        ("-Infinity", False),
        ("01", False),
        ("1.", False),
    ],
)
@pytest.mark.parametrize("where", ["metadata", "timestamp", "result"])
def test_numbers_are_finite_and_integers_safe_everywhere(number: str, ok: bool, where: str) -> None:
    parts = {**COMPLETED, "metadata": {"n": [0]}}
    parts[where] = {"n": ["N"]} if where != "timestamp" else "N"
    assert judge(json.dumps(event(parts)).replace('"N"', number)).ok is ok


def test_what_the_schema_cannot_see_is_named_by_its_field() -> None:
    assert verdict(metadata={"a": "\ud800"}).path == "/metadata"
    assert verdict(metadata={"\udfff": 1}).path == "/metadata"
    assert verdict(COMPLETED, result=["\ud800"], metadata={"a": "\ud800"}).path == "/result"
    assert verdict(type="user.message", content="\ud800").path == "/"
    assert judge(json.dumps(event(metadata={"n": "N"})).replace('"N"', "1e400")).path == "/metadata"
    assert judge(json.dumps(event(timestamp="N")).replace('"N"', "1e400")).path == "/"
    found = verdict({"\ud800": 1})
    assert found.path == "/?"


def test_the_last_of_doubled_keys_counts_and_it_alone_is_stored() -> None:
    text = json.dumps(event(metadata={})).replace('"metadata": {}', '"metadata":{"n":1e999,"n":2}')
    found = judge(text.replace('"id"', '"id": 7, "id"'))
    assert found.event is not None
    assert json.loads(found.event.body)["metadata"] == {"n": 2}
    assert found.event.body.count(b'"id"') == 1
    assert judge(text.replace('"type"', '"type": "user.message", "type"')).ok


@pytest.mark.parametrize("text", [b"\xff", b'{"id":"\xed\xa0\x80"}', "\ud800", b"\xef\xbb\xbf{}"])
def test_what_is_not_utf_8_is_refused(text: bytes | str) -> None:
    assert judge(text).path == "/"


@pytest.mark.parametrize(
    ("reason", "ok"),
    [
        ("x", True),
        ("", False),
        (" \t\n\u00a0\u3000\u2028", False),
        ("\ufeff", False),
        ("\x85", True),
        ("\x1c", True),
        ("\u200b", True),
        ("😀" * 200, True),
        ("😀" * 201, False),
        (" " * 199 + "x", True),
        (" " * 200 + "x", False),
    ],
)
def test_a_rejection_has_ink_as_ecmascript_sees_it(reason: str, ok: bool) -> None:
    assert verdict(REJECTED, reason=reason).ok is ok


@pytest.mark.parametrize("depth", [64, 126])
def test_64_levels_and_more_are_accepted(depth: int) -> None:
    text = json.dumps(event(metadata={"a": "V"})).replace('"V"', "[" * depth + "]" * depth)
    assert judge(text).ok


@pytest.mark.parametrize(("depth", "path"), [(127, "/metadata"), (500, "/metadata"), (10**5, "/")])
def test_endless_nesting_is_a_refusal_and_no_crash(depth: int, path: str) -> None:
    text = json.dumps(event(metadata={"a": "V"})).replace('"V"', "[" * depth + "]" * depth)
    assert judge(text).path == path
    assert judge("[" * depth).path == "/"


# The recovery table


@pytest.mark.parametrize("row", sorted(recovery_codes.ROWS))
def test_the_rows_of_the_recovery_table_are_closed(row: tuple[str, ...]) -> None:
    fields: dict[str, object] = dict(zip(("error_code", *recovery_codes.FIELDS), row, strict=True))
    assert len(recovery_codes.ROWS) == 15
    assert verdict(FAILED, fields).ok
    assert verdict(fields, type="agent.turn.failed", turn_id="t", error="x").path == "/doc_url"
    for name in fields:
        assert verdict(FAILED, {**fields, name: "other"}).path == "/reason_code"
        assert verdict(FAILED, {**fields, name: None}).path == "/reason_code"
        assert judge(without(name, FAILED, fields)).path == "/reason_code"
    assert verdict(FAILED, error_code=row[0]).ok


def test_a_part_of_a_row_is_refused_whatever_the_type() -> None:
    assert verdict(reason_code=None).path == "/reason_code"
    assert verdict(FAILED, ROW, doc_url=["x"]).path == "/reason_code"


# Limits


@pytest.mark.parametrize(
    ("parts", "field", "path"),
    [(REQUESTED, "tool_args", "/tool_args"), (COMPLETED, "result", "/result")],
)
def test_a_value_has_64_kib_in_canonical_form(parts: Json, field: str, path: str) -> None:
    fit = {"t": "ü" * 32_763}
    assert len(json.dumps(fit, ensure_ascii=False, separators=(",", ":")).encode()) == 65_534
    assert verdict(parts, {field: {**fit}}).ok
    assert verdict(parts, {field: {"t": fit["t"] + "xx"}}).ok
    found = verdict(parts, {field: {"t": fit["t"] + "xxx"}})
    assert (found.code, found.path) == ("EVENT_SCHEMA_INCOMPATIBLE", path)
    assert "ü" not in found.message


def test_spelling_does_not_count_against_a_limit() -> None:
    numbers = ",".join(["1.0"] * 32_767)
    text = json.dumps(event(COMPLETED, result="V")).replace('"V"', f"[{numbers}]")
    assert judge(text).ok
    assert not judge(text.replace("[1.0", "[1.0,1.0")).ok
    small = ",".join(["1e-6"] * 7_281)
    text = json.dumps(event(COMPLETED, result="V")).replace('"V"', f"[{small}]")
    assert judge(text).ok
    assert judge(text.replace("[1e-6", "[1e-6,1e-6")).path == "/result"


def test_a_whole_event_has_a_mebibyte_with_its_sequence() -> None:
    room = LIMIT - len(json.dumps(event(type="user.message", content=""), separators=(",", ":")))
    assert verdict(type="user.message", content="x" * room).ok
    assert verdict(type="user.message", content="x" * (room + 1)).path == "/"
    assert not verdict(type="user.message", content="x" * room, sequence=10).ok
    assert verdict(metadata={"a": "x" * LIMIT}).path == "/metadata"


# What comes out


def test_the_stored_form_is_what_the_daemon_reads() -> None:
    found = verdict(COMPLETED, result={"a": [1.0, 1.5]}, sequence=7).event
    assert found is not None
    assert (found.id, found.type, found.session_id) == ("e", "tool.call.completed", "s")
    assert (found.turn_id, found.sequence) == ("t", 7)
    assert event_decoder.decode(found.body).id == "e"
    assert "metadata" not in json.loads(found.body)


def test_ordinary_and_odd_events_come_out_the_same() -> None:
    ordinary, odd = verdict(FAILED, metadata={"a": 1}), verdict(FAILED, metadata={"a": 1.0})
    assert ordinary.event is not None
    assert odd.event is not None
    assert json.loads(ordinary.event.body) == json.loads(odd.event.body)


def test_the_types_are_the_structs_types() -> None:
    kinds = {str(kind.__struct_config__.tag): kind for kind in AnyEvent.__args__}
    assert set(kinds) == set(SHAPES)
    for name, kind in kinds.items():
        assert {*kind.__struct_fields__, "type"} == set(SHAPES[name].fields)


# In memory


@pytest.mark.parametrize(
    ("draft", "code", "path"),
    [
        ({**COMPLETED, "result": float("nan")}, "INVALID_DURABLE_VALUE", "/result"),
        ({**COMPLETED, "result": object()}, "INVALID_DURABLE_VALUE", "/result"),
        ({**COMPLETED, "result": {1: 2}}, "INVALID_DURABLE_VALUE", "/result"),
        ({**COMPLETED, "result": "x" * 65_536}, "EVENT_PAYLOAD_TOO_LARGE", "/result"),
        (
            {**REQUESTED, "tool_args": {"a": "x" * 65_536}},
            "EVENT_SCHEMA_INCOMPATIBLE",
            "/tool_args",
        ),
        ({**REQUESTED, "tool_args": {"a": object()}}, "EVENT_SCHEMA_INCOMPATIBLE", "/tool_args"),
        ({"metadata": {"a": b""}}, "INVALID_DURABLE_VALUE", "/metadata"),
        ({"metadata": {"a": 2**53}}, "EVENT_SCHEMA_INCOMPATIBLE", "/metadata/a"),
        ({"type": "user.message", "content": "x" * LIMIT}, "EVENT_PAYLOAD_TOO_LARGE", "/"),
        ({5: 1}, "EVENT_SCHEMA_INCOMPATIBLE", "/5"),
    ],
)
def test_a_draft_in_memory_has_codes_of_its_own(draft: Json, code: str, path: str) -> None:
    whole = event(draft)
    del whole["sequence"]
    found = judge_draft(whole)
    assert (found.code, found.path) == (code, path)


def test_a_cycle_in_memory_is_refused() -> None:
    cycle: dict[str, object] = {}
    cycle["a"] = [cycle]
    whole = event(metadata=cycle)
    del whole["sequence"]
    assert judge_draft(whole).code == "INVALID_DURABLE_VALUE"


def test_no_refusal_repeats_what_was_in_the_event() -> None:
    secret = "hunter2"
    for parts in ({"id": [secret]}, {"type": secret}, {"metadata": {"a": "\ud800" + secret}}):
        assert secret not in str(verdict(parts))


# Many


@pytest.mark.slow
def test_ten_thousand_texts_are_judged_without_a_crash_or_a_contradiction() -> None:
    fuzz = fuzz_events.Fuzz(seed=7, oracle=None)
    fuzz.run(10_000)
    assert fuzz.wrong == []
    assert fuzz.accepted > 2_000


def test_right_events_of_every_type_are_accepted() -> None:
    cases = Cases(Random(3))
    for _ in range(1_000):
        text = cases.right().text
        found = judge(text)
        assert found.ok, (found, text)
        msgspec.json.decode(text)
