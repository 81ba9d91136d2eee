"""The command `roost`: the group of all commands, and its entry."""

from __future__ import annotations

import sys
from typing import Final

import click

from roost.actors.client.context import Context
from roost.actors.client.lazy import Entry, LazyCommands, LazyGroup
from roost.actors.client.options import not_empty
from roost.actors.client.standard_files import fill_closed, tell_system_error


def _entry(module: str, attribute: str, summary: str) -> Entry:
    return Entry(f"roost.actors.client.{module}", attribute, summary)


# The words are the first sentence of the command's own, and stand here so that a list needs none of them.
COMMANDS: Final = {
    "up": _entry("daemon_commands", "up", "Start the daemon and wait until it is ready."),
    "down": _entry("daemon_commands", "down", "Stop the daemon; agents and sessions are kept."),
    "status": _entry(
        "daemon_commands", "status", "Say whether the daemon runs, and show its tree."
    ),
    "restart": _entry("daemon_commands", "restart", "Stop the daemon and start it again."),
    "reload": _entry("daemon_commands", "reload", "Have the daemon read its configuration again."),
    "top": _entry("top_command", "top", "Watch the processes of the daemon."),
    "run": _entry(
        "talk_commands", "run", "Create an agent, stream what it does, ask for approvals here."
    ),
    "ps": _entry(
        "agent_commands", "ps", "List agents: what they do, who waits for a decision, why one died."
    ),
    "attach": _entry(
        "talk_commands",
        "attach",
        "Watch an agent (the newest one if none is named) and talk to it.",
    ),
    "send": _entry("talk_commands", "send", "Send a message to an agent and stream its answer."),
    "logs": _entry(
        "agent_commands",
        "logs",
        "Show the transcript of an agent (the newest one if none is named), or a log file.",
    ),
    "clear": _entry(
        "talk_commands",
        "clear",
        "Let an agent forget its conversation and what was approved for it;"
        " the agent and its log stay.",
    ),
    "approve": _entry(
        "approval_commands", "approve", "Allow a tool call; without an id, list what waits."
    ),
    "deny": _entry(
        "approval_commands", "deny", "Refuse a tool call; without an id, list what waits."
    ),
    "stop": _entry("agent_commands", "stop", "End an agent and its sessions for good."),
    "exec": _entry(
        "exec_command",
        "exec_command",
        "Run a command through the daemon as if it were started here.",
    ),
    "search": _entry(
        "search_commands",
        "search",
        "Find files and directories below ROOTs (or here) by approximate name, best first.",
    ),
    "events": _entry(
        "events_commands", "events", "Move the event log: export, import, verify, tail."
    ),
    "backup": _entry(
        "backup_commands",
        "backup",
        "Copy the store into FILE, whether or not the daemon runs;"
        " checked, and whole or not at all.",
    ),
    "restore": _entry(
        "backup_commands",
        "restore",
        "Put a backup in the place of the store; the daemon must not run.",
    ),
    "du": _entry(
        "backup_commands",
        "du",
        "Say what takes the space: the files of the home, and the events of each agent and session.",
    ),
    "doctor": _entry("doctor_command", "doctor", "Look for what is wrong, and say what to do."),
    "token": _entry(
        "daemon_commands", "token", "Print the secret by which clients on TCP prove who they are."
    ),
    "schema": _entry(
        "schema_commands",
        "schema",
        "Print the JSON Schema (draft 7) of the daemon's protocol, or of the events in its log.",
    ),
    "connect": _entry(
        "connect_command", "connect", "Speak the daemon's protocol on standard input and output."
    ),
    "app-server": _entry(
        "app_server_command",
        "app_server",
        "Serve the thread protocol on standard input and output.",
    ),
}


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from roost.config.model import VERSION

        click.echo(f"roost, version {VERSION}")
        context.exit()


@click.group(
    cls=LazyGroup,
    commands=LazyCommands(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrong use, 3 no daemon, 130 interrupted, 143 terminated.",
)
@click.option(
    "--home",
    metavar="PATH",
    callback=not_empty,
    help="The daemon's state folder (or ROOST_HOME).",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(context: click.Context, home: str | None) -> None:
    """Keep AI agents alive, each in a process of its own, and talk to them."""
    context.obj = Context(home)


def main() -> None:
    """Run the command line and exit."""
    try:
        # Of help and version too, which are written before any command is run.
        fill_closed()
        cli(prog_name="roost")
    except OSError as error:
        sys.exit(tell_system_error(error))


if __name__ == "__main__":
    main()
