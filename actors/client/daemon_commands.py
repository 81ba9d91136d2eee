"""The commands about the daemon itself: up, down, status, restart, token."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import msgspec
import trio

from roost.actors.client.autostart import PROBE_TIMEOUT
from roost.actors.client.connection import open_connection
from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError
from roost.actors.client.launch import (
    exec_daemon,
    probe,
    start_daemon,
    stop_daemon,
)
from roost.actors.client.lookup import list_sessions
from roost.actors.client.options import finite
from roost.actors.client.render import format_duration, format_size, tree_lines
from roost.actors.client.replies import Reloaded, Stats
from roost.config.errors import HomeError, SettingsError
from roost.config.files import ensure_cookie, read_daemon_file
from roost.config.load import load_settings, parse_overrides
from roost.config.paths import prepare_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roost.actors.client.connection import Connection
    from roost.config.files import DaemonFile
    from roost.config.paths import Home


def _overrides(
    _context: click.Context, _option: click.Parameter, items: Sequence[str]
) -> dict[str, str]:
    try:
        return parse_overrides(items)
    except SettingsError as error:
        raise click.BadParameter(str(error)) from None


SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_overrides,
    help="A setting, as in websocket.port=0.",
)
WAIT_STEP = 0.5


def _check_settings(home: Home, overrides: Mapping[str, str]) -> None:
    """Refuse settings with which no daemon would start, before one is stopped for them.

    Raises:
        click.UsageError: it is one of the options.
        SettingsError: it is in the file or the environment.
    """
    try:
        load_settings(home, os.environ, overrides)
    except SettingsError as error:
        if str(error).startswith("--set"):
            raise click.UsageError(str(error)) from None
        raise


@click.command()
@click.option("--foreground", is_flag=True, help="Stay here, for a terminal or a service manager.")
@SET
@pass_context
def up(context: Context, foreground: bool, overrides: dict[str, str]) -> None:
    """Start the daemon and wait until it is ready."""
    home = context.home
    _check_settings(home, overrides)
    if foreground:
        exec_daemon(home, overrides)
    state = context.run(lambda: probe(home))
    if state.ready and state.root is not None:
        click.echo(f"a daemon already runs in {home.path} (pid {state.root.pid})")
        if overrides:
            click.echo("it keeps its settings; `roost restart --set …` changes them", err=True)
        return
    state = context.run(lambda: start_daemon(home, overrides))
    click.echo(f"daemon started in {home.path} (pid {state.root.pid if state.root else '?'})")


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    callback=finite,
    default=None,
    help="Seconds until it is killed.",
)
@pass_context
def down(context: Context, timeout: float | None) -> None:
    """Stop the daemon; agents and sessions are kept."""
    root = context.run(lambda: stop_daemon(context.home, timeout))
    if root is None:
        click.echo(f"no daemon runs in {context.home.path}")
    else:
        click.echo(f"daemon stopped (pid {root.pid})")


@click.command()
@click.option("--wait", is_flag=True, help="First wait until no turn runs.")
@SET
@pass_context
def restart(context: Context, wait: bool, overrides: dict[str, str]) -> None:
    """Stop the daemon and start it again."""
    home = context.home
    _check_settings(home, overrides)

    async def main() -> int:
        if wait and (await probe(home)).ready:
            await _wait_idle(home)
        await stop_daemon(home)
        state = await start_daemon(home, overrides)
        return state.root.pid if state.root else 0

    click.echo(f"daemon restarted (pid {context.run(main)})")


async def _wait_idle(home: Home) -> None:
    async with open_connection(home) as connection:
        while True:
            sessions = await list_sessions(connection)
            if not any(session.status == "running" for session in sessions):
                return
            await trio.sleep(WAIT_STEP)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def reload(context: Context, as_json: bool) -> None:
    """Have the daemon read its configuration again.

    A wrong one changes nothing. What a running daemon cannot change is named; it waits for `roost restart`.
    """

    async def main(connection: Connection) -> tuple[Reloaded, int]:
        answer = await connection.call("daemon.reload", {}, Reloaded)
        return answer, connection.peer_pid

    answer, pid = context.with_daemon(main, autostart=False)
    if as_json:
        print_json({"pid": pid, **msgspec.to_builtins(answer)})
        return
    click.echo(f"configuration reloaded (pid {pid})")
    click.echo(f"  changed: {', '.join(answer.changed) or 'nothing'}")
    if answer.need_restart:
        click.echo(f"  after `roost restart`: {', '.join(answer.need_restart)}")
    if answer.late:
        click.echo(f"  not confirmed yet by: {', '.join(answer.late)}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def status(context: Context, as_json: bool) -> None:
    """Say whether the daemon runs, and show its tree. Exit status 1 if it does not."""
    home = context.home
    state = context.run(lambda: probe(home))
    stats = context.run(lambda: _stats(home)) if state.ready else None
    found = _daemon_file(home)
    if as_json:
        print_json(_status_json(home, state.root.pid if state.root else None, stats, found))
    elif state.root is None:
        click.echo(f"no daemon runs in {home.path}")
    else:
        _print_status(state.root.pid, stats, found)
    sys.exit(0 if state.root is not None else 1)


async def _stats(home: Home) -> Stats | None:
    try:
        async with open_connection(home, within=PROBE_TIMEOUT) as connection:
            return await connection.call("health.stats", {}, Stats, within=PROBE_TIMEOUT)
    except ClientError:
        return None


def _daemon_file(home: Home) -> DaemonFile | None:
    try:
        return read_daemon_file(home)
    except HomeError:
        return None


def _status_json(
    home: Home, pid: int | None, stats: Stats | None, found: DaemonFile | None
) -> dict[str, object]:
    answer: dict[str, object] = {
        "running": pid is not None,
        "ready": stats is not None,
        "home": str(home.path),
    }
    if pid is not None:
        answer["pid"] = pid
        if found is not None:
            answer |= {
                "version": found.version,
                "socket": found.socket,
                "websocket": found.websocket,
                "createdAt": found.created_at,
            }
    if stats is not None:
        answer |= msgspec.to_builtins(stats)
    return answer


def _print_status(pid: int, stats: Stats | None, found: DaemonFile | None) -> None:
    if stats is None:
        click.echo(
            f"daemon running (pid {pid}), but it does not answer yet; `roost doctor` looks closer"
        )
        return
    version = f"roost {found.version} " if found is not None else ""
    click.echo(f"{version}running (pid {pid})")
    click.echo(f"  uptime: {format_duration(stats.uptime_ms / 1000)}")
    total = sum(node.rss for node in stats.tree if node.rss > 0)
    click.echo(f"  memory: {format_size(total or stats.memory.rss)} resident")
    counts = stats.sessions
    click.echo(f"  sessions: active={counts.active}, closed={counts.closed}, total={counts.total}")
    if found is not None:
        click.echo(f"  socket: {found.socket}")
        if found.websocket:
            click.echo(f"  websocket: {found.websocket}")
    for line in tree_lines(stats.tree):
        click.echo(f"  {line}")


@click.command()
@pass_context
def token(context: Context) -> None:
    """Print the secret by which clients on TCP prove who they are."""
    prepare_home(context.home)
    click.echo(ensure_cookie(context.home))
