"""message.send and message.stream: accepted durably, answered when the turn has ended."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roost.actors.errors import DaemonError, InvalidArgument
from roost.actors.front.clock import stamp
from roost.actors.front.creation import new_id
from roost.actors.front.waiting import ended_of, not_found
from roost.schemas.base import MessageId, SessionId
from roost.schemas.daemon import MessageSend, MessageStream
from roost.schemas.results import MessageDone, Terminal
from roost.schemas.turn import Accepted, AcceptMessage, CancelMessage, TurnCancelled

if TYPE_CHECKING:
    from roost.actors.front.gateway import Gateway
    from roost.actors.front.router import Call
    from roost.actors.front.stream import Stream
    from roost.actors.front.waiting import Waiter
    from roost.schemas.session import MessageChanged

EXIT = {"completed": 0, "failed": 1, "interrupted": 130}
DISPLAY = "displayUserMessage"

_encode = msgspec.json.Encoder().encode


async def send_message(call: Call, params: MessageSend) -> MessageDone:
    """Give the agent a message and wait for its turn's end. Cancelled, the message is withdrawn or interrupted."""
    services = call.services
    message = _accept_of(call.method, params, services.next_stamp())
    stream = services.fanout.hold(params.session_id)
    # From here on: where one commit both knows a repeated message and ends it, its end is told before the answer.
    waiter = stream.wait_message(message)
    try:
        # Both are on their way at once: whatever becomes of the message is told after the watch has begun.
        answer = services.store.ask(message, Accepted)
        call.on_cancel = partial(_withdraw, services.store, message)
        await _opened(stream, params.session_id)
        accepted = await answer
        ended = await _ended(call, stream, waiter, accepted)
    finally:
        stream.forget(waiter)
        services.fanout.release(stream)
    return _done(call, params, accepted, ended)


async def _opened(stream: Stream, session_id: str) -> None:
    try:
        await stream.opened
    except DaemonError as error:
        raise (not_found(session_id) if error.code == "SESSION_NOT_FOUND" else error) from None


async def _ended(call: Call, stream: Stream, waiter: Waiter, accepted: Accepted) -> MessageChanged:
    """Wait for the end of the message, and until the connection has been sent all that came before it."""
    call.release_order()
    if accepted.state == "ended":
        return ended_of(stream.session_id, stream.row.spec.agent_id, accepted)
    ended = await waiter.ended
    feed = stream.feeds.get(call.caller.peer)
    if feed is not None:
        await feed.passed(stream.position)
    return ended


def _accept_of(method: str, params: MessageSend, at: int) -> AcceptMessage:
    content = _encode(params.content)
    if isinstance(params.content, str):
        text = params.content
    else:
        text = "".join(block.text for block in params.content)
    shown = params.metadata.get(DISPLAY, "")
    if not isinstance(shown, str | None):
        what = f"{method} metadata '{DISPLAY}' must be a string or null"
        raise InvalidArgument(what, {"path": f"/metadata/{DISPLAY}"})
    message_id = params.client_message_id or new_id("message")
    stream_id = params.stream_id if isinstance(params, MessageStream) else ""
    return AcceptMessage(
        session_id=SessionId(params.session_id),
        message_id=MessageId(message_id),
        stream_id=stream_id or message_id,
        accepted_at=at,
        content=content,
        text=text,
        client_message_id=params.client_message_id,
        sha256=hashlib.sha256(content).digest(),
        display=shown if shown and DISPLAY in params.metadata else None,
        hidden=shown is None,
        metadata=_encode(params.metadata),
    )


def _withdraw(store: Gateway, message: AcceptMessage, reason: str) -> None:
    request = CancelMessage(
        session_id=message.session_id, message_id=message.message_id, reason=reason
    )
    store.ask(request, TurnCancelled)


def _done(
    call: Call, params: MessageSend, accepted: Accepted, ended: MessageChanged
) -> MessageDone:
    outcome = ended.outcome or "completed"
    duplicate_state = ""
    if accepted.duplicate:
        duplicate_state = "completed" if outcome == "completed" else "incomplete"
    return MessageDone(
        message_id=accepted.message_id,
        accepted_at=stamp(accepted.accepted_at),
        stream_id=accepted.stream_id if isinstance(params, MessageStream) else "",
        turn_id=ended.turn_id,
        outcome=outcome,
        disposition="duplicate" if accepted.duplicate else "started",
        duplicate=accepted.duplicate,
        duplicate_state=duplicate_state,
        terminal=Terminal(code=EXIT.get(outcome, 1), message=ended.error or outcome),
    )
