"""What the command line shows: a session's events as they come, and listings."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

import click

from roost.actors.client.events import (
    ApprovalAsked,
    Cleared,
    Closed,
    Event,
    Lost,
    QuestionAsked,
    Settled,
    StatusChanged,
    Text,
    ToolEnded,
    ToolRequested,
    UserSaid,
    clean,
    describe_call,
    describe_result,
)
from roost.actors.client.replies import TreeNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


MAX_RESULT_LINES = 12
MAX_RESULT_CHARACTERS = 2_000
FULL_CALL = 8_000


class Terminal:
    """Two streams: what the agent says on standard output, all else on standard error, each beginning a line."""

    def __init__(
        self,
        out: Callable[[str], None] | None = None,
        err: Callable[[str], None] | None = None,
        *,
        color: bool | None = None,
    ) -> None:
        self._out = out or _write_out
        self._err = err or _write_err
        self._color = wants_color() if color is None else color
        self._line_open = False

    def say(self, text: str) -> None:
        """Write a piece of the agent's text."""
        if text:
            self._out(text)
            self._line_open = not text.endswith("\n")

    def note(self, text: str, **style: object) -> None:
        """Write a line about what happens."""
        self.close_line()
        self._err(f"{self.style(text, **style)}\n")

    def prompt(self, text: str) -> None:
        """Write a question whose answer is typed behind it."""
        self.close_line()
        self._err(text)

    def close_line(self) -> None:
        """End the line of text that is open."""
        if self._line_open:
            self._out("\n")
            self._line_open = False

    def style(self, text: str, **style: object) -> str:
        """Return the text coloured, where colours are wanted."""
        return click.style(text, **style) if self._color and style else text  # type: ignore[arg-type]  # passed on


def wants_color() -> bool:
    """Return whether standard error is a terminal and nobody said NO_COLOR."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_err(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def show(terminal: Terminal, event: Event) -> None:
    """Write one event of a session."""
    match event:
        case Text(delta=delta):
            terminal.say(clean(delta))
        case UserSaid(text=text):
            terminal.note(f"> {clean(text)}", bold=True)
        case ToolRequested(tool=tool, input=arguments):
            terminal.note(f"* {describe_call(tool, arguments)}", fg="cyan")
        case ToolEnded(text=text, failed=failed):
            style = {"fg": "red"} if failed else {"dim": True}
            terminal.note(_indent(clean(describe_result(text))), **style)
        case ApprovalAsked():
            _show_approval(terminal, event)
        case QuestionAsked():
            terminal.note("? the agent asks", fg="yellow", bold=True)
        case Settled(decision=decision):
            terminal.note(f"  {decision}", dim=True)
        case StatusChanged():
            _show_status(terminal, event)
        case Lost(count=count, reason=reason):
            terminal.note(f"({count} events are no longer in the log: {reason})", fg="yellow")
        case Cleared():
            terminal.note("--- the history was cleared; the agent begins anew ---", fg="yellow")
        case Closed(reason=reason):
            terminal.note(f"session closed {f'({clean(reason)})' if reason else ''}".rstrip())
        case _:
            assert_never(event)


def _show_approval(terminal: Terminal, event: ApprovalAsked) -> None:
    """Write what is asked for in full: nobody can decide about what is cut off."""
    call = describe_call(event.tool, event.input, FULL_CALL)
    terminal.note(f"! approval needed: {call}", fg="yellow", bold=True)
    facts = [("risk", event.risk), ("policy", event.policy), ("reason", clean(event.reason))]
    said = [f"{name}: {value}" for name, value in facts if value]
    if said:
        terminal.note(f"  {'; '.join(said)}", fg="yellow")


def _show_status(terminal: Terminal, event: StatusChanged) -> None:
    if event.derived:
        if event.over:
            terminal.close_line()
    elif event.status == "error":
        terminal.note(f"failed: {clean(event.message) or 'no reason given'}", fg="red")
    elif event.status == "stopped":
        terminal.note(f"stopped: {clean(event.message) or 'on request'}", fg="yellow")
    elif event.interrupted:
        terminal.note("interrupted", fg="yellow")
    elif event.over:
        terminal.close_line()


def _indent(text: str) -> str:
    short = text[:MAX_RESULT_CHARACTERS]
    lines = short.splitlines() or [""]
    cut = lines[:MAX_RESULT_LINES]
    if len(lines) > len(cut) or len(text) > len(short):
        cut.append(f"… ({len(text)} characters in all)")
    return "\n".join(f"  {line}" for line in cut)


def format_duration(seconds: float) -> str:
    """Return a duration as `1d 2h 3m 4s`; leading zero parts are left out."""
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        value, left = divmod(left, size)
        if value or parts or unit == "s":
            parts.append(f"{value}{unit}")
    return " ".join(parts)


def format_size(size: int) -> str:
    """Return a number of bytes in MiB, or a dash where it is not known."""
    return f"{size / 1_048_576:.1f} MiB" if size >= 0 else "-"


def format_age(iso: str, now: datetime | None = None) -> str:
    """Return how long ago a time was, in its largest unit."""
    try:
        then = datetime.fromisoformat(iso)
    except ValueError:
        return "-"
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    return format_duration(max(seconds, 0)).partition(" ")[0]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table: to the terminal's width on a terminal, with nothing cut off elsewhere."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as Cell

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold" if sys.stdout.isatty() else "ignore", no_wrap=False)
    for row in rows:
        table.add_row(*(Cell(clean(cell)) for cell in row))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False).print(table)


def tree_lines(nodes: Sequence[TreeNode]) -> list[str]:
    """Return the supervision tree as lines; a supervisor that is no process of its own stands below the root."""
    known = {node.child_id for node in nodes}
    top = next((node.child_id for node in nodes if not node.parent), "")
    groups = dict.fromkeys(node.parent for node in nodes if node.parent not in known | {""})
    below: dict[str, list[TreeNode]] = {}
    for node in (*nodes, *(TreeNode(child_id=name, parent=top) for name in groups)):
        below.setdefault(node.parent, []).append(node)
    lines: list[str] = []
    _add_lines(lines, below, "", "", set())
    return lines


def _add_lines(
    lines: list[str],
    below: dict[str, list[TreeNode]],
    parent: str,
    indent: str,
    seen: set[str],
) -> None:
    """Add the children of one node; `seen` keeps a circle from going on for ever."""
    children = [node for node in below.get(parent, ()) if node.child_id not in seen]
    for node in children:
        seen.add(node.child_id)
        last = node is children[-1]
        branch = ("└─ " if last else "├─ ") if parent else ""
        lines.append(f"{indent}{branch}{describe_node(node)}")
        further = ("   " if last else "│  ") if parent else ""
        _add_lines(lines, below, node.child_id, indent + further, seen)


def describe_node(node: TreeNode) -> str:
    """Return one process as a line."""
    facts = [node.child_id, node.state]
    if node.pid:
        facts.append(f"pid {node.pid}")
    if node.pid and node.rss >= 0:
        facts.append(format_size(node.rss))
    if node.cpu_seconds >= 0:
        facts.append(f"cpu {node.cpu_seconds:.1f}s")
    if node.uptime_ms:
        facts.append(f"up {format_duration(node.uptime_ms / 1000)}")
    if node.restarts:
        facts.append(f"restarts {node.restarts}")
    if node.working:
        facts.append("working")
    if node.last_error:
        facts.append(f"last error: {clean(node.last_error)}")
    return "  ".join(fact for fact in facts if fact)
