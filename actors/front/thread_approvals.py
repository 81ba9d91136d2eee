"""approval/resolve, and what clients answer to approval/request (T 3.11, 4.3): the first decision counts, whoever made it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import msgspec

from roost.actors.errors import DaemonError
from roost.actors.front.promise import start
from roost.actors.front.thread_following import client_of, hold_back, shown
from roost.schemas.approval import PendingRow, Settle
from roost.schemas.base import SessionId
from roost.schemas.thread_log import FindPending, FoundPending
from roost.schemas.thread_results import ApprovalResolveResponse

if TYPE_CHECKING:
    from roost.actors.front.router import Call, Caller
    from roost.actors.front.services import Services
    from roost.actors.front.thread_feeds import ThreadClient
    from roost.schemas.rpc import ClientReply
    from roost.schemas.thread import ApprovalDecision, ApprovalResolveParams

PREFIX = "apr_"
METHOD_NOT_FOUND = -32601
MAX_REASON = 200
_STATES: dict[str, Literal["approved", "denied"]] = {"allow": "approved", "deny": "denied"}
_WORDS: dict[str, ApprovalDecision] = {
    "allow": "allow",
    "approved": "allow",
    "deny": "deny",
    "denied": "deny",
}

_log = logging.getLogger(__name__)


class _Result(msgspec.Struct, frozen=True):
    decision: str = ""
    message: str | None = None


_result = msgspec.json.Decoder(_Result).decode


async def resolve_approval(call: Call, params: ApprovalResolveParams) -> ApprovalResolveResponse:
    """Decide on what waits. The same decision again is no fault, another one is refused."""
    services, thread_id = call.services, params.thread_id
    row = await _find(services, params)
    if row.state == "open":
        hold_back(call, thread_id)
        request = Settle(
            session_id=SessionId(thread_id),
            request_id=row.request_id,
            kind="approval",
            state=_STATES[params.decision],
            by=client_of(call.caller).name,
        )
        try:
            await services.store.ask(request, PendingRow, repeat=False)
        except DaemonError as error:
            if error.code != "INVALID_ARGUMENT":
                raise shown(error, thread_id) from None
        else:
            return ApprovalResolveResponse()
        row = await _find(services, params)
    decided: ApprovalDecision = "allow" if row.state == "approved" else "deny"
    if decided != params.decision:
        text = "the approval request was resolved before, in another way"
        data: dict[str, object] = {"requestId": params.request_id, "decision": decided}
        raise DaemonError("APPROVAL_ALREADY_RESOLVED", text, data)
    return ApprovalResolveResponse(already_resolved=True)


def take_reply(caller: Caller, reply: ClientReply) -> None:
    """Take a client's answer to what it was asked; one that comes late, or from who was not asked, is nothing."""
    client = caller.thread
    if client is None or not isinstance(reply.id, str):
        return
    thread_id, call_id = _asked(client, reply.id)
    if not call_id:
        return
    if reply.error == METHOD_NOT_FOUND:
        # It cannot answer; somebody else may.
        return
    decision, reason = _decision_of(reply)
    request = Settle(
        session_id=SessionId(thread_id),
        request_id=call_id,
        kind="approval",
        state=_STATES[decision],
        reason=reason,
        by=client.name,
    )
    start(_settle(caller.services, request), _settled)


def _asked(client: ThreadClient, request: str) -> tuple[str, str]:
    """Return the thread and the call that wait for the decision on a request; nothing if none that is followed does."""
    for thread_id, feed in client.feeds.items():
        call_id = feed.tail.fold.call_of(request)
        if call_id and feed.tail.is_open(request):
            return thread_id, call_id
    return "", ""


def _decision_of(reply: ClientReply) -> tuple[ApprovalDecision, str]:
    if reply.result is None:
        return "deny", ""
    try:
        result = _result(reply.result)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "deny", ""
    decision = _WORDS.get(result.decision, "deny")
    return decision, (result.message or "")[:MAX_REASON] if decision == "deny" else ""


async def _settle(services: Services, request: Settle) -> None:
    await services.store.ask(request, PendingRow, repeat=False)


def _settled(outcome: DaemonError | None) -> None:
    if outcome is not None:
        # Somebody was first, or the turn has ended.
        _log.info("a decision came too late: %s", outcome.message)


async def _find(services: Services, params: ApprovalResolveParams) -> PendingRow:
    """Return what the request names: by the event that asked, or as the daemon door names it by its call."""
    asked = params.request_id
    is_event = asked.startswith(PREFIX)
    request = FindPending(
        session_id=SessionId(params.thread_id),
        event_id=asked.removeprefix(PREFIX) if is_event else "",
        request_id="" if is_event else asked,
    )
    try:
        row = (await services.store.ask(request, FoundPending)).row
    except DaemonError as error:
        raise shown(error, params.thread_id) from None
    if row is None or row.kind != "approval" or row.turn_id != params.turn_id:
        data: dict[str, object] = {"requestId": asked[:256]}
        raise DaemonError("APPROVAL_NOT_FOUND", "Unknown approval request", data)
    return row
