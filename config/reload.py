"""What becomes of new settings in a running daemon: which keys change, and which wait for a restart; pure."""

from __future__ import annotations

import msgspec

from roost.config.model import NEED_RESTART, Settings


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force from now on; the keys that differ from before, and those that would need a restart.

    A provider counts as one key (`providers.local`).
    """

    settings: Settings
    changed: tuple[str, ...]
    need_restart: tuple[str, ...]


def settle(running: Settings, wanted: Settings) -> Change:
    """Return what a daemon that runs with some settings makes of those that it finds in its configuration."""
    changed: list[str] = []
    waiting: list[str] = []
    settled = wanted
    for table in Settings.__struct_fields__:
        if table == "providers":
            continue
        old, new = getattr(running, table), getattr(wanted, table)
        kept: dict[str, object] = {}
        for name in new.__struct_fields__:
            key, before = f"{table}.{name}", getattr(old, name)
            if before == getattr(new, name):
                continue
            if key in NEED_RESTART:
                kept[name] = before
                waiting.append(key)
            else:
                changed.append(key)
        if kept:
            settled = msgspec.structs.replace(
                settled, **{table: msgspec.structs.replace(new, **kept)}
            )
    names = sorted({*running.providers, *wanted.providers})
    changed += [
        f"providers.{name}"
        for name in names
        if running.providers.get(name) != wanted.providers.get(name)
    ]
    return Change(settings=settled, changed=tuple(changed), need_restart=tuple(waiting))
