"""Settings in environment variables: ROOST_<TABLE>_<KEY>, and the older names of some; pure."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, cast

from roost.config.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "ROOST_"
# Names that clients and scripts for this protocol already set.
ALIASES = {
    "ROOST_DAEMON_MAX_IN_FLIGHT_REQUESTS": "limits.in_flight_requests",
    "ROOST_DAEMON_MAX_QUEUED_REQUESTS": "limits.queued_requests",
    "ROOST_DAEMON_REQUEST_BURST": "limits.tcp_burst",
    "ROOST_DAEMON_REQUEST_RATE_PER_SECOND": "limits.tcp_rate",
    "ROOST_DAEMON_WEBSOCKET_ALLOW_NONLOOPBACK": "websocket.allow_nonloopback",
    "ROOST_DAEMON_WEBSOCKET_HOST": "websocket.host",
    "ROOST_DAEMON_WEBSOCKET_PATH": "websocket.path",
    "ROOST_DAEMON_WEBSOCKET_PORT": "websocket.port",
}
# Given in milliseconds, kept in seconds.
ALIASES_MS = {
    "ROOST_DAEMON_READY_TIMEOUT_MS": "daemon.ready_timeout",
    "ROOST_PERMISSION_TIMEOUT_MS": "approvals.timeout",
}
# Read by the command line or of no meaning here; not settings.
NO_SETTINGS = ("ROOST_DAEMON_AUTOSTART", "ROOST_DAEMON_RUN", "ROOST_DAEMON_REQUEST_TIMEOUT_MS")


def environment_layer(
    environ: Mapping[str, str], known: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str, str]]:
    """Return (variable, key, text) of every variable that is a setting.

    Raises:
        SettingsError: a variable names a table, and no key of it.
    """
    names = {f"{PREFIX}{t}_{k}".upper(): f"{t}.{k}" for t, keys in known.items() for k in keys}
    tables = tuple(f"{PREFIX}{table}_".upper() for table in known)
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NO_SETTINGS:
            continue
        if variable in ALIASES_MS:
            yield variable, ALIASES_MS[variable], _seconds(variable, text)
        elif variable in ALIASES:
            yield variable, ALIASES[variable], _alias_value(variable, text)
        elif variable in names:
            yield variable, names[variable], text
        elif variable.startswith(tables):
            near = difflib.get_close_matches(variable, names, n=1, cutoff=0.0)
            raise SettingsError(f"unknown variable {variable}; the nearest known one is {near[0]}")


def parse_value(text: str, default: object, place: str) -> object:
    """Return the text of a variable or option as a value of its default's kind.

    Raises:
        SettingsError: it does not read as one.
    """
    kind = _kind(default)
    try:
        match default:
            case bool():
                return _bool(text)
            case int():
                return int(text.replace("_", ""))
            case float():
                return float(text)
            case list() | tuple():
                return _list(text)
            case _:
                return text
    except ValueError:
        raise SettingsError(f"{place}: {text!r} is not {kind}") from None


def _kind(default: object) -> str:
    match default:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case _:
            return "a list"


def _bool(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
        case _:
            raise ValueError(text)


def _list(text: str) -> list[object]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return cast("list[object]", json.loads(text))


def _seconds(variable: str, text: str) -> str:
    try:
        return str(int(text) / 1000)
    except ValueError:
        raise SettingsError(f"the variable {variable}: {text!r} is not a whole number") from None


def _alias_value(variable: str, text: str) -> str:
    """Return the value of an older variable by its own rules: the path may lack its first slash."""
    if variable.endswith("_PATH") and not text.startswith("/"):
        return f"/{text}"
    return text
