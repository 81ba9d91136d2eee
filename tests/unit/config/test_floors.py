from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roost.config.errors import SettingsError
from roost.config.load import load_settings
from roost.config.paths import Home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def refusal(
    tmp_path: Path, text: str, environ: Mapping[str, str] | None = None, **overrides: str
) -> SettingsError:
    home = Home(tmp_path, explicit=True)
    home.config.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(home, environ or {}, overrides)
    return caught.value


def written(key: str, value: str) -> str:
    table, _, name = key.partition(".")
    return f"[{table}]\n{name} = {value}\n"


@pytest.mark.parametrize("value", ["0", "0.0", "-1", "nan"])
@pytest.mark.parametrize(
    "key",
    [
        "timeouts.agent_stop",
        "processes.start_timeout",
        "processes.restart_period",
        "agents.restart_period",
        "daemon.ready_timeout",
    ],
)
def test_a_time_that_there_always_is_must_be_above_0(tmp_path: Path, key: str, value: str) -> None:
    error = refusal(tmp_path, written(key, value))
    assert error.key == key
    assert f"line 2: {key}: Expected `float` > 0.0; 0 does not mean" in str(error)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("limits.connections", "3", "at least 4"),
        ("limits.line_bytes", "65535", "at least 65536"),
        ("limits.event_bytes", "16383", "at least 16384"),
        ("timeouts.link_call", "0.01", "0 or at least 1"),
        ("agents.hang_timeout", "0.001", "0 or at least 1"),
    ],
)
def test_what_would_lock_everybody_out_is_refused_from_every_layer(
    tmp_path: Path, key: str, value: str, allowed: str
) -> None:
    variable = f"ROOST_{key.replace('.', '_').upper()}"
    for error in (
        refusal(tmp_path, written(key, value)),
        refusal(tmp_path, "", {variable: value}),
        refusal(tmp_path, "", None, **{key: value}),
    ):
        assert error.key == key
        assert str(error).endswith(f"{key}: {allowed}")


@pytest.mark.parametrize("key", ["timeouts.link_call", "agents.hang_timeout"])
def test_no_limit_at_all_is_well(tmp_path: Path, key: str) -> None:
    loaded = load_settings(Home(tmp_path, explicit=True), {}, {key: "0"})
    table, _, name = key.partition(".")
    assert getattr(getattr(loaded.settings, table), name) == 0


@pytest.mark.parametrize(
    "key", ["limits.client_queue_bytes", "limits.unix_rate", "limits.link_bytes", "store.sessions"]
)
@pytest.mark.parametrize("value", [str(2**63), "99999999999999999999999"])
def test_a_number_that_64_bits_do_not_hold_is_refused(tmp_path: Path, key: str, value: str) -> None:
    error = refusal(tmp_path, written(key, value))
    assert error.key == key
    assert "Expected `int` <= 9223372036854775807" in str(error)


def test_a_number_that_nothing_holds_is_refused(tmp_path: Path) -> None:
    assert "too many digits" in str(refusal(tmp_path, written("store.sessions", "9" * 5_000)))


def test_a_wrong_value_is_refused_even_where_a_layer_above_hides_it(tmp_path: Path) -> None:
    over = {"limits.queued_messages": "7"}
    error = refusal(tmp_path, "[limits]\nqueued_messages = -3\n", None, **over)
    assert "line 2: limits.queued_messages" in str(error)
    error = refusal(tmp_path, "", {"ROOST_LIMITS_QUEUED_MESSAGES": "-3"}, **over)
    assert "ROOST_LIMITS_QUEUED_MESSAGES: limits.queued_messages" in str(error)


def test_a_provider_may_be_spread_over_layers(tmp_path: Path) -> None:
    home = Home(tmp_path, explicit=True)
    home.config.write_text('[providers.a]\nmodel = "m"\n')
    loaded = load_settings(home, {}, {"providers.a.base_url": "http://x"})
    assert loaded.settings.providers["a"].model == "m"
