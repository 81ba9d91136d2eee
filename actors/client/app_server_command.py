"""The command app-server: the thread protocol for programs that start their server themselves."""

from __future__ import annotations

import click

from roost.actors.client.connect_command import speak
from roost.actors.client.context import Context, pass_context
from roost.actors.client.greeting import Greeting

STDIO = "stdio://"


@click.command("app-server")
@click.option(
    "--listen",
    metavar="URL",
    default=STDIO,
    help=f"{STDIO} and nothing else: the daemon has its socket and its port already.",
)
@click.option("--enable", metavar="FEATURE", multiple=True, help="Accepted and ignored.")
@click.option("--disable", metavar="FEATURE", multiple=True, help="Accepted and ignored.")
@click.option(
    "-c", "--config", metavar="KEY=VALUE", multiple=True, help="Accepted and ignored: see roost up."
)
@pass_context
def app_server(
    context: Context,
    listen: str,
    enable: tuple[str, ...],
    disable: tuple[str, ...],
    config: tuple[str, ...],
) -> None:
    """Serve the thread protocol on standard input and output.

    One JSON object a line, as `codex app-server` does it; a daemon is started if none runs. It is `connect` under the
    name and with the options that clients of that protocol give, and ends as `connect` does.
    """
    if listen != STDIO:
        raise click.BadParameter(f"only {STDIO} is served", param_hint="--listen")
    for option, values in (("--enable", enable), ("--disable", disable), ("-c", config)):
        for value in values:
            click.echo(f"roost: ignored: {option} {value}", err=True)
    speak(context, Greeting())
