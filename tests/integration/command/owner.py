"""An owner of commands for tests: alone with a link to nobody, or as a child of a tree of processes.

Its commands write their pids into the file given, one a line: on pipes and on a terminal, one that has left its group
and one that ignores what it is asked each.
"""

from __future__ import annotations

import os
import sys

import msgspec
import trio

from roost.actors.command.actor import CommandActor, CommandSpec
from roost.actors.command.leftovers import Leftovers
from roost.actors.command.terminal import Size
from roost.supervisor.actor import Process, ProcessActor, serve_process
from roost.supervisor.birth import run_spawned

SCRIPT = """
note() { echo $$ >>"$FILE"; }
note
(env -i FILE="$FILE" setsid /bin/sh -c 'echo $$ >>"$FILE"; trap "" TERM HUP INT; exec /bin/sleep 81' &)
(trap '' TERM HUP INT; exec setsid /bin/sh -c 'echo $$ >>"$FILE"; exec sleep 82') &
trap '' TERM HUP INT
while :; do sleep 83; done
"""
PIDS = 6


async def run_commands(file: str) -> None:
    """Run the commands until cancelled."""
    leftovers = Leftovers()
    env = {"PATH": os.environ["PATH"], "FILE": file}
    async with trio.open_nursery() as nursery:
        for number, tty in enumerate((None, Size(24, 80))):
            spec = CommandSpec(
                command_id=f"owned-{number}",
                argv=("/bin/sh", "-c", SCRIPT),
                cwd="/",
                env=env,
                tty=tty,
                grace=0.3,
            )
            nursery.start_soon(CommandActor(spec, leftovers, lambda _, __: None).run)


class Owner(ProcessActor):
    """A child that runs the commands."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._file = msgspec.msgpack.decode(process.start.payload, type=dict[str, str])["file"]

    async def open(self) -> None:
        self.process.nursery.start_soon(run_commands, self._file)


def main(control_fd: int) -> None:
    trio.run(serve_process, control_fd, {"owner": Owner})


if __name__ == "__main__":
    if "/" in sys.argv[1]:
        trio.run(run_commands, sys.argv[1])
    else:
        run_spawned("owner:main")
