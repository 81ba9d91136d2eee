"""Settings from four layers: defaults < file < environment < command line; each value knows where it came from."""

from __future__ import annotations

import argparse
import ipaddress
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from roost.config.environment import environment_layer
from roost.config.errors import SettingsError
from roost.config.floors import check_floors
from roost.config.layers import Layers, Tables, place_in_file
from roost.config.model import RESERVED_PROVIDERS, Provider, Settings, Span
from roost.config.paths import Home, read_regular, resolve_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_FILE = 1024 * 1024
_LINE = re.compile(r"line (\d+)")
_PATH = re.compile(r" - at `\$\.?(.*)`$")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and for every key that is not a default (`limits.connections`) where its value came from."""

    settings: Settings
    origins: dict[str, str]


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on the daemon's command line."""

    home: Home
    overrides: dict[str, str]


def parse_daemon_options(argv: Sequence[str], environ: Mapping[str, str]) -> DaemonOptions:
    """Return the options of the daemon process: `--home PATH` and any number of `--set KEY=VALUE`.

    Raises:
        SettingsError: `--set` without `=`.
        SystemExit: an unknown option.
    """
    parser = argparse.ArgumentParser(prog="roost.actors.app", allow_abbrev=False)
    parser.add_argument("--home")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    home = resolve_home(cast("str | None", options.home), environ)
    return DaemonOptions(home=home, overrides=parse_overrides(cast("list[str]", options.set)))


def parse_overrides(items: Sequence[str]) -> dict[str, str]:
    """Return `KEY=VALUE` items as a dictionary.

    Raises:
        SettingsError: an item has no `=`.
    """
    overrides: dict[str, str] = {}
    for item in items:
        key, found, value = item.partition("=")
        if not found:
            raise SettingsError(f"--set wants KEY=VALUE, got {item!r}")
        overrides[key.strip()] = value
    return overrides


def default_settings() -> Settings:
    """Return the settings as shipped."""
    return msgspec.convert(_defaults(), Settings)


def load_settings(
    home: Home, environ: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> Loaded:
    """Return the settings for a home.

    Raises:
        SettingsError: a layer cannot be read, has an unknown key, or a value that does not fit.
    """
    layers = Layers(_defaults())
    if home.explicit:
        layers.tables["websocket"]["port"] = 0
    path = home.config
    text = _read(path)
    layers.lay(_parse(path, text), lambda key: place_in_file(path, text, key))
    _check_layer(layers)
    for variable, key, raw in environment_layer(environ, layers.known):
        layers.lay_text(key, raw, f"the variable {variable}")
    _check_layer(layers)
    for key, raw in (overrides or {}).items():
        layers.lay_text(key, raw, f"--set {key}")
    origins = layers.origins
    settings = _resolve_keys(_convert(layers.tables, origins), environ)
    check_floors(settings, origins)
    _check(settings, origins)
    return Loaded(settings=settings, origins=origins)


def _defaults() -> Tables:
    text = Path(__file__).with_name("defaults.toml").read_text(encoding="utf-8")
    return cast("Tables", tomllib.loads(text))


def _read(path: Path) -> str:
    try:
        data = read_regular(path, MAX_FILE + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_FILE:
        raise SettingsError(f"{path} is larger than {MAX_FILE} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path} line {line}: not UTF-8") from None


def _parse(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = found[1] if found else str(text.count("\n") + 1)
        raise SettingsError(f"{path} line {line}: {str(error).partition(' (at')[0]}") from None
    except ValueError:
        raise SettingsError(f"{path}: a number has too many digits") from None


def _check_layer(layers: Layers) -> None:
    """Refuse a value that does not fit, even if a layer above hides it: without that one nothing would start.

    A provider may be spread over several layers; it is looked at when it is whole.
    """
    own = {name: table for name, table in layers.tables.items() if name != "providers"}
    check_floors(_convert(own, layers.origins), layers.origins)


def _convert(tables: Tables, origins: Mapping[str, str]) -> Settings:
    try:
        return msgspec.convert(tables, Settings)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        key = found[1] if found else ""
        key = re.sub(r"\[\d+\]$", "", _name_provider(key, tables))
        place = origins.get(key, "the configuration")
        raise SettingsError(f"{place}: {key}: {_PATH.sub('', text)}{_allowed(key)}", key) from None


def _allowed(key: str) -> str:
    """Return which values a key may have, if they are a closed list or 0 is not among them."""
    table, _, name = key.partition(".")
    shape = Provider if table == "providers" else get_type_hints(Settings).get(table)
    if shape is None:
        return ""
    kinds = {field.name: field.type for field in msgspec.structs.fields(shape)}
    kind = kinds.get(name.rpartition(".")[2])
    if kind == Span:
        return "; 0 does not mean that there is no limit here"
    if get_origin(kind) is not Literal:
        return ""
    return "; allowed are " + ", ".join(repr(value) for value in get_args(kind))


def _name_provider(key: str, tables: Tables) -> str:
    """Put the name of the provider that does not convert where msgspec says `[...]`."""
    if not key.startswith("providers[...]"):
        return key
    for name, entry in tables["providers"].items():
        try:
            msgspec.convert(entry, Provider)
        except msgspec.ValidationError:
            return key.replace("[...]", f".{name}", 1)
    return key


def _resolve_keys(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Take the keys of providers out of the environment."""
    providers: dict[str, Provider] = {}
    for name, provider in settings.providers.items():
        value = provider.key
        if provider.key_env and not value:
            value = environ.get(provider.key_env, "")
        providers[name] = msgspec.structs.replace(provider, key=value)
    return msgspec.structs.replace(settings, providers=providers)


def _check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse values that fit alone and not together."""
    provider = settings.agents.provider
    if provider not in settings.providers and provider.partition(":")[0] not in RESERVED_PROVIDERS:
        place = origins.get("agents.provider", "the configuration")
        known = ", ".join(["script", *sorted(settings.providers)])
        text = f"{place}: agents.provider: there is no [providers.{provider}]; known are {known}"
        raise SettingsError(text, "agents.provider")
    if not settings.websocket.allow_nonloopback and not is_loopback(settings.websocket.host):
        place = origins.get("websocket.host", "the configuration")
        raise SettingsError(
            f"{place}: websocket.host: {settings.websocket.host} can be reached from other machines; "
            "set websocket.allow_nonloopback = true if that is meant",
            "websocket.host",
        )
    relative = [root for root in settings.search.roots if not root.startswith(("/", "~"))]
    if relative:
        place = origins.get("search.roots", "the configuration")
        text = f"{place}: search.roots: {relative[0]!r} is not an absolute path"
        raise SettingsError(text, "search.roots")
    if settings.tools.shell_timeout > settings.tools.shell_timeout_max:
        place = origins.get("tools.shell_timeout", origins.get("tools.shell_timeout_max", ""))
        text = f"{place}: tools.shell_timeout is above tools.shell_timeout_max"
        raise SettingsError(text, "tools.shell_timeout")


def is_loopback(host: str) -> bool:
    """Return whether a listener on `host` is out of reach for other machines."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
