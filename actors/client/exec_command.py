"""The command exec: runs a program through the daemon as if it had been started here."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from roost.actors.client.context import Context, pass_context
from roost.actors.client.errors import ClientError, RpcError
from roost.actors.client.events import clean
from roost.actors.client.exec_params import (
    environment_for,
    policy_for,
    spawn_status,
    start_params,
)
from roost.actors.client.exec_terminal import INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.client.connection import Connection
    from roost.actors.client.exec_params import CommandResult

# Of pieces of output, so that who does not read ours soon stops the program.
BACKLOG = 16


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("-t", "--tty", is_flag=True, help="At a terminal of its own; -i is implied.")
@click.option("-i", "--interactive", is_flag=True, help="Let it read standard input.")
@click.option(
    "--sandbox",
    metavar="POLICY",
    default="dangerFullAccess",
    help="What it may touch: dangerFullAccess (if not given), workspaceWrite, readOnly,"
    " externalSandbox, or a JSON object as in the protocol.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    help="Its folder; this one if not given.",
)
@click.option(
    "--env",
    "variables",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Set a variable, or pass it on as it is here (also that it is not set).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=10_000_000),
    help="End it after so many seconds (124).",
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] CMD...")
@pass_context
def exec_command(
    context: Context,
    tty: bool,
    interactive: bool,
    sandbox: str,
    cwd: str | None,
    variables: Sequence[str],
    timeout: float | None,
    argv: Sequence[str],
) -> None:
    """Run a command through the daemon as if it were started here.

    The exit status is the command's, 128+N when signal N ended it, 126 or 127 if it cannot be started. SIGINT (Ctrl-C),
    SIGTERM and SIGHUP end it: it gets SIGTERM, then SIGKILL, and the status is 130, 143 or 129. One more leaves
    without waiting. With -t keys, Ctrl-C too, and SIGINT go to the program.
    """
    params = start_params(
        argv,
        cwd=_folder(cwd),
        environment=environment_for(variables, os.environ, tty=tty),
        policy=policy_for(sandbox),
        timeout=timeout,
    )

    async def main(connection: Connection) -> int:
        from roost.actors.client.exec_files import Input
        from roost.actors.client.exec_run import Execution

        source = Input(INPUT) if tty or interactive else None
        execution = Execution(connection, params, source=source, tty=tty)
        try:
            status = await execution.run()
        except RpcError as error:
            return _not_started(error, execution.last_words)
        if execution.result is not None:
            _tell(execution.result, variables, timeout)
        return status

    sys.exit(context.with_daemon(main, notifications=True, backlog=BACKLOG))


def _folder(given: str | None) -> str:
    """Return the command's folder.

    Raises:
        ClientError: it is this one, and there is no such folder any more.
    """
    try:
        return os.path.abspath(given or os.getcwd())
    except FileNotFoundError:
        raise ClientError("this folder does not exist any more; name one with --cwd") from None


def _not_started(error: RpcError, last_words: bytes) -> int:
    """Return the exit status for a program that cannot be started; raise the error again if it is another one."""
    status = spawn_status(error)
    if status is None:
        raise error
    # The daemon says it also as output of the command.
    said = last_words.decode(errors="replace") == error.message
    click.echo("" if said else f"roost: {clean(error.message)}", err=True)
    return status


def _tell(result: CommandResult, variables: Sequence[str], timeout: float | None) -> None:
    """Say what cannot be seen by the exit status."""
    if result.timed_out:
        click.echo(f"roost: the command was ended after {timeout:g} s", err=True)
    given = {text.partition("=")[0] for text in variables}
    for name in result.dropped_env:
        if name in given:
            told = f"{clean(name)} was not passed on: its name is that of a secret"
            click.echo(f"roost: {told}", err=True)
