"""What confines commands on this machine is found by trying."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from roost.actors.sandbox import probe
from roost.actors.sandbox.probe import bubblewrap_programs, find_backend, run_briefly
from roost.config.load import default_settings

if TYPE_CHECKING:
    from pathlib import Path

RULES = default_settings().sandbox


def put(folder: Path, script: str) -> None:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_bubblewrap_that_does_not_work_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bubblewrap_programs()[0] == str(tmp_path / "bwrap")
    found = find_backend(RULES)
    assert found.program != str(tmp_path / "bwrap")
    monkeypatch.setattr(probe, "bubblewrap_programs", lambda: [str(tmp_path / "bwrap")])
    found = find_backend(msgspec.structs.replace(RULES, backend="bubblewrap"))
    assert found.name == ""
    assert "uid map: Permission denied" in found.detail


def test_a_bubblewrap_that_does_not_confine_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    monkeypatch.setattr(probe, "bubblewrap_programs", lambda: [str(tmp_path / "bwrap")])
    assert not find_backend(msgspec.structs.replace(RULES, backend="bubblewrap")).name


def test_without_bubblewrap_landlock_is_taken_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def programs() -> list[str]:
        return []

    monkeypatch.setattr(probe, "bubblewrap_programs", programs)
    found = find_backend(RULES)
    assert found.name in {"landlock", ""}
    monkeypatch.setattr(probe, "find_abi", lambda: -1)
    found = find_backend(RULES)
    assert found.name == ""
    assert "bubblewrap (bwrap) is not installed" in found.detail
    assert "Landlock" in found.detail


def test_nothing_is_tried_where_the_configuration_forbids_it() -> None:
    assert not find_backend(msgspec.structs.replace(RULES, backend="none")).name


@pytest.mark.parametrize(("program", "code"), [("/bin/true", 0), ("/bin/false", 1)])
def test_a_trial_says_how_the_program_ended(program: str, code: int) -> None:
    assert run_briefly((program,), {}) == (code, "")


def test_a_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "WAIT_SECONDS", 0.05)
    assert run_briefly(("/bin/sleep", "60"), {}) == (-9, "")
