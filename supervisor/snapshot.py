"""What runs now, as the nodes that `AskTree` is answered with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from roost.schemas.control import TreeNode
from roost.supervisor import identity

if TYPE_CHECKING:
    from roost.supervisor.kept import Kept


def root_node(uptime: float) -> TreeNode:
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
        rss=identity.rss(pid),
        cpu_seconds=identity.cpu_seconds(pid),
    )


def child_node(child: Kept, parent: str, *, working: bool) -> TreeNode:
    """Return the node of a child; one that does not live has no pid and no figures."""
    alive = child.alive
    pid = child.pid if alive else 0
    return TreeNode(
        child_id=child.id,
        parent=parent,
        kind=child.spec.kind,
        state=child.state,
        pid=pid,
        generation=child.generation,
        restarts=child.restarts,
        uptime=child.lived() if alive else 0.0,
        rss=identity.rss(pid) if pid else -1,
        cpu_seconds=identity.cpu_seconds(pid) if pid else -1.0,
        working=working and alive,
        last_error=child.last_error,
    )
