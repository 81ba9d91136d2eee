"""The command `roost`: the group of all commands, and its entry."""

from __future__ import annotations

import sys

import click

from roost.actors.client.agent_commands import logs, ps, stop
from roost.actors.client.app_server_command import app_server
from roost.actors.client.approval_commands import approve, deny
from roost.actors.client.backup_commands import backup, du, restore
from roost.actors.client.connect_command import connect
from roost.actors.client.context import Context, RoostGroup, tell_system_error
from roost.actors.client.daemon_commands import down, reload, restart, status, token, up
from roost.actors.client.doctor_command import doctor
from roost.actors.client.events_commands import events
from roost.actors.client.exec_command import exec_command
from roost.actors.client.schema_commands import schema
from roost.actors.client.search_commands import search
from roost.actors.client.talk_commands import attach, clear, run, send
from roost.actors.client.top_command import top
from roost.config.model import VERSION


@click.group(
    cls=RoostGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrong use, 3 no daemon, 130 interrupted, 143 terminated.",
)
@click.option("--home", metavar="PATH", help="The daemon's state folder (or ROOST_HOME).")
@click.version_option(VERSION, prog_name="roost")
@click.pass_context
def cli(context: click.Context, home: str | None) -> None:
    """Keep AI agents alive, each in a process of its own, and talk to them."""
    context.obj = Context(home)


for _command in (
    up,
    down,
    status,
    restart,
    reload,
    top,
    run,
    ps,
    attach,
    send,
    logs,
    clear,
    approve,
    deny,
    stop,
    exec_command,
    search,
    events,
    backup,
    restore,
    du,
    doctor,
    token,
    schema,
    connect,
    app_server,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line and exit."""
    try:
        cli(prog_name="roost")
    except OSError as error:
        # Of help and version, which are written before any command is run.
        sys.exit(tell_system_error(error))


if __name__ == "__main__":
    main()
