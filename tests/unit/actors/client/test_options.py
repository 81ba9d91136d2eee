from __future__ import annotations

import os
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
    assert ended.exit_code == 2
    assert "daemon.ready_timeout: Expected `float` > 0.0" in ended.output


@pytest.mark.parametrize("interval", ["nan", "inf", "-nan"])
def test_an_interval_that_is_no_time_is_a_wrong_use(tmp_path: Path, interval: str) -> None:
    home = str(tmp_path)
    ended = CliRunner().invoke(cli, ["--home", home, "top", "--interval", interval, "--count", "1"])
    assert ended.exit_code == 2


@pytest.mark.parametrize("command", ["up", "restart"])
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("websocket.port=x", "'x' is not a whole number"),
        ("nope.x=0", "unknown key nope"),
        ("agents.sandbox=x", "allowed are 'readOnly'"),
    ],
)
def test_a_setting_that_cannot_be_is_a_wrong_use(
    tmp_path: Path, command: str, setting: str, said: str
) -> None:
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), command, "--set", setting])
    assert ended.exit_code == 2
    assert said in ended.output


@pytest.mark.parametrize("command", ["up", "restart"])
def test_a_wrong_file_is_no_wrong_use(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.toml").write_text("[websocket]\nport = 'x'\n")
    given = ["--home", str(tmp_path), command, "--set", "websocket.enabled=false"]
    ended = CliRunner().invoke(cli, given)
    assert ended.exit_code == 1
    assert "config.toml line 2: websocket.port" in ended.output


def test_a_restart_with_a_wrong_setting_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[object] = []
    monkeypatch.setattr("roost.actors.client.daemon_commands.stop_daemon", stopped.append)
    (tmp_path / "config.toml").write_text("nonsense")
    for option in ((), ("--set", "websocket.port=x")):
        assert CliRunner().invoke(cli, ["--home", str(tmp_path), "restart", *option]).exit_code
    assert not stopped


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_a_time_that_is_none_is_a_wrong_use(tmp_path: Path, seconds: str) -> None:
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), "down", "--timeout", seconds])
    assert ended.exit_code == 2
    assert "--timeout" in ended.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", ""],
        ["run", " "],
        ["send", "", "text"],
        ["send", "agent", ""],
        ["clear", ""],
        ["stop", ""],
        ["exec", ""],
        ["attach", "--yes", ""],
        ["logs", ""],
        ["approve", ""],
        ["deny", ""],
        ["events", "tail", ""],
        ["events", "export", "s", ""],
        ["events", "export", "--all", "--agent", ""],
    ],
)
def test_what_must_be_named_and_is_empty_is_a_wrong_use(
    tmp_path: Path, arguments: list[str]
) -> None:
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), *arguments])
    assert ended.exit_code == 2
    assert "empty" in ended.output


def test_an_empty_home_is_a_wrong_use_and_not_the_usual_home() -> None:
    ended = CliRunner().invoke(cli, ["--home", "", "token"])
    assert ended.exit_code == 2
    assert "'--home': it is empty" in ended.output


def test_a_root_that_is_not_there_is_a_wrong_use(tmp_path: Path) -> None:
    given = ["--home", str(tmp_path), "search", "x", str(tmp_path), str(tmp_path / "none")]
    ended = CliRunner().invoke(cli, given)
    assert ended.exit_code == 2
    assert "there is no folder" in ended.output


def test_exec_from_a_folder_that_is_gone_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    ended = CliRunner().invoke(cli, ["--home", str(tmp_path), "exec", "pwd"])
    assert ended.exit_code == 1
    assert "this folder does not exist any more; name one with --cwd" in ended.output
