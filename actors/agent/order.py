"""Which event of a turn may follow which (L 11.3); pure."""

from __future__ import annotations

_CALL_ENDS = frozenset(("tool.call.completed", "tool.call.failed"))
_TURN_ENDS = frozenset(("agent.turn.failed", "cancellation.completed"))
_AFTER_DECISION = frozenset(("tool.approval.requested", "tool.call.started")) | _CALL_ENDS
_NEXT_STEP = frozenset(("user.message", "agent.reasoning.started"))
_AFTER_CALL = _NEXT_STEP | frozenset(("agent.turn.exhausted",)) | _CALL_ENDS | _TURN_ENDS

FOLLOWS: dict[str, frozenset[str]] = {
    "": frozenset(("user.message", "agent.turn.failed")),
    "user.message": _NEXT_STEP | _TURN_ENDS,
    "agent.reasoning.started": frozenset(
        ("agent.message.completed", "tool.call.requested", "user.message")
    )
    | _TURN_ENDS,
    "agent.message.completed": frozenset(("tool.call.requested", "user.message")) | _TURN_ENDS,
    "tool.call.requested": frozenset(("tool.call.requested",)) | _AFTER_DECISION,
    "tool.approval.requested": frozenset(("tool.approval.approved", "tool.approval.rejected")),
    "tool.approval.approved": _AFTER_DECISION,
    "tool.approval.rejected": _AFTER_DECISION,
    "tool.call.started": frozenset(("tool.call.started",)) | _CALL_ENDS,
    "tool.call.completed": _AFTER_CALL,
    "tool.call.failed": _AFTER_CALL,
    "agent.turn.exhausted": frozenset(),
    "agent.turn.failed": frozenset(),
    "cancellation.completed": frozenset(),
}
"""The table of L 11.3: the last event of a turn (deltas do not count) → what may come next.

Beyond it a message that steers the turn may come where no call is open, before the next step.
"""


def check_order(last: str, kind: str) -> None:
    """See that an event may be written now.

    Raises:
        ValueError: the log would be wrong.
    """
    if kind not in FOLLOWS[last]:
        raise ValueError(f"{kind} after {last or 'nothing'}")
