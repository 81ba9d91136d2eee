"""The command `roost`: the group of all commands, and its entry."""

from __future__ import annotations

import click

from roost.actors.client.agent_commands import logs, ps, stop
from roost.actors.client.approval_commands import approve, deny
from roost.actors.client.backup_commands import backup, du, restore
from roost.actors.client.context import Context, RoostGroup
from roost.actors.client.daemon_commands import down, restart, status, token, up
from roost.actors.client.doctor_command import doctor
from roost.actors.client.events_commands import events
from roost.actors.client.talk_commands import attach, run, send
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
    run,
    ps,
    attach,
    send,
    logs,
    approve,
    deny,
    stop,
    events,
    backup,
    restore,
    du,
    doctor,
    token,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line and exit."""
    cli(prog_name="roost")


if __name__ == "__main__":
    main()
