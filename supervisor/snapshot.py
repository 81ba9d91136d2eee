"""What runs now, as the nodes that `AskTree` is answered with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from roost.schemas.control import TreeNode

if TYPE_CHECKING:
    from roost.supervisor.kept import Kept
    from roost.supervisor.liveness import Liveness


def root_node(uptime: float) -> TreeNode:
    """Return the node of this process."""
    return TreeNode(
        child_id="root",
        parent="",
        kind="root",
        state="running",
        pid=os.getpid(),
        generation=1,
        restarts=0,
        uptime=uptime,
    )


def child_node(child: Kept, parent: str, liveness: Liveness | None) -> TreeNode:
    """Return the node of a child; one that does not live has no pid."""
    alive = child.alive
    if not alive:
        liveness = None
    return TreeNode(
        child_id=child.id,
        parent=parent,
        kind=child.spec.kind,
        state=child.state,
        pid=child.pid if alive else 0,
        generation=child.generation,
        restarts=child.restarts,
        uptime=child.lived() if alive else 0.0,
        working=liveness is not None and liveness.working,
        last_error=child.last_error,
        silent=liveness.silent(trio.current_time()) if liveness is not None else 0.0,
    )
