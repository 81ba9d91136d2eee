"""Entry of every child process: forked from the zygote, or a fresh interpreter.

`python -P -m roost.actors.worker FD` is the fresh one; after this line both run the same code.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from functools import partial

import trio

from roost.actors.logs import open_log, set_levels
from roost.config.model import decode_settings
from roost.schemas.boot import decode_boot
from roost.supervisor.actor import Process, ProcessActor, serve_process
from roost.supervisor.birth import run_spawned
from roost.supervisor.identity import set_title

ACTORS = {
    "store": ("roost.actors.store.actor", "StoreActor"),
    "front": ("roost.actors.front.actor", "FrontActor"),
    "providers": ("roost.actors.providers.actor", "ProvidersActor"),
    "agent": ("roost.actors.agent.actor", "AgentActor"),
    "search": ("roost.actors.search.actor", "SearchActor"),
    "commands": ("roost.actors.commands.actor", "CommandsActor"),
}
"""Kind of process → module and class; loaded when it is the child's own, unless the zygote has it already."""

PRELOAD = (
    "roost.actors.worker",
    *(module for kind, (module, _) in ACTORS.items() if kind not in ("search", "commands")),
)
"""What the zygote imports before its first fork; what few daemons start is left out, for every agent would carry it."""

CRASHED = 70
REFUSED = 78

_log = logging.getLogger(__name__)


def _make(process: Process, kind: str) -> ProcessActor:
    child_id = process.start.child_id
    set_title(f"roost: {kind}" if child_id == kind else f"roost: {kind} {child_id}")
    boot = decode_boot(process.start.payload)
    log = decode_settings(boot.settings).log
    open_log(
        os.path.join(boot.home, "logs", "daemon.jsonl"),
        process.start.child_id,
        level=log.level,
        rotate_bytes=log.rotate_bytes,
        keep=log.keep,
    )
    module, name = ACTORS[kind]
    made: ProcessActor = getattr(importlib.import_module(module), name)(process)
    return made


async def _serve(control_fd: int) -> None:
    await serve_process(control_fd, {kind: partial(_make, kind=kind) for kind in ACTORS})


def main(control_fd: int) -> None:
    """Run the child behind this end of its control link and end the process; does not return."""
    os.environ.pop("PYTHONPATH", None)
    status = 0
    try:
        trio.run(_serve, control_fd)
    except BaseException as error:  # noqa: BLE001
        _log.exception("the process crashed")
        sys.excepthook(type(error), error, error.__traceback__)
        status = CRASHED
    sys.stderr.flush()
    os._exit(status)


def warm_up() -> None:
    """Do in the zygote, once, what is done at the first use: its children are agents more than anything else."""
    set_levels("info")
    importlib.import_module("roost.actors.agent.rehearsal").rehearse()


if __name__ == "__main__":
    run_spawned("roost.actors.worker:main")
