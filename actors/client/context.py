"""What every command gets: the home, a way to run asynchronous code, and one place where errors become exit statuses."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from typing import IO, TYPE_CHECKING, Final, TextIO, TypeVar

import click
import trio

from roost.actors.client.connection import MAX_NOTIFICATIONS, only_error, open_connection
from roost.actors.client.errors import ClientError
from roost.actors.client.events import clean
from roost.actors.client.launch import ensure_daemon
from roost.config.errors import ConfigError
from roost.config.paths import resolve_home

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roost.actors.client.connection import Connection
    from roost.config.paths import Home

INTERRUPTED = 130
# With these the kernel refuses what is written to an open file.
REFUSED_WRITES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

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
        backlog: int = MAX_NOTIFICATIONS,
        autostart: bool = True,
    ) -> Result:
        """Run asynchronous code with a connection; a daemon is started if none runs and commands may start one."""
        home = self.home

        async def connected() -> Result:
            if autostart and await ensure_daemon(home):
                click.echo(f"started a daemon in {home.path}", err=True)
            async with open_connection(
                home, notifications=notifications, capabilities=capabilities, backlog=backlog
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
            _fill_closed()
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
            _silence()
            ctx.exit(1)
        except OSError as error:
            ctx.exit(tell_system_error(error))


def standard_input() -> TextIO:
    """Return standard input.

    Raises:
        ClientError: it is closed.
    """
    if sys.__stdin__ is None or sys.stdin is None:
        raise ClientError("standard input is closed")
    return sys.stdin


def output_bytes() -> IO[bytes]:
    """Return standard output, for what would be of no use unwritten.

    Raises:
        ClientError: it is closed.
    """
    if sys.__stdout__ is None:
        raise ClientError("standard output is closed")
    return sys.stdout.buffer


def tell_system_error(error: OSError) -> int:
    """Tell of what the system has refused in one line, and return the exit status."""
    with contextlib.suppress(OSError):
        click.echo(f"roost: {clean(_told(error))}", err=True)
    _silence()
    return 1


def _fill_closed() -> None:
    """Have no file opened under the number of a standard one that is closed; what is printed there goes nowhere."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 # until the end of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 # until the end of the process


def _told(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.filename is not None:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {text}"
    return f"standard output: {text}" if error.errno in REFUSED_WRITES else text


def _silence() -> None:
    """Have what is still to be written go nowhere: python would complain once more at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


def print_json(value: object) -> None:
    """Write a value as JSON for other programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
