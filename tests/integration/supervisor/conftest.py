"""The tree of processes that the tests of the supervisor use, once for each way to start a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Forest, Mode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["zygote", "spawn"])
def forest(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Forest:
    mode: Mode = request.param
    return Forest(tmp_path, monkeypatch, mode)


@pytest.fixture
def zygote_forest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forest:
    return Forest(tmp_path, monkeypatch, "zygote")
