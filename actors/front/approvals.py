"""tool.approve, tool.deny, elicitation.respond, permission.list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.clock import stamp_or_nothing
from roost.actors.front.waiting import not_found
from roost.schemas.approval import ListPermissions, PendingRow, Permissions, Settle
from roost.schemas.base import SessionId
from roost.schemas.daemon import (
    ElicitationRespond,
    PermissionList,
    QuestionAnswers,
    ToolApprove,
    ToolDeny,
)
from roost.schemas.event import MAX_VALUE_BYTES
from roost.schemas.results import Answered, Decided, PermissionListResult, PermissionRule
from roost.schemas.session import GetSession, SessionRow

if TYPE_CHECKING:
    from roost.actors.front.router import Call
    from roost.actors.front.services import Services
    from roost.schemas.base import Message
    from roost.schemas.turn import CancelCall

_encode = msgspec.json.Encoder().encode
_answers = msgspec.json.Decoder(QuestionAnswers)


async def approve_tool(call: Call, params: ToolApprove) -> Decided:
    """Say yes to what waits; the first decision counts."""
    request = Settle(
        session_id=SessionId(params.session_id),
        request_id=params.request_id,
        kind="approval",
        state="approved",
        scope=params.scope,
        by=call.services.attachments.name_at(call.caller.visitor, params.session_id),
    )
    await settled(call.services, request, PendingRow, "tool")
    return Decided(request_id=params.request_id, decision="approved")


async def deny_tool(call: Call, params: ToolDeny) -> Decided:
    """Say no to what waits; the turn goes on."""
    request = Settle(
        session_id=SessionId(params.session_id),
        request_id=params.request_id,
        kind="approval",
        state="denied",
        reason=params.reason,
        by=call.services.attachments.name_at(call.caller.visitor, params.session_id),
    )
    await settled(call.services, request, PendingRow, "tool")
    return Decided(request_id=params.request_id, decision="denied")


async def respond_elicitation(call: Call, params: ElicitationRespond) -> Answered:
    """Answer a question; a malformed answer leaves it open."""
    if params.kind == "mcp":
        if not params.server_name.strip():
            raise InvalidArgument(
                "elicitation.respond requires serverName", {"path": "/serverName"}
            )
        raise _not_pending("elicitation", str(params.request_id))
    declined = params.response == {"action": "cancel"}
    request = Settle(
        session_id=SessionId(params.session_id),
        request_id=str(params.request_id),
        kind="question",
        state="cancelled" if declined else "answered",
        answer=b"" if declined else _answer(params.response),
        by=call.services.attachments.name_at(call.caller.visitor, params.session_id),
    )
    await settled(call.services, request, PendingRow, "elicitation")
    return Answered(request_id=params.request_id, resolved=True)


async def list_permissions(call: Call, params: PermissionList) -> PermissionListResult:
    """Return the rules in force; the store has them all, whether the agent runs or not."""
    if params.agent_id and params.session_id:
        raise InvalidArgument("permission.list accepts agentId or sessionId, not both")
    if not params.agent_id and not params.session_id:
        raise InvalidArgument("permission.list requires agentId or sessionId")
    services = call.services
    agent_id = params.agent_id or await _agent_of(services, params.session_id)
    request = ListPermissions(agent_id=agent_id, session_id=params.session_id)
    found = await services.store.ask(request, Permissions)
    rules = [
        PermissionRule(
            permission_id=rule.permission_id,
            subject=rule.subject,
            action=rule.action,
            scope=rule.scope,
            granted_at=stamp_or_nothing(rule.granted_at),
        )
        for rule in found.permissions
    ]
    return PermissionListResult(permissions=rules)


async def _agent_of(services: Services, session_id: str) -> str:
    known = services.agent_of.get(session_id)
    if known is not None:
        return known
    try:
        row = await services.store.ask(GetSession(session_id=SessionId(session_id)), SessionRow)
    except DaemonError as error:
        raise (not_found(session_id) if error.code == "SESSION_NOT_FOUND" else error) from None
    services.remember_agent(session_id, row.spec.agent_id)
    return row.spec.agent_id


async def settled(
    services: Services, request: Settle | CancelCall, shape: type[Message], what: str
) -> None:
    """Have the store decide. It is not asked again on a new link: its own first copy would answer that nothing is pending.

    Raises:
        DaemonError: nothing is pending any more, or there is no such session.
    """
    try:
        await services.store.ask(request, shape, repeat=False)
    except DaemonError as error:
        if error.code == "INVALID_ARGUMENT":
            raise _not_pending(what, request.request_id) from None
        if error.code in ("AGENT_NOT_FOUND", "SESSION_NOT_FOUND", "SESSION_CLOSED"):
            raise not_found(request.session_id) from None
        raise


def _answer(response: dict[str, object]) -> bytes:
    answer = _encode(response)
    try:
        _answers.decode(answer)
    except msgspec.MsgspecError:
        text = (
            'elicitation.respond response must be {"answers": {<question id>: {"answers": [text]}}}'
        )
        raise InvalidArgument(f'{text} or {{"action": "cancel"}}', {"path": "/response"}) from None
    if len(answer) > MAX_VALUE_BYTES:
        text = f"elicitation.respond response must be at most {MAX_VALUE_BYTES} bytes"
        raise InvalidArgument(text, {"path": "/response"})
    return answer


def _not_pending(what: str, request_id: str) -> InvalidArgument:
    return InvalidArgument(f"AgenC daemon {what} request is not pending: {request_id}")
