"""What threads tell their clients, as lines: encoded once, whoever gets them (T 1.1, 1.4, 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roost.actors.front.peer import Batch
from roost.actors.front.thread_wire import WIRES
from roost.schemas.thread_notifications import (
    EXPERIMENTAL,
    METHODS,
    REQUEST,
    ApprovalRequestParams,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roost.schemas.thread_notifications import Told

_encode = msgspec.json.Encoder().encode


class View(NamedTuple):
    """How a connection wants what it is told."""

    jsonrpc: bool = False
    without: frozenset[str] = frozenset()
    experimental: bool = False


class Notes:
    """Notifications in order. What waits for a decision is also asked of the client, as long as it `is_open`."""

    def __init__(self, told: Sequence[Told], is_open: Callable[[str], bool]) -> None:
        self._told = told
        self._is_open = is_open
        self._params: list[bytes] | None = None
        self._batches: dict[View, Batch | None] = {}

    def batch(self, view: View) -> Batch | None:
        """Return the lines for one view, or None if there are none."""
        if view not in self._batches:
            lines = list(self._lines(view))
            self._batches[view] = Batch(lines) if lines else None
        return self._batches[view]

    def _lines(self, view: View) -> Iterable[bytes]:
        if self._params is None:
            self._params = [_encode(one) for one in self._told]
        wire = WIRES[view.jsonrpc]
        for one, params in zip(self._told, self._params, strict=True):
            method = METHODS[type(one)]
            if method not in view.without and (view.experimental or method not in EXPERIMENTAL):
                yield wire.notification(method, params)
            if isinstance(one, ApprovalRequestParams) and self._is_open(one.request_id):
                yield wire.request(one.request_id, REQUEST, params)
