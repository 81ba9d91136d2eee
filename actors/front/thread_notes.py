"""What threads tell their clients, as lines: encoded once, whoever gets them (T 1.1, 1.4, 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from roost.actors.front.peer import Batch
from roost.actors.front.thread_wire import AROUND, WIRES
from roost.actors.threads.shorten import pieces, shortened
from roost.schemas.thread_notifications import (
    EXPERIMENTAL,
    METHODS,
    REQUEST,
    AgentMessageDelta,
    ApprovalRequestParams,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roost.schemas.thread_notifications import Told

_encode = msgspec.json.Encoder().encode


class View(NamedTuple):
    """How a connection wants what it is told; `line_bytes` is how long a line may be, 0: as long as it is."""

    jsonrpc: bool = False
    without: frozenset[str] = frozenset()
    experimental: bool = False
    line_bytes: int = 0


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
                for part in _parts(one, params, view.line_bytes):
                    yield wire.notification(method, part)
            if isinstance(one, ApprovalRequestParams) and self._is_open(one.request_id):
                (whole,) = _parts(one, params, view.line_bytes)
                yield wire.request(one.request_id, REQUEST, whole)


def _parts(one: Told, params: bytes, line_bytes: int) -> Sequence[bytes]:
    """Return params that fit into a client's line: text goes on in further lines, of all else the long texts are cut."""
    room = line_bytes - AROUND
    if not line_bytes or len(params) <= room:
        return (params,)
    if not isinstance(one, AgentMessageDelta):
        return (shortened(params, room),)
    around = len(_encode(msgspec.structs.replace(one, delta="")))
    said = pieces(one.delta, room - around)
    return [_encode(msgspec.structs.replace(one, delta=piece)) for piece in said]
