"""turn/start, turn/steer, turn/interrupt, model/list and schema/export: what a person says, and what they choose from.

Who is told of what these cause, and when, is the door's to see to.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import uuid_utils
from msgspec import UNSET

from roost.actors.errors import DaemonError
from roost.actors.front.creation import new_id
from roost.actors.front.models import find_model, list_models
from roost.actors.front.thread_past import find_turn
from roost.actors.front.thread_wire import AROUND
from roost.actors.threads.shorten import longest
from roost.schemas.base import MessageId, SessionId, TurnId
from roost.schemas.thread_results import (
    AppModelInfo,
    AppTurn,
    Empty,
    InputText,
    ModelListResponse,
    SchemaExportResponse,
    TurnError,
    TurnStartResponse,
    TurnStatus,
    TurnSteerResponse,
)
from roost.schemas.thread_typescript import exported
from roost.schemas.turn import (
    CUT_OFF,
    Accepted,
    AcceptMessage,
    InterruptTurn,
    StartTurn,
    SteerTurn,
    TurnCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roost.actors.front.router import Call
    from roost.schemas.model import ModelInfo
    from roost.schemas.thread import (
        ModelListParams,
        NoParams,
        TurnInterruptParams,
        TurnStartParams,
        TurnSteerParams,
    )

INTERRUPTED = "interrupted"
MAX_MODEL = 1_024
MAX_SHOWN = 256
"""So many characters of an id that a client made up are said back to it."""

_encode = msgspec.json.Encoder().encode
_STATUS: dict[str, TurnStatus] = {
    "completed": "completed",
    "failed": "failed",
    "interrupted": "interrupted",
}


async def start_turn(call: Call, params: TurnStartParams) -> TurnStartResponse:
    """Have the agent begin a turn with what a person says; answered as soon as that is on disk.

    Raises:
        DaemonError: nothing is said, or too much, there is no such thread, it is archived, a turn is open or about to be,
            no provider tells of the model, or the store has no room.
    """
    services = call.services
    turn_id = TurnId(f"turn_{uuid_utils.uuid7().hex}")
    message = _message(params, services.next_stamp())
    model = params.model or ""
    known, found = await find_model(services, model) if model else (True, None)
    known = known and len(model) <= MAX_MODEL
    if found is not None:
        # Its provider need not be the agent's.
        model = f"{found.provider}/{model}"
    request = StartTurn(
        message=message, turn_id=turn_id, model=model, model_known=known, input=_texts(params)
    )
    try:
        accepted = await services.store.ask(request, Accepted)
    except DaemonError as error:
        given, said = params.model or "", message.text
        raise shown_error(error, params.thread_id, turn_id, model=given, said=said) from None
    turn = _accepted_turn(params, accepted)
    if accepted.state != "queued":
        # Begun already, or sent before.
        turn = await find_turn(services, params.thread_id, turn.id) or turn
    return TurnStartResponse(turn=turn)


async def steer_turn(call: Call, params: TurnSteerParams) -> TurnSteerResponse:
    """Have the open turn read what a person says before its next step; answered as soon as that is on disk.

    Raises:
        DaemonError: nothing is said, or too much, there is no such thread, this turn is not open, or the store has no room.
    """
    services, thread_id, turn_id = call.services, params.thread_id, TurnId(params.turn_id)
    message = _message(params, services.next_stamp())
    request = SteerTurn(message=message, turn_id=turn_id, input=_texts(params))
    try:
        accepted = await services.store.ask(request, Accepted)
    except DaemonError as error:
        raise shown_error(error, thread_id, turn_id, said=message.text) from None
    if (accepted.turn_id or accepted.planned or turn_id) != turn_id:
        text = "the message was sent before, to another turn"
        raise DaemonError("CLIENT_MESSAGE_ID_CONFLICT", text, {"threadId": thread_id})
    turn = await find_turn(services, thread_id, turn_id)
    if turn is None:
        # It will never begin, or its events are not kept any more.
        status: TurnStatus = "queued" if accepted.state == "queued" else "running"
        if accepted.state == "ended":
            status = _ended_as(accepted.outcome, accepted.error)
        turn = AppTurn(id=turn_id, thread_id=thread_id, run_id=turn_id, status=status, input=())
    return TurnSteerResponse(turn=turn, turn_id=turn_id, queued=accepted.state == "queued")


async def interrupt_turn(call: Call, params: TurnInterruptParams) -> Empty:
    """Have a turn stop, or never begin; answered when that is on disk. Its `turn/completed` says that it has stopped."""
    thread_id, turn_id = params.thread_id, params.turn_id
    request = InterruptTurn(
        session_id=SessionId(thread_id), turn_id=TurnId(turn_id), reason=INTERRUPTED
    )
    try:
        await call.services.store.ask(request, TurnCancelled)
    except DaemonError as error:
        raise shown_error(error, thread_id, turn_id) from None
    return Empty()


async def list_all_models(call: Call, params: ModelListParams) -> ModelListResponse:
    """Return the models that the providers' servers tell of, or told last."""
    found = await list_models(call.services, params.provider or "")
    return ModelListResponse(models=tuple(_model(model) for model in found.models))


async def export_schema(call: Call, _params: NoParams) -> msgspec.Raw:
    """Return the schemas of this door as texts, JSON Schema and TypeScript.

    Raises:
        DaemonError: they are longer than the client's line, and of no use when they are cut (`ANSWER_TOO_LARGE`).
    """
    schemas = _exported()
    client = call.caller.thread
    most = client.view.line_bytes if client is not None else 0
    if most and len(bytes(schemas)) > most - AROUND:
        text = f"the schemas have {len(bytes(schemas))} bytes, and a line of this client has {most}"
        raise DaemonError("ANSWER_TOO_LARGE", text, {"limit": most, "size": len(bytes(schemas))})
    return schemas


def shown_error(
    error: DaemonError, thread_id: str, turn_id: str, *, model: str = "", said: str = ""
) -> DaemonError:
    """Return what the store has refused, in the words and with the data of the thread door (T 1.6)."""
    data = error.data
    thread_id, turn_id = thread_id[:MAX_SHOWN], turn_id[:MAX_SHOWN]
    match error.code:
        case "SESSION_NOT_FOUND" | "AGENT_NOT_FOUND":
            return DaemonError("SESSION_NOT_FOUND", "Unknown thread", {"threadId": thread_id})
        case "SESSION_CLOSED":
            return DaemonError(error.code, "Thread is archived", {"threadId": thread_id})
        case "TURN_IN_PROGRESS":
            active = {key: data[key] for key in ("activeTurnId",) if data.get(key)}
            text = "Thread already has an active turn"
            return DaemonError(error.code, text, {"threadId": thread_id, **active})
        case "NO_ACTIVE_TURN":
            named: dict[str, object] = {"threadId": thread_id, "turnId": turn_id}
            if data.get("outcome"):
                named["turnStatus"] = _ended_as(str(data["outcome"]), str(data.get("error", "")))
            return DaemonError(error.code, "No matching active turn", named)
        case "TURN_ID_MISMATCH":
            both = {"expected": turn_id, "active": data.get("active")}
            return DaemonError(error.code, "No matching active turn", both)
        case "INPUT_TOO_LARGE":
            return DaemonError(error.code, error.message, _too_large(data, said))
        case "UNKNOWN_MODEL":
            text = f"no provider has a model called {model[:200]!r}"
            return DaemonError(error.code, text, {"model": model[:200]})
        case _:
            return error


def _too_large(data: Mapping[str, object], said: str) -> dict[str, object]:
    """Return the limits in both units: bytes of the event that the input would be, and characters of the input."""
    most, size = data.get("limit"), data.get("size")
    found: dict[str, object] = {"max_bytes": most, "actual_bytes": size}
    if isinstance(most, int) and isinstance(size, int) and said:
        around = size - len(_encode(said))
        found["max_chars"] = longest(said, most - around)
        found["actual_chars"] = len(said)
    return found


@cache
def _exported() -> msgspec.Raw:
    schemas, files = exported()
    # As short as they can be: many clients read lines of at most 64 KiB.
    short = {name: msgspec.json.format(text, indent=-1) for name, text in schemas.items()}
    answer = SchemaExportResponse(json_schema=short, typescript=files)
    return msgspec.Raw(msgspec.json.encode(answer))


def _texts(params: TurnStartParams | TurnSteerParams) -> tuple[str, ...]:
    return tuple(piece.text for piece in params.input)


def _message(params: TurnStartParams | TurnSteerParams, at: int) -> AcceptMessage:
    """Return what is said as one message: its pieces are lines of it.

    Raises:
        DaemonError: there is nothing in it (`EMPTY_INPUT`).
    """
    texts = _texts(params)
    if not any(texts):
        raise DaemonError("EMPTY_INPUT", "input must not be empty")
    text = "\n".join(texts)
    content = _encode(text)
    message_id = params.client_message_id or new_id("message")
    return AcceptMessage(
        session_id=SessionId(params.thread_id),
        message_id=MessageId(message_id),
        stream_id=message_id,
        accepted_at=at,
        content=content,
        text=text,
        client_message_id=params.client_message_id or "",
        # Of one piece as the daemon door has it, so that a message sent again at the other door is known there.
        sha256=hashlib.sha256(content if len(texts) == 1 else _encode(texts)).digest(),
    )


def _accepted_turn(params: TurnStartParams, accepted: Accepted) -> AppTurn:
    """Return the turn of a message that has been accepted, now or before."""
    turn_id = accepted.turn_id or accepted.planned
    status: TurnStatus = "running" if accepted.state == "begun" else "queued"
    error = TurnError(message=accepted.error) if accepted.error else UNSET
    if accepted.state == "ended":
        status = _ended_as(accepted.outcome, accepted.error)
    return AppTurn(
        id=turn_id,
        thread_id=params.thread_id,
        run_id=turn_id,
        status=status,
        input=tuple(InputText(text=text) for text in _texts(params)),
        started_at_ms=UNSET,
        model=params.model or UNSET,
        error=error if status == "failed" else UNSET,
    )


def _ended_as(outcome: str, error: str) -> TurnStatus:
    """Return how a turn has ended as this door says it: cut off by a crash is interrupted."""
    return "interrupted" if error.startswith(CUT_OFF) else _STATUS.get(outcome, "completed")


def _model(model: ModelInfo) -> AppModelInfo:
    return AppModelInfo(
        id=model.id,
        provider=model.provider,
        display_name=model.name or UNSET,
        context_length=model.context_length or UNSET,
        supports_tools=model.tools,
    )
