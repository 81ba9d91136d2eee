"""Run the measurements named on the command line, or all but the long ones' repeats; print one table.

Usage: python -P bench/run.py [requests websocket permissions fanout turns creation idle isolation fuzz_events
       fuzz_requests fuzz_threads appends history kills clients search command_output
       commands sandbox]
Ends with 1 when a bound is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from typing import TYPE_CHECKING

from bench import (
    agents,
    appends,
    clients,
    command_output,
    commands,
    fanout,
    fuzz_events,
    fuzz_requests,
    fuzz_threads,
    history,
    isolation,
    kills,
    permissions,
    requests,
    sandbox,
    search,
    thread_races,
    threads,
    turns,
    websocket,
)
from bench.report import Figure, table

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTIONS: dict[str, Callable[[], list[Figure]]] = {
    "requests": requests.run,
    "websocket": websocket.run,
    "permissions": permissions.run,
    "fanout": fanout.run,
    "turns": turns.run,
    "creation": agents.creation,
    "idle": agents.idle,
    "isolation": isolation.run,
    "fuzz_events": fuzz_events.run,
    "fuzz_requests": fuzz_requests.run,
    "fuzz_threads": fuzz_threads.run,
    "appends": appends.run,
    "history": history.run,
    "kills": kills.run,
    "clients": clients.run,
    "search": search.run,
    "command_output": command_output.run,
    "commands": commands.run,
    "threads": threads.run,
    "thread_races": thread_races.run,
    "sandbox": sandbox.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in QUESTIONS]
    if unknown:
        sys.stderr.write(f"unknown: {' '.join(unknown)}; known: {' '.join(QUESTIONS)}\n")
        return 2
    figures: list[Figure] = []
    for name in names or QUESTIONS:
        sys.stderr.write(f"{name} …\n")
        figures += QUESTIONS[name]()
    sys.stdout.write(table(figures) + "\n")
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
