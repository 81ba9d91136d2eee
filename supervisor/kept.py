"""What a supervisor remembers of one child: its state, its run, its restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import trio

from roost.supervisor.intensity import Intensity, Window

if TYPE_CHECKING:
    from roost.supervisor.child import ChildRun
    from roost.supervisor.spec import ChildSpec

State = Literal["starting", "running", "stopping", "waiting", "stopped", "gave_up"]
RECENT = 64


class Kept:
    """A child as its supervisor keeps it.

    `waiting` is the time before a restart; `again` means that somebody asked for the child while it was ending;
    `budget` counts its restarts where each child has a budget of its own, `recent` those that lengthen its delay.
    """

    def __init__(self, spec: ChildSpec, intensity: Intensity) -> None:
        self.spec = spec
        self.state: State = "stopped"
        self.run: ChildRun | None = None
        self.generation = 0
        self.restarts = 0
        self.again = False
        self.last_error = ""
        self.last_words = ""
        self.budget = Window(intensity)
        self.recent = Window(Intensity(RECENT, intensity.period))
        self.pause = trio.CancelScope()

    @property
    def id(self) -> str:
        """Return the child's id."""
        return self.spec.id

    @property
    def alive(self) -> bool:
        """Return whether a run of it has begun and has not ended."""
        return self.run is not None and not self.run.ended.is_set()

    @property
    def pid(self) -> int:
        """Return the pid of the process that carries its current or last run, 0 if there is none."""
        return self.run.pid if self.run is not None else 0

    def lived(self) -> float:
        """Return the seconds since its last start."""
        return trio.current_time() - self.run.began if self.run is not None else 0.0

    def forgive(self) -> None:
        """Forget all restarts."""
        self.budget.clear()
        self.recent.clear()
