"""What `roost top` shows, made of two looks at the daemon: its processes with their share of a processor; pure.

The first look has nothing to compare with: there the share is that of the whole life of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.client.events import clean
from roost.actors.client.render import format_duration, format_size
from roost.actors.client.replies import Stats, TreeNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HEAD = ("PROCESS", "STATE", "PID", "CPU%", "TIME", "MEMORY", "QUEUE", "TURN", "RESTARTS")
WORDS = "TURN"
NUMBERS = frozenset({"PID", "CPU%", "TIME", "MEMORY", "QUEUE", "RESTARTS"})
# What a narrow terminal does without.
SPARED = frozenset({"PID", "TIME", "RESTARTS"})
WIDE = 110
MAX_NAME = 20
SILENT_MS = 1_000


class Look(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was seen at one moment. Without `stats` the daemon did not answer, and `trouble` says why."""

    time: str
    at: float
    running: bool
    trouble: str = ""
    stats: Stats | None = None
    cpu: dict[str, float] = {}


def shares(stats: Stats, at: float, before: Look | None) -> dict[str, float]:
    """Return how much of one processor each process has used since the look before, in percent."""
    earlier = _by_process(before.stats.tree) if before is not None and before.stats else {}
    found: dict[str, float] = {}
    for node in stats.tree:
        if node.cpu_seconds < 0 or not node.pid:
            continue
        last = earlier.get((node.child_id, node.pid))
        used, seconds = node.cpu_seconds, node.uptime_ms / 1000
        if last is not None and before is not None and last.cpu_seconds >= 0:
            used, seconds = used - last.cpu_seconds, at - before.at
        found[node.child_id] = round(max(used, 0.0) / seconds * 100, 1) if seconds > 0 else 0.0
    return found


def to_json(look: Look) -> dict[str, object]:
    """Return a look for programs: the result of `health.stats`, each process with its `cpuPercent`."""
    answer: dict[str, object] = {
        "time": look.time,
        "running": look.running,
        "answering": look.stats is not None,
    }
    if look.stats is None:
        return answer | {"error": look.trouble}
    stats: dict[str, object] = msgspec.to_builtins(look.stats)
    tree = [
        {**msgspec.to_builtins(node), "cpuPercent": look.cpu.get(node.child_id, 0.0)}
        for node in look.stats.tree
    ]
    return answer | stats | {"tree": tree}


def headline(look: Look) -> str:
    """Return the line above the table."""
    stats = look.stats
    if stats is None:
        return look.trouble
    counts, state = stats.sessions, stats.state
    total = sum(look.cpu.values())
    parts = [
        f"up {format_duration(stats.uptime_ms / 1000)}",
        f"cpu {total:.1f}%",
        f"memory {format_size(stats.memory.rss)}",
        f"sessions {counts.active} active, {counts.closed} closed",
        f"turns {state.open_turns}",
        f"waiting for a person {state.pending_requests}",
        f"clients {sum(n for name, n in stats.connections.items() if name != 'attachments')}",
    ]
    return "  ".join(parts)


def rows(look: Look, limit: int) -> list[tuple[TreeNode, tuple[str, ...]]]:
    """Return a line for each process in the order of the tree, at most so many: of agents the busiest ones."""
    if look.stats is None:
        return []
    nodes = look.stats.tree
    agents = [node for node in nodes if node.kind == "agent"]
    fixed = [node for node in nodes if node.kind != "agent"]
    agents.sort(key=lambda node: (not _is_trouble(node), -look.cpu.get(node.child_id, 0.0)))
    room = max(limit - len(fixed), 0)
    shown = [*fixed, *agents[:room]]
    return [(node, _row(node, look.cpu)) for node in shown]


def hidden(look: Look, limit: int) -> int:
    """Return how many processes `rows` leaves out."""
    return 0 if look.stats is None else len(look.stats.tree) - len(rows(look, limit))


def turn_state(node: TreeNode) -> str:
    """Return what a process does, in a few words."""
    if node.silent_ms > SILENT_MS:
        return f"no answer for {format_duration(node.silent_ms / 1000)}"
    if node.waiting:
        return "waits for a person"
    if node.turns:
        return "running" if node.turns == 1 else f"{node.turns} running"
    if node.kind == "agent" and node.state == "running":
        return "working" if node.working else "idle"
    return "working" if node.working else ""


def short(name: str) -> str:
    """Return a name cut in its middle, where ids made at one time are alike."""
    bare = name.lstrip()
    if len(bare) <= MAX_NAME:
        return name
    return f"{name[: len(name) - len(bare)]}{bare[:6]}…{bare[-12:]}"


def is_hung(node: TreeNode) -> bool:
    """Return whether a process owes an answer."""
    return node.silent_ms > SILENT_MS


def _is_trouble(node: TreeNode) -> bool:
    return is_hung(node) or node.state in {"gave_up", "waiting"}


def _row(node: TreeNode, cpu: Mapping[str, float]) -> tuple[str, ...]:
    share = cpu.get(node.child_id)
    name = node.child_id if not node.parent else f"  {node.child_id}"
    return (
        name,
        node.state,
        str(node.pid) if node.pid else "-",
        f"{share:.1f}" if share is not None else "-",
        format_duration(node.cpu_seconds) if node.cpu_seconds >= 0 else "-",
        format_size(node.rss) if node.pid else "-",
        str(node.mailbox),
        _with_error(node),
        str(node.restarts),
    )


def _with_error(node: TreeNode) -> str:
    said = turn_state(node)
    if node.state == "running" or not node.last_error:
        return said
    return clean(node.last_error.partition("\n")[0][:120])


def _by_process(nodes: Iterable[TreeNode]) -> dict[tuple[str, int], TreeNode]:
    return {(node.child_id, node.pid): node for node in nodes}


def as_lines(look: Look) -> Sequence[Sequence[str]]:
    """Return every process as a line of a table, nothing left out."""
    count = len(look.stats.tree) if look.stats is not None else 0
    return [cells for _, cells in rows(look, count)]
