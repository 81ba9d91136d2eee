"""Lay one layer of settings over another; refuse what is not known and remember where each value came from; pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from roost.config.environment import parse_value
from roost.config.errors import SettingsError
from roost.config.model import RESERVED_PROVIDERS, Provider

if TYPE_CHECKING:
    from pathlib import Path

Tables = dict[str, dict[str, object]]
Place = Callable[[str], str]

_PROVIDER_FIELDS = Provider.__struct_fields__
_EXAMPLE = Provider(base_url="http://")


class Layers:
    """The tables so far; starts with the defaults, which also say what is known."""

    def __init__(self, defaults: Tables) -> None:
        self.tables = {name: dict(table) for name, table in defaults.items()}
        self.origins: dict[str, str] = {}
        self.known = {name: frozenset(table) for name, table in defaults.items()}
        self._defaults = defaults

    def lay(self, layer: Mapping[str, object], place: Place) -> None:
        """Lay one layer over the tables; `place` says where a key of it stands.

        Raises:
            SettingsError: a key is not known; the error names the nearest one.
        """
        for table, content in layer.items():
            if table != "providers" and table not in self.known:
                raise _unknown(place(table), table, [*self.known, "providers"])
            if not isinstance(content, dict):
                raise SettingsError(f"{place(table)}: {table} must be a table")
            keys = cast("dict[str, object]", content)
            if table == "providers":
                self._lay_providers(keys, place)
            else:
                self._lay_table(table, keys, place)

    def lay_text(self, key: str, text: str, origin: str) -> None:
        """Lay one key (`limits.connections`) over the tables, its value read as what its default is.

        Raises:
            SettingsError: the key is not known, or the text is not a value of that kind.
        """
        value: object = parse_value(text, self._default_of(key), origin)
        for part in reversed(key.split(".")):
            value = {part: value}
        self.lay(cast("dict[str, object]", value), lambda _: origin)

    def _default_of(self, key: str) -> object:
        table, _, name = key.partition(".")
        if table == "providers":
            return getattr(_EXAMPLE, name.rpartition(".")[2], "")
        return self._defaults.get(table, {}).get(name, "")

    def _lay_table(self, table: str, layer: Mapping[str, object], place: Place) -> None:
        for key, value in layer.items():
            path = f"{table}.{key}"
            if key not in self.known[table]:
                raise _unknown(place(path), path, self._candidates(table))
            self.tables[table][key] = value
            self.origins[path] = place(path)

    def _lay_providers(self, layer: Mapping[str, object], place: Place) -> None:
        for name, content in layer.items():
            table = f"providers.{name}"
            if name in RESERVED_PROVIDERS or ":" in name or not name:
                raise SettingsError(f"{place(table)}: a provider cannot be named {name!r}")
            if not isinstance(content, dict):
                raise SettingsError(f"{place(table)}: {table} must be a table")
            providers = self.tables.setdefault("providers", {})
            entry = cast("dict[str, object]", providers.setdefault(name, {}))
            self.origins.setdefault(table, place(table))
            for key, value in cast("dict[str, object]", content).items():
                path = f"{table}.{key}"
                if key not in _PROVIDER_FIELDS:
                    raise _unknown(
                        place(path), path, [f"{table}.{field}" for field in _PROVIDER_FIELDS]
                    )
                entry[key] = value
                self.origins[path] = place(path)

    def _candidates(self, table: str) -> list[str]:
        """Return every known key, those of the same table first, which win when equally near."""
        names = [table, *(name for name in self.known if name != table)]
        return [f"{name}.{key}" for name in names for key in sorted(self.known[name])]


def place_in_file(path: Path, text: str, key: str) -> str:
    """Return "FILE line N" of the key, or the file alone if it is written in a way that is not found."""
    table, _, name = key.rpartition(".")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("[") and "=" not in stripped:
            current = re.sub(r"""[\[\]\s"']""", "", stripped.partition("#")[0])
            if current == key:
                return f"{path} line {number}"
            continue
        left = re.sub(r"""[\s"']""", "", stripped.partition("=")[0])
        if "=" in stripped and (
            f"{current}.{left}".lstrip(".") == key or (current, left) == (table, name)
        ):
            return f"{path} line {number}"
    return str(path)


def _unknown(place: str, key: str, candidates: Sequence[str]) -> SettingsError:
    near = difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)
    return SettingsError(f"{place}: unknown key {key}; the nearest known one is {near[0]}", key)
