"""Rebuilds the last batch of a parked turn from its events and its pending rows; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.agent.calls import Call, Completed, Failed, Logged, Stage, rejected
from roost.actors.agent.runner import CallRequest
from roost.schemas.base import CallId, TurnId
from roost.schemas.event import (
    AgentReasoningStarted,
    AnyEvent,
    ToolApprovalApproved,
    ToolApprovalRejected,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roost.actors.agent.effects import Policy
    from roost.schemas.approval import PendingRow


def rebuild(
    turn_id: TurnId, events: Iterable[AnyEvent], pending: Sequence[PendingRow], policy: Policy
) -> tuple[int, list[Call]]:
    """Return how many steps the turn has made, and the calls of the last one as they are now."""
    iteration = 0
    calls: dict[str, Call] = {}
    for event in events:
        if event.turn_id != turn_id:
            continue
        if isinstance(event, AgentReasoningStarted):
            iteration += 1
            calls = {}
        elif isinstance(event, ToolEvent):
            _fold(calls, event, policy)
    for row in pending:
        call = calls.get(row.request_id)
        if call is not None:
            _apply(call, row)
    return iteration, list(calls.values())


def _fold(calls: dict[str, Call], event: ToolEvent, policy: Policy) -> None:
    if isinstance(event, ToolCallRequested):
        plan = policy.plan(CallRequest(event.tool_name, event.tool_args))
        # The arguments that could not be read are not in the log; a mark stands in their place.
        fault = event.tool_args.get("__parse_error", "")
        calls[event.tool_call_id] = Call(
            CallId(event.tool_call_id),
            event.tool_name,
            event.tool_args,
            parallel=plan.parallel,
            fault=str(fault),
        )
    call = calls.get(event.tool_call_id)
    if call is None:
        return
    call.log(str(event.__struct_config__.tag))
    match event:
        case ToolApprovalApproved():
            call.stage = Stage.READY
        case ToolApprovalRejected(error_code=code, reason=reason):
            call.settle(rejected(code, reason))
        case ToolCallCompleted(result=result):
            call.settle(Completed(result))
        case ToolCallFailed(error=error, error_code=code):
            call.settle(Failed(error, code or ""))
        case _:
            if call.logged is Logged.WAITING:
                call.stage = Stage.WAITING


def _apply(call: Call, row: PendingRow) -> None:
    call.asks_question = row.kind == "question"
    if not call.asks_question or call.stage is Stage.SETTLED:
        return
    match row.state:
        case "open":
            call.stage = Stage.WAITING
        case "answered":
            call.answer = msgspec.json.decode(row.answer)
            call.stage = Stage.READY
        case _:
            call.answer = {"action": "cancel"}
            call.stage = Stage.READY
    if call.stage is Stage.READY and call.logged is Logged.RUNNING:
        call.settle(Completed(call.answer))
