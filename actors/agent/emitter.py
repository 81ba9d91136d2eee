"""Gathers what a turn wants done, and sees that its events come in an order that the log may have; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.agent.effects import Effect, Emit, Mark
from roost.actors.agent.order import check_order

if TYPE_CHECKING:
    from roost.actors.agent.calls import Call
    from roost.schemas.event import AnyEvent
    from roost.schemas.turn import Change


class Emitter:
    """The effects since the last `take`. `last` is the type of the turn's last event that counts for the order."""

    def __init__(self) -> None:
        self.last = ""
        self._effects: list[Effect] = []

    def emit(
        self, event: AnyEvent, *changes: Change, mark: Mark = "", call: Call | None = None
    ) -> None:
        """Write an event; of a call, its state in the log moves on.

        Raises:
            ValueError: the log would be wrong.
        """
        kind = str(event.__struct_config__.tag)
        check_order(self.last, kind)
        if call is not None:
            call.log(kind)
        self.last = kind
        self._effects.append(Emit(event, changes, mark, call.id if call is not None else ""))

    def want(self, effect: Effect) -> None:
        """Have something else done."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Return everything wanted since the last time."""
        effects, self._effects = self._effects, []
        return effects
