from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from roost.actors.client.cli import cli

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["up", "restart"])
def test_a_setting_without_a_value_is_a_wrong_use(tmp_path: Path, command: str) -> None:
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), command, "--set", "x"])
    assert ended.exit_code == 2
    assert "KEY=VALUE" in ended.output


def test_no_time_to_get_ready_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    ended = CliRunner().invoke(
        cli, ["--home", str(tmp_path), "up", "--set", "daemon.ready_timeout=0"]
    )
    assert ended.exit_code == 1
    assert "daemon.ready_timeout: Expected `float` > 0.0" in ended.output


@pytest.mark.parametrize("interval", ["nan", "inf", "-nan"])
def test_an_interval_that_is_no_time_is_a_wrong_use(tmp_path: Path, interval: str) -> None:
    home = str(tmp_path)
    ended = CliRunner().invoke(cli, ["--home", home, "top", "--interval", interval, "--count", "1"])
    assert ended.exit_code == 2
