"""How a turn fails of itself: past its time limit, or past a bound (L 11.2); pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.actors.agent.calls import Failed
from roost.actors.agent.runner import RunnerFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roost.actors.agent.calls import Call
    from roost.schemas.event import Outcome, Phase

TIMED_OUT_TEXT = "Agent turn timed out"


def output_limit(max_bytes: int) -> RunnerFailed:
    """Return the failure of a turn whose answer is too long."""
    return RunnerFailed(
        f"The answer is longer than {max_bytes} bytes",
        code="PROVIDER_OUTPUT_LIMIT",
        phase="provider_stream",
        outcome="unknown",
    )


def timed_out(phase: Phase, *, touched: bool) -> RunnerFailed:
    """Return the failure of a turn whose limit passed while nothing of it ran here.

    `touched` says whether the turn may have had an effect outside: a request was sent, or a call started.
    """
    outcome: Outcome = "unknown" if touched else "not_started"
    return _late(phase, retryable=True, outcome=outcome)


def calls_timed_out(phase: Phase, calls: Sequence[Call]) -> RunnerFailed:
    """Return the failure of a turn whose limit passed during its calls; they have all ended by now."""
    ends = [call.end for call in calls if isinstance(call.end, Failed)]
    unknown = any(end.outcome == "unknown" for end in ends)
    if phase == "tool" and (unknown or not any(end.code == "TURN_TIMEOUT" for end in ends)):
        return _late(phase, retryable=False, outcome="unknown")
    return _late(phase, retryable=True, outcome="not_started")


def _late(phase: Phase, *, retryable: bool, outcome: Outcome) -> RunnerFailed:
    return RunnerFailed(
        TIMED_OUT_TEXT, code="TURN_TIMEOUT", phase=phase, retryable=retryable, outcome=outcome
    )
