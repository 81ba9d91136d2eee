"""A root process for tests of the guard: a tree with two services and a few children, one of which leaves a grandchild.

Arguments: the folder for its files. It writes `ready` with the pids of all processes when all are up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from roost.supervisor import identity
from roost.supervisor.process import ProcessSpec
from roost.supervisor.signals import serve_stop_signals
from roost.supervisor.spec import Restart
from roost.supervisor.starter import Starting
from roost.supervisor.tree import Dynamic, ProcessTree

if TYPE_CHECKING:
    from collections.abc import Callable


def spec(home: Path, name: str, kind: str) -> ProcessSpec:
    plan = {"note": str(home / "note"), "after": 600.0}
    return ProcessSpec(
        id=name,
        kind=kind,
        payload=lambda: msgspec.msgpack.encode(plan),
        log=home / f"{name}.log",
        restart=Restart.TRANSIENT,
        sweeps=True,
    )


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is outside raises no event
        await trio.sleep(0.01)


async def run_root(home: Path) -> None:
    tree = ProcessTree(
        starting=Starting(mode="zygote", entry="children:main", preload=("children",)),
        services=[spec(home, "store", "well"), spec(home, "front", "well")],
        dynamic=Dynamic(
            name="agents", prefix="agent:", make=lambda name: spec(home, name, "escapes")
        ),
        on_report=lambda _: None,
    )
    async with trio.open_nursery() as nursery:

        def stop(reason: str) -> None:
            nursery.start_soon(tree.stop, reason)

        def hurry(reason: str) -> None:
            tree.hurry()

        async def serve() -> None:
            await nursery.start(tree.run)
            for number in range(3):
                tree.ensure_child(f"a{number}")
            await until(lambda: len(identity.descendants(os.getpid())) == 9)
            pids = [process.pid for process in identity.descendants(os.getpid())]
            (home / "new").write_text(" ".join(map(str, [os.getpid(), *pids])))
            (home / "new").rename(home / "ready")
            await tree.over.wait()
            nursery.cancel_scope.cancel()

        await nursery.start(serve_stop_signals, stop, hurry)
        nursery.start_soon(serve)


if __name__ == "__main__":
    trio.run(run_root, Path(sys.argv[1]))
    sys.exit(17)
