"""Services that are told what happens to dynamic children, by `ChildReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from roost.schemas import control

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.supervisor.process import RunningProcess
    from roost.supervisor.registry import Entry, Registry
    from roost.supervisor.reports import Report
    from roost.supervisor.supervision import Supervisor

Event = Literal["started", "ready", "crashed", "ended", "gave_up"]


class Watchers:
    """The watching services by name; one that comes is told which children do not run just then."""

    def __init__(
        self,
        names: Sequence[str],
        registry: Registry[RunningProcess],
        on_report: Callable[[Report], None],
    ) -> None:
        self._names = names
        self._registry = registry
        self._on_report = on_report
        self._children: Supervisor | None = None

    def watch(self, children: Supervisor) -> None:
        """Take the supervisor of the dynamic children, which reports to `report`."""
        self._children = children
        self._registry.watch(self._on_change)

    def report(self, report: Report) -> None:
        """Pass a report on, and tell the watchers what it means."""
        self._on_report(report)
        event = _event_of(report)
        if event is not None:
            self.tell(
                control.ChildReport(
                    child_id=report.child_id,
                    generation=report.generation,
                    event=event,
                    reason=report.reason,
                )
            )

    def tell(self, report: control.ChildReport) -> None:
        """Tell the watchers that run."""
        for name in self._names:
            if name in self._registry:
                self._registry.find(name).target.send(report)

    def tell_state(self, process: RunningProcess, child_id: str) -> None:
        """Tell a process that a child has been given up, or waits to be restarted; nothing if neither is so."""
        child = self._children.find(child_id) if self._children is not None else None
        if child is None or not child.generation or child.state not in ("gave_up", "waiting"):
            return
        process.send(
            control.ChildReport(
                child_id=child_id,
                generation=child.generation,
                event="gave_up" if child.state == "gave_up" else "crashed",
                reason=child.last_error,
            )
        )

    def _on_change(self, entry: Entry[RunningProcess], ended: str | None) -> None:
        if ended is None and entry.name in self._names and self._children is not None:
            for child in self._children:
                self.tell_state(entry.target, child.id)


def _event_of(report: Report) -> Event | None:
    match report.event:
        case "start":
            return "started"
        case "ready":
            return "ready"
        case "exit":
            return "crashed" if report.how == "crash" else "ended"
        case "give_up":
            return "gave_up"
        case "restart":
            return None
