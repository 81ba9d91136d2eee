"""The command doctor."""

from __future__ import annotations

import sys

import click
import msgspec

from roost.actors.client.context import Context, pass_context, print_json
from roost.actors.client.doctor import examine
from roost.actors.client.launch import probe
from roost.actors.client.render import wants_color

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@pass_context
def doctor(context: Context, as_json: bool) -> None:
    """Look for what is wrong, and say what to do. Exit status 1 if there is a problem."""
    home = context.home
    state = context.run(lambda: probe(home))
    findings = list(examine(home, answers=state.ready))
    if as_json:
        print_json(msgspec.to_builtins(findings))
    else:
        for finding in findings:
            mark, color = MARKS[finding.level]
            label = f"{mark:>7}"
            if wants_color():
                label = click.style(label, fg=color)
            click.echo(f"{label}  {finding.what}: {finding.text}")
            if finding.advice:
                click.echo(f"{'':>7}  → {finding.advice}")
    sys.exit(1 if any(finding.level == "problem" for finding in findings) else 0)
