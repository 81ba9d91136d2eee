"""What every command gets: the home, a way to run asynchronous code, and one place where errors become exit statuses."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TypeVar

import click
import trio

from roost.actors.client.connection import only_error, open_connection
from roost.actors.client.errors import ClientError
from roost.actors.client.launch import ensure_daemon
from roost.config.errors import ConfigError
from roost.config.paths import resolve_home

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roost.actors.client.connection import Connection
    from roost.config.paths import Home

INTERRUPTED = 130

Result = TypeVar("Result")


class Context:
    """The object that click hands to every command."""

    def __init__(self, home_option: str | None) -> None:
        self._home_option = home_option

    @property
    def home(self) -> Home:
        """The home that the options and the environment name."""
        return resolve_home(self._home_option, os.environ)

    def run(self, main: Callable[[], Awaitable[Result]]) -> Result:
        """Run asynchronous code to its end."""
        try:
            return trio.run(main)
        except BaseExceptionGroup as group:
            raise only_error(group) from None

    def with_daemon(
        self,
        main: Callable[[Connection], Awaitable[Result]],
        *,
        notifications: bool = False,
        capabilities: Mapping[str, object] | None = None,
        autostart: bool = True,
    ) -> Result:
        """Run asynchronous code with a connection; a daemon is started if none runs and commands may start one."""
        home = self.home

        async def connected() -> Result:
            if autostart and await ensure_daemon(home):
                click.echo(f"started a daemon in {home.path}", err=True)
            async with open_connection(
                home, notifications=notifications, capabilities=capabilities
            ) as connection:
                return await main(connection)

        return self.run(connected)


pass_context = click.make_pass_decorator(Context)


class RoostGroup(click.Group):
    """A group whose commands end with the exit status of their error, in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order in which they were added."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except (ClientError, ConfigError) as error:
            click.echo(f"roost: {error}", err=True)
            ctx.exit(error.exit_status if isinstance(error, ClientError) else 1)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has gone; python would complain once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)


def print_json(value: object) -> None:
    """Write a value as JSON for other programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
