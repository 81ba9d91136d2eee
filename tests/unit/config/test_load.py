from __future__ import annotations

import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from roost.config.errors import SettingsError
from roost.config.load import (
    default_settings,
    is_loopback,
    load_settings,
    parse_daemon_options,
)
from roost.config.model import (
    Provider,
    Settings,
    decode_settings,
    encode_settings,
    encode_without_keys,
    key_variables,
)
from roost.config.paths import Home, resolve_home

DEFAULTS = Path(__file__).parents[3] / "config" / "defaults.toml"


def home_with(tmp_path: Path, text: str) -> Home:
    home = Home(tmp_path, explicit=True)
    home.config.write_text(text)
    return home


def refused(home: Home, environ: dict[str, str] | None = None, **overrides: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(home, environ or {}, overrides)
    return str(caught.value)


def test_without_a_file_the_settings_are_the_defaults(tmp_path: Path) -> None:
    loaded = load_settings(Home(tmp_path, explicit=False), {})
    assert loaded.settings == default_settings()
    assert loaded.origins == {}


def test_the_limits_are_those_that_are_documented() -> None:
    settings = default_settings()
    assert settings.limits.connections == 4096
    assert settings.limits.unix_rate == 0
    assert (settings.limits.tcp_rate, settings.limits.tcp_burst) == (1000, 2000)
    assert settings.agents.memory_limit == 1 << 30
    assert settings.store.delta_window_ms == 5


def test_every_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    home = home_with(
        tmp_path, "[limits]\nconnections = 4\nqueued_requests = 1\nclient_queue_bytes = 1\n"
    )
    environ = {"ROOST_LIMITS_QUEUED_REQUESTS": "2", "ROOST_LIMITS_CLIENT_QUEUE_BYTES": "2"}
    loaded = load_settings(home, environ, {"limits.client_queue_bytes": "3"})
    limits = loaded.settings.limits
    assert (limits.connections, limits.queued_requests, limits.client_queue_bytes) == (4, 2, 3)
    assert loaded.origins == {
        "limits.connections": f"{home.config} line 2",
        "limits.queued_requests": "the variable ROOST_LIMITS_QUEUED_REQUESTS",
        "limits.client_queue_bytes": "--set limits.client_queue_bytes",
    }


def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_one(tmp_path: Path) -> None:
    home = home_with(tmp_path, "[agents]\nprovider = 'script'\nidle_timout = 3\n")
    text = refused(home)
    assert "line 3" in text
    assert "agents.idle_timout" in text
    assert "nearest known one is agents.idle_timeout" in text


def test_an_unknown_table_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    assert "nearest known one is limits" in refused(
        home_with(tmp_path, "[limit]\nconnections = 1\n")
    )


def test_a_value_of_the_wrong_kind_is_refused_with_its_line(tmp_path: Path) -> None:
    text = refused(home_with(tmp_path, "\n[limits]\nconnections = 'many'\n"))
    assert "line 3" in text
    assert "limits.connections" in text
    assert "Expected `int`" in text


@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_limit_below_one_is_refused(tmp_path: Path, value: str) -> None:
    assert "limits.connections" in refused(
        home_with(tmp_path, f"[limits]\nconnections = {value}\n")
    )


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "line 2" in refused(home_with(tmp_path, "[limits]\nconnections =\n"))


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    home = Home(tmp_path, explicit=True)
    home.config.write_bytes(b"[limits]\n# \xff\n")
    assert "line 2: not UTF-8" in refused(home)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path, explicit=True)
    home.config.mkdir()
    assert "cannot read" in refused(home)


def test_a_table_that_is_no_table_is_refused(tmp_path: Path) -> None:
    assert "limits must be a table" in refused(home_with(tmp_path, "limits = 3\n"))


def test_a_variable_of_a_known_table_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    text = refused(Home(tmp_path, explicit=True), {"ROOST_LIMITS_CONECTIONS": "3"})
    assert "nearest known one is ROOST_LIMITS_CONNECTIONS" in text


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path) -> None:
    environ = {"ROOST_HOME": "/x", "ROOST_AUTOSTART": "0", "ROOST_INSTANCE": "a", "PATH": "/bin"}
    assert load_settings(Home(tmp_path, explicit=False), environ).origins == {}


def test_older_names_of_variables_are_understood(tmp_path: Path) -> None:
    environ = {
        "ROOST_DAEMON_WEBSOCKET_PORT": "7001",
        "ROOST_DAEMON_WEBSOCKET_PATH": "socket",
        "ROOST_DAEMON_READY_TIMEOUT_MS": "1500",
    }
    settings = load_settings(Home(tmp_path, explicit=True), environ).settings
    assert settings.websocket.port == 7001
    assert settings.websocket.path == "/socket"
    assert settings.daemon.ready_timeout == 1.5


@pytest.mark.parametrize("port", ["-1", "65536", "many"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    text = refused(Home(tmp_path, explicit=True), {"ROOST_DAEMON_WEBSOCKET_PORT": port})
    assert "ROOST_DAEMON_WEBSOCKET_PORT" in text


def test_a_home_that_is_named_gets_a_port_from_the_system(tmp_path: Path) -> None:
    assert load_settings(Home(tmp_path, explicit=True), {}).settings.websocket.port == 0
    assert load_settings(Home(tmp_path, explicit=False), {}).settings.websocket.port == 7766


def test_a_list_may_be_given_as_text(tmp_path: Path) -> None:
    environ = {"ROOST_WEBSOCKET_ALLOWED_ORIGINS": "https://a.example, https://b.example"}
    settings = load_settings(Home(tmp_path, explicit=False), environ).settings
    assert settings.websocket.allowed_origins == ("https://a.example", "https://b.example")


def test_a_host_that_others_reach_needs_the_switch(tmp_path: Path) -> None:
    home = Home(tmp_path, explicit=False)
    assert "allow_nonloopback" in refused(home, {"ROOST_WEBSOCKET_HOST": "0.0.0.0"})
    environ = {"ROOST_WEBSOCKET_HOST": "0.0.0.0", "ROOST_WEBSOCKET_ALLOW_NONLOOPBACK": "true"}
    assert load_settings(home, environ).settings.websocket.host == "0.0.0.0"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "localhost.example.org"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_provider_takes_its_key_from_the_environment_and_shows_it_nowhere(tmp_path: Path) -> None:
    home = home_with(
        tmp_path,
        '[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "MY_KEY"\n'
        '[agents]\nprovider = "mine"\n',
    )
    settings = load_settings(home, {"MY_KEY": "secret-word"}).settings
    assert settings.providers["mine"].key == "secret-word"
    assert "secret-word" not in repr(settings)
    assert key_variables(settings) == {"MY_KEY"}
    assert b"secret-word" not in encode_without_keys(settings)


def test_an_agent_provider_that_is_not_there_is_refused(tmp_path: Path) -> None:
    text = refused(home_with(tmp_path, '[agents]\nprovider = "mine"\n'))
    assert "there is no [providers.mine]" in text


@pytest.mark.parametrize("name", ["script", '"acp"', '"a:b"'])
def test_a_provider_cannot_have_a_reserved_name(tmp_path: Path, name: str) -> None:
    assert "cannot be named" in refused(
        home_with(tmp_path, f'[providers.{name}]\nbase_url = "http://x"\n')
    )


def test_a_provider_with_a_wrong_value_is_named(tmp_path: Path) -> None:
    text = refused(
        home_with(tmp_path, '[providers.a]\nbase_url = "http://x"\ntool_mode = "none"\n')
    )
    assert "line 3" in text
    assert "providers.a.tool_mode" in text


def test_a_provider_without_an_address_is_named(tmp_path: Path) -> None:
    assert "base_url" in refused(home_with(tmp_path, "[providers.a]\nmodel = 'm'\n"))


def test_settings_survive_the_way_to_a_child() -> None:
    settings = default_settings()
    assert decode_settings(encode_settings(settings)) == settings


def test_the_reference_names_every_key_of_a_provider_with_its_default() -> None:
    lines = DEFAULTS.read_text().partition("# [providers.NAME]")[2].splitlines()
    keys = [line[2:] for line in lines if " = " in line and line[2:].split(" ")[0].isidentifier()]
    example = msgspec.convert(tomllib.loads("\n".join(keys)), Provider)
    defaults = Provider(base_url=example.base_url)
    assert {key.partition(" ")[0] for key in keys} == set(Provider.__struct_fields__)
    assert example == defaults


def test_the_reference_says_something_about_every_table() -> None:
    tables = set(tomllib.loads(DEFAULTS.read_text())) | {"providers"}
    assert tables == set(Settings.__struct_fields__)


def test_the_daemon_understands_its_options(tmp_path: Path) -> None:
    options = parse_daemon_options(["--home", str(tmp_path), "--set", "websocket.port=1"], {})
    assert options.home.path == tmp_path
    assert options.home.explicit
    assert options.overrides == {"websocket.port": "1"}
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        parse_daemon_options(["--set", "port"], {})


def test_the_home_is_an_option_a_variable_or_the_state_folder() -> None:
    environ = {"ROOST_HOME": "/a/b", "XDG_STATE_HOME": "/state"}
    assert resolve_home("/c", environ).path == Path("/c")
    assert resolve_home(None, environ).path == Path("/a/b")
    home = resolve_home(None, {"XDG_STATE_HOME": "/state"})
    assert (home.path, home.explicit) == (Path("/state/roost"), False)


def test_a_socket_path_that_is_too_long_moves_to_the_runtime_folder() -> None:
    short = resolve_home("/h", {"XDG_RUNTIME_DIR": "/run/user/1"})
    assert short.socket == Path("/h/daemon.sock")
    long = resolve_home("/" + "h" * 120, {"XDG_RUNTIME_DIR": "/run/user/1"})
    assert long.socket == Path(f"/run/user/1/roost-{long.instance}/daemon.sock")


@pytest.mark.parametrize("key", ["store.session_events", "store.session_bytes"])
def test_a_session_too_small_to_end_a_turn_in_is_refused(tmp_path: Path, key: str) -> None:
    home = home_with(tmp_path, "")
    assert f"{key}: 0 or at least" in refused(home, None, **{key: "1"})
    load_settings(home, {}, {key: "0"})
    load_settings(home, {}, {key: "100000000"})


def test_as_shipped_the_log_is_not_bounded() -> None:
    settings = default_settings()
    assert not any(msgspec.structs.astuple(settings.retention))
    store = settings.store
    assert (store.sessions, store.session_events, store.session_bytes) == (0, 0, 0)


def test_a_file_that_is_no_regular_one_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    home = Home(tmp_path, explicit=True)
    os.mkfifo(home.config)
    assert "not a regular file" in refused(home)
    home.config.unlink()
    home.config.mkdir()
    assert "not a regular file" in refused(home)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("[limits]\nconnections = 7\n")
    home = Home(tmp_path, explicit=True)
    home.config.symlink_to(tmp_path / "elsewhere")
    assert load_settings(home, {}).settings.limits.connections == 7


def test_a_relative_root_for_searches_is_refused(tmp_path: Path) -> None:
    text = refused(home_with(tmp_path, "[search]\nroots = ['/srv', 'rel']\n"))
    assert "search.roots: 'rel' is not an absolute path" in text
    allowed = home_with(tmp_path, "[search]\nroots = ['/srv', '~/src']\n")
    assert load_settings(allowed, {}).settings.search.roots == ("/srv", "~/src")
