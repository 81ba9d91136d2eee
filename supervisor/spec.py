"""Child specs: what a supervisor must know of a child, as data, and what makes a spec wrong."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from roost.supervisor.errors import SpecError


class Strategy(enum.Enum):
    """Who is restarted when one child ends."""

    ONE_FOR_ONE = "one_for_one"
    REST_FOR_ONE = "rest_for_one"
    ONE_FOR_ALL = "one_for_all"
    DYNAMIC = "dynamic"


class Restart(enum.Enum):
    """When a child that has ended is restarted: always, after a crash, never."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Kill(msgspec.Struct, frozen=True):
    """Stop a child at once, without asking."""


class Grace(msgspec.Struct, frozen=True):
    """Ask a child to stop, and end it by force after some seconds."""

    seconds: float = 5.0


class Wait(msgspec.Struct, frozen=True):
    """Ask a child to stop and wait for as long as it takes; for children that are supervisors."""


Shutdown = Kill | Grace | Wait


class Run(Protocol):
    """What a child may do with its own run."""

    @property
    def generation(self) -> int:
        """The number of this start."""
        ...

    def started(self, value: None = None) -> None:
        """Report that the child is ready."""
        ...

    def on_stop(self, callback: Callable[[str, float], None]) -> None:
        """Call `callback(reason, grace)` when the child is asked to stop, instead of cancelling it at once."""
        ...

    def on_kill(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` to end the child by force, instead of cancelling it."""
        ...

    def set_pid(self, pid: int) -> None:
        """Say which process carries the child."""
        ...


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A child, and how it is kept.

    `start` runs the child from its start to its end; it calls `started` when the child is ready. `ready_timeout` None
    means that `start` has a time limit of its own. A significant child takes its supervisor with it when it ends by
    itself and is not restarted.
    """

    id: str
    start: Callable[[Run], Awaitable[None]]
    kind: str = ""
    restart: Restart = Restart.PERMANENT
    shutdown: Shutdown = Grace()
    significant: bool = False
    ready_timeout: float | None = 30.0


def check_spec(spec: ChildSpec) -> None:
    """Raise `SpecError` if one spec contradicts itself."""
    if not spec.id:
        raise SpecError("a child needs an id")
    if spec.significant and spec.restart is Restart.PERMANENT:
        raise SpecError(
            f"{spec.id}: a permanent child is always restarted and cannot be significant"
        )
    if isinstance(spec.shutdown, Grace) and not spec.shutdown.seconds > 0:
        raise SpecError(f"{spec.id}: a grace must be more than 0 seconds; use Kill()")
    if spec.ready_timeout is not None and not spec.ready_timeout > 0:
        raise SpecError(f"{spec.id}: ready_timeout must be more than 0 seconds")


def check_specs(strategy: Strategy, specs: Sequence[ChildSpec]) -> None:
    """Raise `SpecError` if the specs of one supervisor contradict themselves or each other."""
    for spec in specs:
        check_spec(spec)
        if strategy is Strategy.DYNAMIC and spec.significant:
            raise SpecError(
                f"{spec.id}: a dynamic supervisor outlives its children; none is significant"
            )
    repeated = sorted(
        name for name, count in Counter(spec.id for spec in specs).items() if count > 1
    )
    if repeated:
        raise SpecError(f"ids must differ: {', '.join(repeated)}")
