"""health.stats: figures of the daemon and of each of its processes; nothing is looked at before somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from roost.actors.errors import DaemonError
from roost.actors.front.clock import now_ms, stamp
from roost.schemas import control
from roost.schemas.model import Load, TakeLoad
from roost.schemas.results import Stats, StatsNode
from roost.schemas.session import Count, Counts
from roost.supervisor.identity import Usage, usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roost.actors.front.promise import Promise
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.schemas.daemon import JsonObject, Nothing
    from roost.schemas.session import AgentWork

# A process that does not answer must not keep back what the others say.
PATIENCE_SECONDS = 2.0
NO_COUNTS = Counts(active=0, closed=0, agents=0, turns_open=0, calls_open=0, pending=0, events=0)

T = TypeVar("T")


async def stats(call: Call, _params: Nothing) -> Stats:
    """Return figures of the daemon; what a process that does not answer would have said is left empty."""
    services = call.services
    counting = _soon(services, services.store.ask(Count(), Counts))
    loading = _soon(services, services.providers.ask(TakeLoad(), Load))
    listing = _soon(services, services.root.ask(control.AskTree(), control.Tree))
    counts = await _value(counting)
    load = await _value(loading)
    tree = await _value(listing)
    nodes = tree.nodes if tree is not None else ()
    used = await _measure(services, [node.pid for node in nodes if node.pid])
    found = counts or NO_COUNTS
    backend = services.boot.backend
    return Stats(
        uptime_ms=services.uptime_ms,
        now=stamp(now_ms()),
        sessions={
            "active": found.active,
            "closed": found.closed,
            "total": found.active + found.closed,
        },
        memory=_memory(used.values()),
        state=_state(services, found, available=counts is not None),
        version=services.boot.version,
        connections={**services.connections, "attachments": len(services.attachments)},
        restarts=sum(node.restarts for node in nodes),
        sandbox={
            "inForce": backend.name or "none",
            "default": services.settings.agents.sandbox,
            "network": services.settings.agents.sandbox_network,
            "detail": backend.detail,
        },
        tree=_tree(services, nodes, used, found, load.requests if load is not None else 0),
    )


def _soon(services: Services, promise: Promise[T]) -> Promise[T]:
    """Let a promise fail when it takes too long."""
    late = DaemonError("OVERLOADED", "no answer in time")
    timer = services.timers.after(PATIENCE_SECONDS, lambda: promise.fail(late))
    promise.then(timer.cancel)
    return promise


async def _value(promise: Promise[T]) -> T | None:
    try:
        return await promise
    except DaemonError:
        return None


async def _measure(services: Services, pids: Sequence[int]) -> dict[int, Usage]:
    """Look at the processes, in a thread: with a thousand of them it takes a while."""
    looking = services.in_thread(lambda: {pid: usage(pid) for pid in pids}, PATIENCE_SECONDS)
    return await _value(looking) or {}


def _memory(used: Iterable[Usage]) -> dict[str, int]:
    known = [each for each in used if each.rss >= 0]
    return {
        "rss": sum(each.rss for each in known),
        "heapTotal": sum(each.data for each in known),
        "heapUsed": sum(each.own for each in known),
        "external": 0,
        "arrayBuffers": 0,
    }


def _state(services: Services, counts: Counts, *, available: bool) -> JsonObject:
    return {
        "available": available,
        "readonly": True,
        "projectDir": services.boot.home,
        "agentRuns": counts.agents,
        "sessionStateSnapshots": counts.active,
        "inFlightToolCalls": counts.calls_open,
        "logs": counts.events,
        "openTurns": counts.turns_open,
        "pendingRequests": counts.pending,
        "queuedMessages": counts.queued,
    }


def _tree(
    services: Services,
    nodes: Sequence[control.TreeNode],
    used: Mapping[int, Usage],
    counts: Counts,
    model_requests: int,
) -> list[StatsNode]:
    work = {each.agent_id: each for each in counts.work}
    mailboxes = {
        "store": counts.mailbox + services.store.unanswered,
        # But for this one.
        "front": services.requests_open() - 1,
        "providers": model_requests,
    }
    return [
        _node(
            node,
            used.get(node.pid, Usage()),
            work.get(node.child_id) if node.kind == "agent" else None,
            mailboxes.get(node.child_id, 0),
        )
        for node in nodes
    ]


def _node(node: control.TreeNode, used: Usage, work: AgentWork | None, mailbox: int) -> StatsNode:
    return StatsNode(
        child_id=node.child_id,
        parent=node.parent,
        kind=node.kind,
        state=node.state,
        pid=node.pid,
        generation=node.generation,
        restarts=node.restarts,
        uptime_ms=int(node.uptime * 1000) if node.uptime >= 0 else 0,
        rss=used.rss,
        cpu_seconds=used.cpu_seconds,
        working=node.working,
        last_error=node.last_error,
        silent_ms=int(node.silent * 1000),
        mailbox=work.queued if work is not None else mailbox,
        turns=work.turns if work is not None else 0,
        queued=work.queued if work is not None else 0,
        waiting=work.waiting if work is not None else 0,
    )
