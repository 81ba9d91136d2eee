from __future__ import annotations

import pytest

from roost.actors.client.autostart import autostart_enabled
from roost.actors.client.errors import ClientError
from roost.actors.client.launch import daemon_argv
from roost.actors.client.lookup import match_id
from roost.actors.client.prompts import read_decision
from roost.config.paths import resolve_home

IDS = ["agent_abc", "agent_abd", "agent_xyz"]


def test_an_id_may_be_shortened_at_either_end() -> None:
    assert match_id("agent_x", IDS, "agent") == "agent_xyz"
    assert match_id("bd", IDS, "agent") == "agent_abd"
    assert match_id("x", IDS, "agent") == "agent_xyz"
    assert match_id("nothing", IDS, "agent") is None


def test_a_whole_id_is_meant_even_if_another_begins_with_it() -> None:
    assert match_id("a", ["a", "ab"], "agent") == "a"


def test_an_id_that_fits_several_is_refused() -> None:
    with pytest.raises(ClientError, match="fits 2 agents"):
        match_id("agent_ab", IDS, "agent")


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y", (True, "once")),
        (" YES ", (True, "once")),
        ("a", (True, "session")),
        ("", (False, "once")),
        ("n", (False, "once")),
        ("yy", (False, "once")),
        ("agree", (False, "once")),
    ],
)
def test_only_a_clear_yes_is_a_yes(typed: str, decision: tuple[bool, str]) -> None:
    assert read_decision(typed) == decision


@pytest.mark.parametrize("value", ["0", "false", "off", "OFF", "no"])
def test_autostart_can_be_switched_off(value: str) -> None:
    assert not autostart_enabled({"ROOST_AUTOSTART": value})
    assert not autostart_enabled({"ROOST_DAEMON_AUTOSTART": value})
    assert autostart_enabled({})


def test_a_home_that_is_the_default_stays_the_default_for_the_daemon() -> None:
    assert "--home" not in daemon_argv(resolve_home(None, {}), {})
    argv = daemon_argv(resolve_home("/h", {}), {"websocket.port": "0"})
    assert argv[1:4] == ["-P", "-m", "roost.supervisor.guard"]
    assert argv[5:8] == ["-P", "-m", "roost.actors.app"]
    assert argv[8:] == ["--home", "/h", "--set", "websocket.port=0"]
