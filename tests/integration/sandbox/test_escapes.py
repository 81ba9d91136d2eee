"""Attempts to get out of a sandbox, under two policies and on two backends; each ends in an ordinary error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.sandbox.policy import FULL_ACCESS
from roost.schemas.boot import Backend
from tests.integration.sandbox.attempts import PROTECTED, REACHING, SEEING, WRITING
from tests.support.cage import READ_ONLY, SECRET, WORKSPACE, Cage, Ended

if TYPE_CHECKING:
    from roost.actors.sandbox.policy import Policy

DOCS = Path(__file__).parents[3] / "docs" / "sandbox.md"
ATTEMPTS = WRITING | SEEING | REACHING | PROTECTED
ERROR = re.compile(r"^\w*Error\b.*", re.MULTILINE)
SUCCEED_OTHERWISE = (
    "create a file outside",
    "write through a symbolic link",
    "change a mode outside",
    "write into the daemon's home",
    "read the cookie",
    "read the user's keys",
    "read another process's environment",
    "connect to the daemon's socket",
    "connect to an abstract socket",
    "connect out",
    "open the user's terminal",
    "write a hook",
)


class Tried(msgspec.Struct, frozen=True):
    """What all attempts under one policy on one backend came to."""

    policy: str
    backend: str
    ended: dict[str, Ended]
    faults: list[str]


@pytest.fixture(scope="module", params=[READ_ONLY, WORKSPACE], ids=lambda policy: policy.type)
def tried(cage: Cage, backend: Backend, request: pytest.FixtureRequest) -> Tried:
    policy: Policy = request.param
    ended = cage.attempt_all(policy, backend, ATTEMPTS)
    return Tried(policy.type, backend.name, ended, list(cage.faults()))


def test_nothing_outside_was_changed_or_reached(tried: Tried) -> None:
    assert not tried.faults


def test_no_attempt_saw_a_secret(tried: Tried) -> None:
    assert [name for name, ended in tried.ended.items() if SECRET in ended.said] == []


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_to_get_out_ends_in_an_ordinary_error(tried: Tried, name: str) -> None:
    if name in PROTECTED and (tried.backend, tried.policy) == ("landlock", "workspaceWrite"):
        pytest.skip("named in docs/sandbox.md as not covered")
    ended = tried.ended[name]
    assert ended.code == 1, ended.said
    assert ERROR.search(ended.said), ended.said


def test_what_is_not_covered_is_named() -> None:
    assert "`.git` is not protected" in DOCS.read_text()


def test_without_a_sandbox_attempts_succeed() -> None:
    chosen = {name: ATTEMPTS[name] for name in SUCCEED_OTHERWISE}
    with Cage() as cage:
        ended = cage.attempt_all(FULL_ACCESS, Backend(), chosen)
        assert len(list(cage.faults())) >= 4
    assert {name: each.said for name, each in ended.items() if each.code} == {}
