"""A group of commands whose modules are imported when they are looked up.

What one command needs takes longer to import than many another takes to run.
"""

from __future__ import annotations

import importlib
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, NamedTuple

import click
from click.shell_completion import CompletionItem

from roost.actors.client.context import RoostGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Entry(NamedTuple):
    """Where a command is, and the words that a list of commands has for it."""

    module: str
    attribute: str
    summary: str


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, in the order of a table; to get one imports its module, to list them none."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)
        self._loaded: dict[str, click.Command] = {}

    def summary(self, name: str) -> str:
        """Return the words that a list has for a command."""
        if name in self._entries:
            return self._entries[name].summary
        return self._loaded[name].get_short_help_str(limit=1000)

    def __getitem__(self, name: str) -> click.Command:
        """Return a command."""
        if name not in self._loaded:
            entry = self._entries[name]
            found = getattr(importlib.import_module(entry.module), entry.attribute)
            assert isinstance(found, click.Command)
            self._loaded[name] = found
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command that is there already."""
        self._entries.pop(name, None)
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Take a command out."""
        if name not in self:
            raise KeyError(name)
        self._entries.pop(name, None)
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a command of this name."""
        return name in self._entries or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter({**self._entries, **self._loaded})

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._entries.keys() | self._loaded.keys())


class LazyGroup(RoostGroup):
    """A group over `LazyCommands`: to list them, in help or for a shell that completes words, imports none."""

    def _summaries(self) -> Iterator[tuple[str, str]]:
        assert isinstance(self.commands, LazyCommands)
        commands = self.commands
        return ((name, commands.summary(name)) for name in commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        rows = [
            (name, click.Command(name, help=text).get_short_help_str(limit))
            for name, text in self._summaries()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what a word that is being typed may become."""
        found = [
            CompletionItem(name, help=text)
            for name, text in self._summaries()
            if name.startswith(incomplete)
        ]
        # An option of the group itself; what a group does would import each command.
        return found + click.Command.shell_complete(self, ctx, incomplete)
