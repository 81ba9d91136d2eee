from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.actors.session.approvals import (
    Grants,
    Judgement,
    judge,
    make_rules,
    operation_keys,
    plain_command,
)
from roost.schemas.tool_names import canonical_tool

if TYPE_CHECKING:
    from roost.schemas.event import Risk


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("shell", "system.bash"),
        ("Bash", "system.bash"),
        ("system.bash", "system.bash"),
        (" edit_file ", "Edit"),
        ("FileWrite", "Write"),
        ("read", "FileRead"),
        ("FileRead", "FileRead"),
        ("list_files", "Glob"),
        ("grep", "Grep"),
        ("AskUser", "AskUser"),
    ],
)
def test_aliases_are_replaced_without_regard_to_case(name: str, canonical: str) -> None:
    assert canonical_tool(name) == canonical


@pytest.mark.parametrize(
    ("unattended", "allow", "deny", "ask", "risk", "judgement"),
    [
        (False, (), (), "write", "read", "run"),
        (False, (), (), "write", "write", "ask"),
        (False, (), (), "read", "read", "ask"),
        (False, (), (), "external_effect", "write", "run"),
        (False, (), (), "external_effect", "destructive", "ask"),
        (False, (), (), "never", "admin", "run"),
        (True, ("shell",), (), "write", "external_effect", "run"),
        (True, ("shell",), ("bash",), "write", "external_effect", "deny"),
        (True, (), ("shell",), "never", "external_effect", "deny"),
        (False, (), ("system.*",), "write", "external_effect", "deny"),
        (True, ("*",), (), "write", "admin", "run"),
        (True, ("*",), ("*",), "write", "read", "deny"),
        (True, ("Write",), (), "write", "external_effect", "ask"),
        (False, ("shell",), (), "write", "external_effect", "ask"),
        (True, ("SYSTEM.BASH",), (), "write", "external_effect", "run"),
        (True, ("system.bas",), (), "write", "external_effect", "ask"),
    ],
)
def test_a_denial_wins_then_the_allow_list_then_the_risk(
    unattended: bool,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    ask: str,
    risk: Risk,
    judgement: Judgement,
) -> None:
    rules = make_rules(ask, unattended, allow, deny)  # type: ignore[arg-type] # one of its values
    assert judge(rules, "shell", risk, ("key",), Grants(set())) == judgement


def test_all_keys_of_a_call_must_be_granted() -> None:
    rules = make_rules("write", False, (), ())
    grants = Grants({"a"}, ("b",))
    assert judge(rules, "Edit", "write", ("a", "b"), grants) == "run"
    assert judge(rules, "Edit", "write", ("a", "c"), grants) == "ask"
    assert judge(rules, "Edit", "write", (), grants) == "ask"


def test_a_grant_does_not_beat_a_denial() -> None:
    rules = make_rules("write", False, (), ("Edit",))
    assert judge(rules, "edit_file", "write", ("a",), Grants({"a"})) == "deny"


def test_grants_of_an_agent_are_shared_and_those_of_a_session_are_not() -> None:
    shared: set[str] = set()
    first, second = Grants(shared), Grants(shared)
    assert first.add(("a",), "agent")
    assert first.add(("s",), "session")
    assert not first.add(("s",), "session")
    assert not first.add(("o",), "once")
    assert second.cover(("a",))
    assert not second.cover(("s",))
    assert not first.cover(("o",))


def test_blank_entries_are_dropped_and_names_trimmed() -> None:
    rules = make_rules("write", True, (" bash ", "", "  ", "shell"), ())
    assert rules.allow == ("system.bash",)


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("git status", "git status"),
        ("  git status ", "git status"),
        ("bash -lc 'git status'", "git status"),
        ("/bin/sh -c 'git status'", "git status"),
        ("bash -lc \"sh -c 'git  status'\"", "git  status"),
        ("bash -c 'a' b", "bash -c 'a' b"),
        ("bash script.sh x", "bash script.sh x"),
        ("bash --rcfile x", "bash --rcfile x"),
        ("bash -x a", "bash -x a"),
        ("echo 'unfinished", "echo 'unfinished"),
        ("python -c 'x'", "python -c 'x'"),
    ],
)
def test_wrappers_of_a_command_do_not_count(command: str, plain: str) -> None:
    assert plain_command(command) == plain


def test_a_command_is_known_with_its_directory() -> None:
    assert operation_keys("bash", {"command": "ls"}, "/a") != operation_keys(
        "bash", {"command": "ls"}, "/b"
    )
    assert operation_keys("shell", {"command": "ls", "timeout_s": 9}, "/a") == operation_keys(
        "bash", {"command": "sh -c ls"}, "/a"
    )


def test_an_edit_is_known_by_its_file_however_it_is_written() -> None:
    keys = operation_keys("edit_file", {"path": "x/../y"}, "/a")
    assert keys == operation_keys("write_file", {"path": "/a/y"}, "/elsewhere")


def test_arguments_compare_irrespective_of_the_order_of_members() -> None:
    first = operation_keys("Other", {"a": 1, "b": [1, 2]}, "/")
    assert first == operation_keys("Other", {"b": [1, 2], "a": 1}, "/")
    assert first != operation_keys("Other", {"b": [2, 1], "a": 1}, "/")
