"""`roost top`: looks at the daemon again and again for as long as somebody watches; the daemon does nothing in between."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import trio

from roost.actors.client.autostart import PROBE_TIMEOUT
from roost.actors.client.connection import open_connection
from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.errors import ClientError, NotRunning
from roost.actors.client.launch import find_root
from roost.actors.client.options import finite
from roost.actors.client.render import print_table
from roost.actors.client.replies import Stats
from roost.actors.client.top import (
    HEAD,
    NUMBERS,
    SPARED,
    WIDE,
    WORDS,
    Look,
    as_lines,
    headline,
    hidden,
    is_hung,
    rows,
    shares,
    short,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from roost.config.paths import Home

# A little longer than the daemon itself waits for those of its processes that do not answer.
ANSWER_SECONDS = PROBE_TIMEOUT + 2.0
DEFAULT_INTERVAL = 2.0
MIN_INTERVAL = 0.1
OUTSIDE_LINES = 5
NO_DAEMON = 3


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs: one look, or a line for each.")
@click.option(
    "--interval",
    type=click.FloatRange(min=MIN_INTERVAL),
    callback=finite,
    default=None,
    help="Seconds between two looks (2).",
)
@click.option("--count", type=click.IntRange(min=1), default=None, help="End after so many looks.")
@pass_context
def top(context: Context, as_json: bool, interval: float | None, count: int | None) -> None:
    """Watch the processes of the daemon.

    Their share of a processor and memory, what waits in their queues, what their turns do. Off a terminal: one look.
    """
    home = context.home
    live = sys.stdout.isatty() and not as_json
    if count is None and not live and interval is None:
        count = 1
    pause = interval or DEFAULT_INTERVAL
    if live:
        look = _watch_live(context, home, pause, count)
    else:
        single = count == 1
        look = context.run(lambda: _watch(home, pause, count, _printer(as_json, single=single)))
    if look is not None and look.stats is None and count is not None:
        if not as_json:
            click.echo(f"roost: {look.trouble}", err=True)
        sys.exit(NO_DAEMON)


def _printer(as_json: bool, *, single: bool) -> Callable[[Look], None]:
    def show(look: Look) -> None:
        if as_json and single:
            print_json(to_json(look))
        elif as_json:
            click.echo(json.dumps(to_json(look), ensure_ascii=False))
        elif look.stats is not None:
            click.echo(headline(look))
            print_table(HEAD, as_lines(look))
        elif not single:
            click.echo(headline(look))
        sys.stdout.flush()

    return show


def _watch_live(context: Context, home: Home, pause: float, count: int | None) -> Look | None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, screen=count is None, auto_refresh=False) as live:

        def show(look: Look) -> None:
            live.update(_picture(look, console, home), refresh=True)

        return context.run(lambda: _watch(home, pause, count, show))


async def _watch(
    home: Home, pause: float, count: int | None, show: Callable[[Look], None]
) -> Look | None:
    """Look and show until so many looks are done; one at a daemon that is gone or stuck counts, and it is tried again."""
    seen: Look | None = None
    left = count
    while True:
        try:
            async with open_connection(home, within=PROBE_TIMEOUT) as connection:
                while True:
                    stats = await connection.call("health.stats", {}, Stats, within=ANSWER_SECONDS)
                    seen = _look(stats, seen)
                    show(seen)
                    left = None if left is None else left - 1
                    if left == 0:
                        return seen
                    await trio.sleep(pause)
        except ClientError as error:
            seen = _failed(home, error)
        show(seen)
        left = None if left is None else left - 1
        if left == 0:
            return seen
        await trio.sleep(pause)


def _look(stats: Stats, before: Look | None) -> Look:
    at = trio.current_time()
    return Look(time=_now(), at=at, running=True, stats=stats, cpu=shares(stats, at, before))


def _failed(home: Home, error: ClientError) -> Look:
    root = None if isinstance(error, NotRunning) else find_root(home)
    where = f"the daemon (pid {root.pid}) does not answer: " if root is not None else ""
    return Look(
        time=_now(),
        at=trio.current_time(),
        running=root is not None,
        trouble=f"{where}{error}",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _picture(look: Look, console: Console, home: Home) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    limit = console.height - OUTSIDE_LINES
    title = Text(f"roost top  {home.path}  {look.time}", style="bold", overflow="ellipsis")
    if look.stats is None:
        return Group(title, Text(look.trouble, style="bold red"))
    shown = rows(look, limit)
    wanted = [at for at, name in enumerate(HEAD) if console.width >= WIDE or name not in SPARED]
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for at in wanted:
        name = HEAD[at]
        width = max([len(name), *(len(short(cells[at])) for _, cells in shown)])
        table.add_column(
            name,
            justify="right" if name in NUMBERS else "left",
            no_wrap=True,
            width=None if name == WORDS else width,
            ratio=1 if name == WORDS else None,
        )
    for node, cells in shown:
        style = "bold red" if is_hung(node) or node.state == "gave_up" else ""
        texts = (cells[at] if HEAD[at] == WORDS else short(cells[at]) for at in wanted)
        table.add_row(*(Text(text, overflow="ellipsis") for text in texts), style=style)
    rest = hidden(look, limit)
    more = [Text(f"… and {rest} more", style="dim")] if rest else []
    headline_text = Text(headline(look), no_wrap=True, overflow="ellipsis")
    return Group(title, headline_text, table, *more)
