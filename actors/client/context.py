"""What every command gets: the home, a way to run asynchronous code, and one place where errors become exit statuses."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TypeVar

import click

from roost.actors.client.errors import ClientError
from roost.actors.client.standard_files import fill_closed, silence, tell_system_error
from roost.config.errors import ConfigError

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
        from roost.config.paths import resolve_home

        return resolve_home(self._home_option, os.environ)

    def run(self, main: Callable[[], Awaitable[Result]]) -> Result:
        """Run asynchronous code to its end."""
        import trio

        from roost.actors.client.connection import only_error

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
        backlog: int | None = None,
        autostart: bool = True,
    ) -> Result:
        """Run asynchronous code with a connection; a daemon is started if none runs and commands may start one."""
        from roost.actors.client.autostart import ensure_daemon
        from roost.actors.client.connection import MAX_NOTIFICATIONS, open_connection

        home = self.home

        async def connected() -> Result:
            if autostart and await ensure_daemon(home):
                click.echo(f"started a daemon in {home.path}", err=True)
            async with open_connection(
                home,
                notifications=notifications,
                capabilities=capabilities,
                backlog=backlog or MAX_NOTIFICATIONS,
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
        """Run the command that was named; what it has said is written when this returns."""
        try:
            fill_closed()
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except (ClientError, ConfigError) as error:
            click.echo(f"roost: {error}", err=True)
            ctx.exit(error.exit_status if isinstance(error, ClientError) else 1)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has gone.
            silence()
            ctx.exit(1)
        except OSError as error:
            ctx.exit(tell_system_error(error))


def print_json(value: object) -> None:
    """Write a value as JSON for other programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
