"""The command that finds files: search."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.events import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roost.actors.client.connection import Connection

NOTHING_FOUND = 1

_LINE_ENDS = dict.fromkeys(map(ord, "\n\r\t\x0b\x0c\x85\u2028\u2029"), "\ufffd")


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the answer to `fs.fuzzy_search`, whose members are not written in camel case."""

    root: str
    path: str
    match_type: str
    score: int
    indices: tuple[int, ...] = ()


class FoundFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `fs.fuzzy_search`."""

    files: tuple[FoundFile, ...]


@click.command()
@click.argument("query")
@click.argument("roots", nargs=-1, metavar="[ROOT]...")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def search(context: Context, query: str, roots: Sequence[str], as_json: bool) -> None:
    """Find files and directories below ROOTs (or here) by approximate name, best first.

    The exit status is 1 if nothing fits.
    """
    absolute = [os.path.abspath(root) for root in roots or (".",)]
    for text in (query, *absolute):
        _check_text(text)
    for root in roots:
        if not os.path.isdir(root):
            raise click.UsageError(f"there is no folder {_clean(root)}")

    async def ask(connection: Connection) -> bytes:
        return await connection.call_raw("fs.fuzzy_search", {"query": query, "roots": absolute})

    answer = context.with_daemon(ask)
    found = msgspec.json.decode(answer, type=FoundFiles).files
    if as_json:
        print_json(msgspec.json.decode(answer))
    else:
        _print(found, dict(zip(absolute, roots, strict=False)))
    if not found:
        sys.exit(NOTHING_FOUND)


def _check_text(text: str) -> None:
    """Raise a usage error for text that was no UTF-8, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise click.UsageError(f"{_clean(shown)} is not UTF-8") from None


def _print(found: Iterable[FoundFile], given: dict[str, str]) -> None:
    """Write each path as the user would name it: behind the root as it was given, directories with a slash."""
    marked = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for entry in found:
        start = given.get(entry.root, "")
        slash = "/" if start and not start.endswith("/") else ""
        path = _mark(entry.path, frozenset(entry.indices)) if marked else _clean(entry.path)
        end = "/" if entry.match_type == "directory" else ""
        click.echo(f"{_clean(start)}{slash}{path}{end}")


def _mark(path: str, indices: frozenset[int]) -> str:
    """Return the path with the characters that were matched in bold."""
    return "".join(
        click.style(_clean(char), bold=True, fg="green") if at in indices else _clean(char)
        for at, char in enumerate(path)
    )


def _clean(text: str) -> str:
    """Return text as one line: a name with a newline must not look like two."""
    return clean(text).translate(_LINE_ENDS)
