"""The command schema: what the daemon's protocol looks like, for generators and validators; needs no daemon."""

from __future__ import annotations

import json

import click

from roost.schemas.export import daemon_schema
from roost.schemas.export_events import events_schema


@click.command()
@click.argument("what", type=click.Choice(["daemon", "events"]), default="daemon")
def schema(what: str) -> None:
    """Print the JSON Schema (draft 7) of the daemon's protocol, or of the events in its log.

    The first has every request with its params, every notification, the answers, and the results by method under
    x-roost-results. No daemon needs to run.
    """
    made = {"daemon": daemon_schema, "events": events_schema}[what]()
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
