"""The commands that move the log: events export, import, verify, tail."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from typing import IO, TYPE_CHECKING

import click
import msgspec

from roost.actors.client.context import Context, RoostGroup, pass_context
from roost.actors.client.errors import ClientError
from roost.actors.client.events import clean
from roost.actors.client.export import choose, open_snapshot, write_sessions
from roost.actors.client.importing import Importer
from roost.actors.client.log_lines import STDIN, judge_line, open_input, read_lines
from roost.actors.client.options import all_named, named, not_empty
from roost.actors.client.outfile import ended_by_sigterm, new_file
from roost.actors.client.standard_files import output_bytes
from roost.actors.client.tail import tail_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roost.actors.client.connection import Connection
    from roost.schemas.validation import Verdict

_encode = msgspec.json.Encoder().encode


@click.group(cls=RoostGroup)
def events() -> None:
    """Move the event log: export, import, verify, tail. Events are JSON lines."""


@events.command()
@click.argument("session", nargs=-1, callback=all_named)
@click.option("--all", "every", is_flag=True, help="Every session.")
@click.option("--agent", callback=named, help="Only sessions of this agent.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events behind this one.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="A file; else standard output."
)
@pass_context
def export(
    context: Context,
    session: Sequence[str],
    every: bool,
    agent: str,
    after: int,
    output: str | None,
) -> None:
    """Write sessions as JSON lines, whether or not the daemon runs.

    Ephemeral sessions are left out. Exit status 1 if a session is damaged: it is written up to the damage.
    """
    if not (session or every or agent):
        raise click.UsageError("name sessions or an agent, or say --all")
    with ended_by_sigterm(), open_snapshot(context.home) as snapshot:
        chosen = choose(snapshot, session, agent)
        if output is None or output == STDIN:
            done = write_sessions(snapshot, chosen, output_bytes(), after, _complain)
        else:
            with new_file(context.home, output) as file:
                done = write_sessions(snapshot, chosen, file, after, _complain)
            click.echo(f"{done.events} events of {done.sessions} sessions in {output}", err=True)
    sys.exit(1 if done.damaged else 0)


@events.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="One object for each line, for programs.")
@pass_context
def verify(context: Context, file: str, as_json: bool) -> None:
    """Judge each line of FILE (or of standard input: -) as a stored event by itself.

    A blank line is no event. Exit status 1 if a line is refused.
    """
    with open_input(file, "verify") as source:
        total, refused = _verify_json(source) if as_json else _verify_text(source)
    if not as_json:
        click.echo(f"{total} lines, {refused} refused", err=True)
    sys.exit(1 if refused else 0)


def _verify_json(source: IO[bytes]) -> tuple[int, int]:
    total = refused = 0
    out = output_bytes()
    for line in read_lines(source):
        verdict = judge_line(line.text)
        total += 1
        refused += not verdict.ok
        out.write(_encode(verdict_json(line.number, verdict)) + b"\n")
    out.flush()
    return total, refused


def _verify_text(source: IO[bytes]) -> tuple[int, int]:
    total = refused = 0
    for line in read_lines(source):
        verdict = judge_line(line.text)
        total += 1
        if not verdict.ok:
            refused += 1
            click.echo(clean(verdict_text(line.number, verdict)))
    return total, refused


def verdict_json(number: int, verdict: Verdict) -> dict[str, object]:
    """Return the verdict on a line for programs."""
    return {
        "line": number,
        "ok": verdict.ok,
        "code": verdict.code,
        "path": verdict.path,
        "message": verdict.message,
    }


def verdict_text(number: int, verdict: Verdict) -> str:
    """Return the verdict on a refused line for people."""
    return f"line {number}: {verdict.code} at {verdict.path}: {verdict.message}"


@events.command("import")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="One object a line, for programs.")
@pass_context
def import_(context: Context, file: str, as_json: bool) -> None:
    """Take sessions from FILE (or from standard input: -) into the daemon, each whole or not at all.

    Each gets an agent of its own, which can go on with it. The same file again changes nothing. Exit status 1 if
    a line or a session is refused.
    """
    home = context.home
    with open_input(file, "import", spool=_spool(home.path)) as source:
        importer = Importer(source, home, _say_json if as_json else _say_text)

        async def main(connection: Connection) -> None:
            await importer.run(connection)

        with contextlib.closing(importer):
            _scan(importer)
            if importer.wanted:
                context.with_daemon(main)
    _say_summary(importer, as_json)
    sys.exit(1 if importer.refused_lines or importer.refused else 0)


def _scan(importer: Importer) -> None:
    try:
        importer.scan()
    except sqlite3.Error as error:
        text = f"what is known of the input cannot be kept in a temporary file: {error}"
        raise ClientError(text) from None


def _spool(home: Path) -> Path:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


def _say_summary(importer: Importer, as_json: bool) -> None:
    if as_json:
        return
    text = f"{importer.imported} sessions imported, {importer.unchanged} unchanged"
    if importer.refused or importer.refused_lines:
        text += f", {importer.refused} refused ({importer.refused_lines} lines refused)"
    elif not importer.imported:
        text += "; nothing has changed"
    click.echo(text, err=True)


def _say_json(object_: dict[str, object], _text: str) -> None:
    out = output_bytes()
    out.write(_encode(object_) + b"\n")
    out.flush()


def _say_text(_object: dict[str, object], text: str) -> None:
    click.echo(clean(text))


@events.command()
@click.argument("session", callback=not_empty)
@click.option("-n", "--lines", type=click.IntRange(min=0), default=10, help="The last so many.")
@click.option("--after", type=click.IntRange(min=0), help="Instead, all behind this event.")
@click.option("-f", "--follow", is_flag=True, help="Go on as more comes.")
@pass_context
def tail(context: Context, session: str, lines: int, after: int | None, follow: bool) -> None:
    """Write the last events of a session as JSON lines.

    With -f it ends with the session (0), with the daemon (3), or when interrupted (130; SIGTERM: 143).
    """
    try:
        sys.exit(tail_session(context, session, lines=lines, after=after, follow=follow))
    except ClientError:
        sys.stdout.flush()
        raise


def _complain(text: str) -> None:
    click.echo(f"roost: {clean(text)}", err=True)
