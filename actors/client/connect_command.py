"""The command connect: the daemon's protocol on standard input and output."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

from roost.actors.client.autostart import ensure_daemon
from roost.actors.client.bridge import Bridge
from roost.actors.client.context import Context, pass_context
from roost.actors.client.errors import ClientError

if TYPE_CHECKING:
    from roost.actors.client.greeting import Greeting


@click.command()
@pass_context
def connect(context: Context) -> None:
    """Speak the daemon's protocol on standard input and output.

    One JSON object a line. After the end of the input the open requests are answered, then it ends (0); with the daemon
    it ends with 3, when nobody reads the output with 1, when interrupted with 130 (SIGTERM: 143).
    """
    speak(context)


def speak(context: Context, greeting: Greeting | None = None) -> None:
    """Join standard input and output to the daemon, which is started if none runs, until one of the two ends.

    A `greeting` changes what the client says at first.

    Raises:
        ClientError: no daemon runs and none may be started, or it ended the connection, or a descriptor is closed.
        BrokenPipeError: nobody reads the output any more.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        raise ClientError("standard input and output must be open")
    target = _take_stdout()
    home = context.home
    if context.run(lambda: ensure_daemon(home)):
        click.echo(f"started a daemon in {home.path}", err=True)
    Bridge(home, sys.stdin.fileno(), target, greeting).run()


def _take_stdout() -> int:
    """Return a descriptor for the protocol; what else is printed goes to standard error from now on."""
    stdout = sys.stdout.fileno()
    target = os.dup(stdout)
    with contextlib.suppress(OSError):
        os.dup2(2, stdout)
    return target
