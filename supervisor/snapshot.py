"""What runs now, as the nodes that `AskTree` is answered with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from roost.schemas.control import TreeNode
from roost.supervisor import identity

if TYPE_CHECKING:
    from roost.supervisor.kept import Kept
    from roost.supervisor.liveness import Liveness


def root_node(uptime: float, *, measure: bool) -> TreeNode:
    """Return the node of this process."""
    pid = os.getpid()
    return TreeNode(
        child_id="root",
        parent="",
        kind="root",
        state="running",
        pid=pid,
        generation=1,
        restarts=0,
        uptime=uptime,
        rss=identity.rss(pid) if measure else -1,
        cpu_seconds=identity.cpu_seconds(pid) if measure else -1.0,
    )


def child_node(child: Kept, parent: str, liveness: Liveness | None, *, measure: bool) -> TreeNode:
    """Return the node of a child; one that does not live has no pid and no figures."""
    alive = child.alive
    pid = child.pid if alive else 0
    looked_at = pid if measure else 0
    if not alive:
        liveness = None
    return TreeNode(
        child_id=child.id,
        parent=parent,
        kind=child.spec.kind,
        state=child.state,
        pid=pid,
        generation=child.generation,
        restarts=child.restarts,
        uptime=child.lived() if alive else 0.0,
        rss=identity.rss(looked_at) if looked_at else -1,
        cpu_seconds=identity.cpu_seconds(looked_at) if looked_at else -1.0,
        working=liveness is not None and liveness.working,
        last_error=child.last_error,
        silent=liveness.silent(trio.current_time()) if liveness is not None else 0.0,
    )
