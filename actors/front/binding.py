"""Which protocol a client speaks, by its first messages; pure (T 1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from roost.actors.errors import DaemonError, WrongState
from roost.actors.front.envelope import NotARequest
from roost.actors.front.thread_params import raw_object
from roost.actors.front.thread_wire import Incoming, decode_message
from roost.schemas.thread import EXPERIMENTAL, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Container

    import msgspec

Side = Literal["daemon", "thread", "neither"]


class Judgement(NamedTuple):
    """Who is to take a message; `jsonrpc` says whether it carries that member, None if nothing can be said.

    A request has a `request_id` and a `method`, a notification only a method.
    """

    side: Side
    jsonrpc: bool | None = None
    request_id: str | int | None = None
    method: str = ""


def judge(line: bytes) -> Judgement:
    """Return who is to take a message of a connection that has not chosen its protocol.

    What is no message at all is the daemon door's to refuse. `neither` is an `initialize` that says nothing of a protocol.
    """
    try:
        message, jsonrpc = decode_message(line)
    except NotARequest:
        return Judgement("daemon")
    if not isinstance(message, Incoming):
        return Judgement("daemon", None if message is None else jsonrpc)
    if message.method == "initialize":
        side = _side_of(message.params) if message.id is not None else "daemon"
        return Judgement(side, jsonrpc, message.id, message.method)
    known = message.method in REQUESTS or message.method in EXPERIMENTAL
    return Judgement("thread" if known else "daemon", jsonrpc, message.id, message.method)


def _side_of(params: msgspec.Raw) -> Side:
    members = raw_object(params) or {}
    if isinstance(members.get("clientInfo"), dict):
        return "thread"
    if isinstance(members.get("protocol"), dict) or isinstance(members.get("protocolVersion"), str):
        return "daemon"
    return "neither"


def refusal(found: Judgement, methods: Container[str]) -> DaemonError | None:
    """Return what is wrong with a first message without `jsonrpc` that is not a thread client's; None: its own door says it.

    `methods` are those of the daemon door. That its messages have to carry `jsonrpc` is said to who has chosen it.
    """
    if found.jsonrpc is not False or found.request_id is None:
        return None
    if found.side == "neither":
        text = "initialize names no protocol: clientInfo, protocol or protocolVersion"
        return DaemonError("UNKNOWN_PROTOCOL", text)
    if found.side == "thread" or found.method == "initialize":
        return None
    if found.method in methods:
        return WrongState("CONNECTION_NOT_INITIALIZED", "Not initialized")
    name = found.method[:128]
    return DaemonError("METHOD_NOT_FOUND", f"unknown method: {name}", {"method": name})
