from __future__ import annotations

import sys

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from roost.actors.client.cli import COMMANDS, cli
from roost.actors.client.lazy import Entry, LazyCommands, LazyGroup

MODULE = "roost.actors.client.schema_commands"


def group() -> LazyGroup:
    """Return a group with one command, whose module this process has not imported."""
    sys.modules.pop(MODULE, None)
    return LazyGroup("some", commands=LazyCommands({"it": Entry(MODULE, "schema", "Do it.")}))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_list_has_the_first_sentence_of_a_command_and_its_name(name: str) -> None:
    command = cli.commands[name]
    assert command.name == name
    assert command.get_short_help_str(limit=1000) == COMMANDS[name].summary


def test_help_names_every_command_in_order() -> None:
    said = CliRunner().invoke(cli, ["--help"], terminal_width=200).output
    listed = [line.split()[0] for line in said.partition("Commands:")[2].splitlines() if line]
    assert listed[: len(COMMANDS)] == list(COMMANDS)
    assert all(entry.summary in said for entry in COMMANDS.values())


def test_help_for_a_narrow_terminal_is_cut() -> None:
    said = CliRunner().invoke(cli, ["--help"], terminal_width=78).output
    assert "List agents: what they do, who waits for a decision, why..." in said


def test_neither_help_nor_completion_imports_a_command() -> None:
    some = group()
    assert "Do it." in CliRunner().invoke(some, ["--help"]).output
    complete = ShellComplete(some, {}, "some", "_SOME_COMPLETE")
    found = complete.get_completions([], "i")
    assert [(item.value, item.help) for item in found] == [("it", "Do it.")]
    assert [item.value for item in complete.get_completions([], "--h")] == ["--help"]
    assert MODULE not in sys.modules
    assert isinstance(some.commands["it"], click.Command)
    assert MODULE in sys.modules


def test_what_is_no_command_is_a_wrong_use() -> None:
    ended = CliRunner().invoke(cli, ["sto"])
    assert ended.exit_code == 2
    assert "No such command 'sto'" in ended.output


def test_a_command_can_be_added_and_taken_out() -> None:
    some = group()

    @some.command()
    def other() -> None:
        """Do something else. At length."""

    assert list(some.commands) == ["it", "other"]
    assert "Do something else.\n" in CliRunner().invoke(some, ["--help"]).output
    assert CliRunner().invoke(some, ["other"]).exit_code == 0
    del some.commands["other"]
    assert len(some.commands) == 1
    with pytest.raises(KeyError):
        some.commands["other"]
