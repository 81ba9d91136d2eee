"""Values that fit alone and would lock everybody out of a running daemon, the one who could take them back included; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.config.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.config.model import Settings

LEAST = {
    "limits.connections": 4,
    "limits.line_bytes": 65_536,
    "limits.event_bytes": 16_384,
}
# Nothing at all is well, a little is not.
LEAST_UNLESS_NONE = {
    "timeouts.link_call": 1,
    "agents.hang_timeout": 1,
    # Less leaves nothing besides what is kept back for the end of a turn.
    "store.session_events": 128,
    "store.session_bytes": 4 * 1024 * 1024,
}


def check_floors(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse what is too small to work with.

    Raises:
        SettingsError: says which key, where its value came from, and what it may be.
    """
    for key, least in LEAST.items():
        if _value(settings, key) < least:
            raise _too_small(key, f"at least {least}", origins)
    for key, least in LEAST_UNLESS_NONE.items():
        if 0 < _value(settings, key) < least:
            raise _too_small(key, f"0 or at least {least}", origins)


def _value(settings: Settings, key: str) -> float:
    table, _, name = key.partition(".")
    return float(getattr(getattr(settings, table), name))


def _too_small(key: str, allowed: str, origins: Mapping[str, str]) -> SettingsError:
    place = origins.get(key, "the configuration")
    return SettingsError(f"{place}: {key}: {allowed}", key)
