"""`python -m roost.actors` is the command line."""

from __future__ import annotations

from roost.actors.client.cli import main

main()
