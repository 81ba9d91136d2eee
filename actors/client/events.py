"""The daemon's notifications as the command line reads them; pure.

What it does not know it leaves out: a newer daemon may say more.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from roost.actors.client.connection import Notification

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Text(msgspec.Struct, frozen=True):
    """More of the answer."""

    delta: str


class UserSaid(msgspec.Struct, frozen=True):
    """A user's message; its turn has begun."""

    text: str
    message_id: str


class ToolRequested(msgspec.Struct, frozen=True):
    """The agent wants to use a tool."""

    request_id: str
    tool: str
    input: object


class ToolEnded(msgspec.Struct, frozen=True):
    """A tool call has ended."""

    request_id: str
    text: str
    failed: bool


class ApprovalAsked(msgspec.Struct, frozen=True):
    """A tool call waits for a decision; `policy` says what it may touch."""

    session_id: str
    request_id: str
    tool: str
    input: object
    risk: str = ""
    policy: str = ""
    reason: str = ""


class Question(msgspec.Struct, frozen=True):
    """One question to the user, with the labels of its options, if it has any."""

    id: str
    text: str
    options: tuple[str, ...] = ()


class QuestionAsked(msgspec.Struct, frozen=True):
    """The agent asks the user something and waits."""

    session_id: str
    request_id: str
    questions: tuple[Question, ...]


class Settled(msgspec.Struct, frozen=True):
    """An approval or a question no longer waits."""

    request_id: str
    decision: str


class StatusChanged(msgspec.Struct, frozen=True):
    """The agent's status. One that is derived repeats what another event says, or what was so before."""

    status: str
    message: str = ""
    turn_id: str = ""
    interrupted: bool = False
    derived: bool = False

    @property
    def over(self) -> bool:
        """Whether the turn, or the agent, has ended."""
        return self.status in {"idle", "error", "stopped"}

    @property
    def exit_status(self) -> int:
        """The exit status that this end of a turn means."""
        if self.status == "error":
            return 1
        return 130 if self.interrupted or self.status == "stopped" else 0


class Lost(msgspec.Struct, frozen=True):
    """Events that are no longer in the log stood here."""

    count: int
    reason: str


class Cleared(msgspec.Struct, frozen=True):
    """The conversation begins anew; what was said before is not known to the agent any more."""


class Closed(msgspec.Struct, frozen=True):
    """The session is closed."""

    reason: str


Event = (
    Text
    | UserSaid
    | ToolRequested
    | ToolEnded
    | ApprovalAsked
    | QuestionAsked
    | Settled
    | StatusChanged
    | Lost
    | Cleared
    | Closed
)


class _Option(msgspec.Struct, frozen=True):
    label: str = ""


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: str = ""
    header: str = ""
    options: list[_Option] | None = None


class _Inner(msgspec.Struct, frozen=True):
    type: str = ""
    payload: dict[str, object] = {}


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    """The members of all `event.*` notifications that are read here."""

    session_id: str = ""
    request_id: str | int = ""
    tool_name: str = ""
    turn_id: str = ""
    input: object = None
    reason: str = ""
    delta: str = ""
    status: str = ""
    run_status: str = ""
    message: str = ""
    questions: list[_Question] = []
    event: _Inner = _Inner()
    metadata: dict[str, object] = {}


_params = msgspec.json.Decoder(_Params)


def read_event(notification: Notification) -> Event | None:
    """Return what a notification says, or None if it is nothing for a terminal."""
    try:
        params = _params.decode(notification.params)
    except msgspec.MsgspecError:
        return None
    request_id = str(params.request_id)
    match notification.method:
        case "event.message_chunk":
            return Text(params.delta)
        case "event.tool_request":
            return ToolRequested(request_id, params.tool_name, params.input)
        case "event.permission_request":
            return _approval(params, request_id)
        case "event.user_input_request":
            return QuestionAsked(
                params.session_id, request_id, tuple(map(_question, params.questions))
            )
        case "event.agent_status":
            return _status(params)
        case "event.session_event":
            return _session_event(params.event.type, params.event.payload)
        case _:
            return None


def _approval(params: _Params, request_id: str) -> ApprovalAsked:
    risk = params.metadata.get("risk")
    policy = params.metadata.get("sandbox")
    return ApprovalAsked(
        session_id=params.session_id,
        request_id=request_id,
        tool=params.tool_name,
        input=params.input,
        risk=risk if isinstance(risk, str) else "",
        policy=policy if isinstance(policy, str) else "",
        reason=params.reason,
    )


def _question(question: _Question) -> Question:
    text = question.question or question.header
    return Question(question.id, text, tuple(option.label for option in question.options or ()))


def _status(params: _Params) -> StatusChanged:
    return StatusChanged(
        status=params.status,
        message=params.message,
        turn_id=params.turn_id,
        interrupted=params.metadata.get("outcome") == "interrupted",
        derived=params.metadata.get("derived") is True,
    )


def _session_event(kind: str, payload: dict[str, object]) -> Event | None:
    match kind:
        case "user_message" | "user.message":
            text = payload.get("displayText") or payload.get("message") or payload.get("content")
            return UserSaid(_text(text), _text(payload.get("messageId")))
        case "tool_call_completed":
            failed = payload.get("isError") is True
            return ToolEnded(_text(payload.get("callId")), _text(payload.get("result")), failed)
        case "permission_resolved":
            return Settled(_text(payload.get("requestId")), _text(payload.get("decision")))
        case "elicitation_resolved":
            return Settled(_text(payload.get("requestId")), "answered")
        case "event_gap":
            count = payload.get("retiredCount")
            return Lost(count if isinstance(count, int) else 0, _text(payload.get("reason")))
        case "history_cleared":
            return Cleared()
        case "session_closed" | "session.closed":
            return Closed(_text(payload.get("reason")))
        case _:
            return None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """Return text without what could move a terminal's cursor, colour it or hide what stands there."""
    return _CONTROL.sub("\ufffd", text)


def describe_call(tool: str, arguments: object, limit: int = 200) -> str:
    """Return one line that says what a tool call would do; it is cut at `limit` characters, and says so."""
    command = (
        cast("dict[str, object]", arguments).get("command") if isinstance(arguments, dict) else None
    )
    if isinstance(command, str):
        text = f"{tool}: {command}"
    elif arguments in (None, {}):
        text = tool
    else:
        text = f"{tool} {json.dumps(arguments, ensure_ascii=False)}"
    text = clean(text.replace("\n", "\u23ce "))
    if len(text) > limit:
        return f"{text[:limit]}… ({len(text)} characters)"
    return text


class _Output(msgspec.Struct, frozen=True):
    """What a command has said, or the words of a call that was cancelled."""

    output: str = ""
    exit_code: int | None = None
    content: str | None = None
    is_error: bool = False


def describe_result(text: str) -> str:
    """Return the result of a call as a person reads it: of a command its output, and its exit status unless it is 0."""
    try:
        result = msgspec.json.decode(text, type=_Output)
    except msgspec.MsgspecError:
        return text
    if result.is_error and result.content is not None:
        return result.content
    if result.exit_code is None:
        return text
    output = result.output.rstrip("\n")
    if result.exit_code == 0:
        return output or "(no output)"
    return f"{output}\nexit status {result.exit_code}".lstrip("\n")
