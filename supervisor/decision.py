"""What the end of one child means for its supervisor: which children to stop and to start; pure.

A plan names children by id. `stop` is in the order of stopping (the youngest first), `start` in the order of starting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.supervisor.spec import ChildSpec, Restart, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence


class Plan(msgspec.Struct, frozen=True):
    """What to do; an empty plan means "let it go". `end`: the supervisor itself ends, in order."""

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    end: bool = False


def is_restarted(restart: Restart, *, crashed: bool) -> bool:
    """Return whether a child of this type that ended by itself is started again."""
    match restart:
        case Restart.PERMANENT:
            return True
        case Restart.TRANSIENT:
            return crashed
        case Restart.TEMPORARY:
            return False


def plan_restart(
    strategy: Strategy, specs: Sequence[ChildSpec], ended: str, *, crashed: bool
) -> Plan:
    """Return the plan for the end of child `ended`, which nobody had asked for."""
    at = [spec.id for spec in specs].index(ended)
    if not is_restarted(specs[at].restart, crashed=crashed):
        return Plan(end=specs[at].significant)
    match strategy:
        case Strategy.ONE_FOR_ONE | Strategy.DYNAMIC:
            group = specs[at : at + 1]
        case Strategy.REST_FOR_ONE:
            group = specs[at:]
        case Strategy.ONE_FOR_ALL:
            group = specs
    return Plan(
        stop=tuple(spec.id for spec in reversed(group) if spec.id != ended),
        start=tuple(spec.id for spec in group if spec.restart is not Restart.TEMPORARY),
    )
